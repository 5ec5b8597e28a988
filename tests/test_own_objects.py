"""Models and allocators of one's own, handed over as objects."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sizewright as sw
from sizewright.cluster import Problem, Solution, chosen
from sizewright.cluster.allocators import Allocator, by_arrival, get_allocator
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import InputError
from sizewright.models import get_model
from sizewright.models.forms.usl import UslModel
from sizewright.models.table import as_columns

CLUSTER = Path(__file__).resolve().parents[1] / "examples" / "cluster"


class Least(Allocator):
    """Each job gets the least that it can have, in order of arrival; it counts how often it is asked."""

    name = "least"

    def __init__(self) -> None:
        self.asked = 0

    def choose(self, problem: Problem, until: float) -> Solution:
        self.asked += 1
        choice = problem.floor.copy()
        for job in by_arrival(problem):
            tried = choice.copy()
            tried[job] = problem.smallest[job]
            choice = tried if problem.fits(tried) else choice
        return chosen(problem, self.name, choice)


class Wrong(Least):
    """What it gives is there twice, or nothing at all."""

    name = "wrong"

    def __init__(self, choice: Any) -> None:
        self.told = choice

    def choose(self, problem: Problem, until: float) -> Solution:
        return chosen(problem, self.name, np.full(len(problem.jobs), self.told))


class Odd(UslModel):
    """Tells what cannot be."""

    name = "odd"

    def __init__(self, rate: float = float("nan")) -> None:
        self.rate = rate

    def predict(self, X: Any) -> np.ndarray:
        return super().predict(X) * self.rate


class Keen(UslModel):
    """Believes in many workers."""

    name = "keen"

    def predict(self, X: Any) -> np.ndarray:
        return super().predict(X) * as_columns(X)["workers"] ** 2

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[np.ndarray, np.ndarray]:
        return self.predict(X) / 1.5, self.predict(X) * 1.5


class UpsideDown(Keen):
    """Its upper bound is below its lower one."""

    name = "upside-down"

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[np.ndarray, np.ndarray]:
        lower, upper = super().predict_interval(X, coverage, kind)
        return upper, lower


def test_a_cluster_is_divided_by_an_object(tmp_path: Path) -> None:
    division = sw.allocate(CLUSTER / "cluster.yaml", CLUSTER / "jobs.yaml", policy=Least())
    assert division.policy == "least"
    assert division.valued_by == "progress"
    assert all(share.decision in ("launch", "adjust", "keep") for share in division.shares)
    with pytest.raises(InputError, match=r"policy least defines its own values.*default, slope, hull"):
        sw.allocate(CLUSTER / "cluster.yaml", CLUSTER / "jobs.yaml", policy=Least(), values="own")


@pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_trace_is_replayed_under_names_and_objects(parallel: bool) -> None:
    if parallel:
        pytest.importorskip("ray")
        pytest.importorskip("torch")
    own = Least()
    told = sw.simulate(CLUSTER / "trace.csv", policies=["fifo", own], jobs=40, parallel=parallel)
    assert [row.policy for row in told.rows] == ["fifo", "least"]
    assert told.rows[1].figures["unfinished"].value == 0
    assert own.asked == 0, "each run has a copy"


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Least, "is not a policy"),
        (get_allocator("fifo"), "Two policies are named 'fifo'"),
        (Wrong(1), "wrong exceeds the capacity or chooses a column that is not offered"),
        (Wrong(99), "wrong failed: IndexError: .*AllocatorContract"),
        (Wrong(threading.Lock()), "cannot be copied"),
    ],
)
def test_policies_that_cannot_be(policy: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        sw.simulate(CLUSTER / "trace.csv", policies=["fifo", policy], jobs=40)


def test_a_recommendation_rests_on_the_model_given(example: Path, store: str) -> None:
    own = UslModel()
    answer = sw.recommend(example, store=store, model=own)
    assert answer.status == "ok"
    assert answer.evidence.model == "usl"
    assert set(answer.evidence.parameters) == {"parallel", "serial", "coherence"}
    assert answer == sw.recommend(example, store=store, model="usl")
    assert not hasattr(own, "fit_"), "a copy is fitted"
    usual = sw.recommend(example, store=store)
    assert usual.evidence.model == "default"
    assert usual == sw.recommend(example, store=store, model="default")
    assert answer.predicted.throughput != usual.predicted.throughput


def test_caps_hold_whatever_a_model_tells(example: Path, store: str) -> None:
    job = sw.load_job(example).with_objective("time", None)
    worker = job.bounds.worker.model_copy(update={"replicas": (1, 64)})
    job = job.model_copy(update={"bounds": job.bounds.model_copy(update={"worker": worker})})
    with TrialStore(store, create=False) as opened:
        trials = opened.trials()
    most = 2 * max(trial.workers for trial in trials)
    near = sw.recommend(job, trials=trials, model=Keen())
    far = sw.recommend(job, trials=trials, model=Keen(), extrapolate=True)
    assert near.target.replicas("worker") == most < far.target.replicas("worker") == 64
    assert any(reason.startswith("The measured range cap ruled out") for reason in near.reasons)
    assert (near.evidence.extrapolated, far.evidence.extrapolated) == (False, True)
    rate = near.predicted.throughput
    assert 0 < rate.lower < rate.value < rate.upper


def test_a_model_that_cannot_take_the_trials_says_so(example: Path, store: str) -> None:
    answer = sw.recommend(example, store=store, model="phases")
    assert answer.status == "not_enough_data"
    assert "have measured phases" in answer.reasons[0]
    with TrialStore(store, create=False) as opened:
        few = opened.trials()[:2]
    assert sw.recommend(example, trials=few, model="gp").status == "not_enough_data"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Odd(), "odd returned samples/s that are 0, negative or not finite"),
        (Odd(-1.0), "odd returned samples/s that are 0, negative or not finite"),
        (Odd("x"), "odd failed: .*ModelContract"),  # type: ignore[arg-type]
        (UpsideDown(), "upside-down returned intervals that do not contain"),
        (UslModel, "is not a throughput model"),
        ("uls", "did you mean 'usl'"),
    ],
)
def test_models_that_cannot_be(model: Any, told: str, example: Path, store: str) -> None:
    with pytest.raises(InputError, match=told):
        sw.recommend(example, store=store, model=model)


def test_a_prior_is_for_the_default_model(example: Path, store: str) -> None:
    with pytest.raises(InputError, match="prior works with the default model only"):
        sw.recommend(example, store=store, model=get_model("usl"), prior="shipped")


def test_a_report_shows_the_curves_of_the_model_given(example: Path, store: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (page,), _ = sw.report(example, store=store, model="usl", out=tmp_path / "report.html")
    assert "model usl" in page.read_text()
