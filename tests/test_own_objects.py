"""Models and allocators of the user, passed as objects."""

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


class Smallest(Allocator):
    """Give each job the smallest candidate, in order of arrival, and count the calls."""

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


class Wrong(Smallest):
    """Return an invalid choice: something twice, or nothing."""

    name = "wrong"

    def __init__(self, choice: Any) -> None:
        self.choice = choice

    def choose(self, problem: Problem, until: float) -> Solution:
        return chosen(problem, self.name, np.full(len(problem.jobs), self.choice))


class Odd(UslModel):
    """Predict invalid values."""

    name = "odd"

    def __init__(self, rate: float = float("nan")) -> None:
        self.rate = rate

    def predict(self, X: Any) -> np.ndarray:
        return super().predict(X) * self.rate


class Keen(UslModel):
    """Predict that many workers are fast."""

    name = "keen"

    def predict(self, X: Any) -> np.ndarray:
        return super().predict(X) * as_columns(X)["workers"] ** 2

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[np.ndarray, np.ndarray]:
        return self.predict(X) / 1.5, self.predict(X) * 1.5


class UpsideDown(Keen):
    """Return an upper bound below the lower bound."""

    name = "upside-down"

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[np.ndarray, np.ndarray]:
        lower, upper = super().predict_interval(X, coverage, kind)
        return upper, lower


def test_cluster_is_allocated_by_an_object(tmp_path: Path) -> None:
    division = sw.allocate(CLUSTER / "cluster.yaml", CLUSTER / "jobs.yaml", policy=Smallest())
    assert division.policy == "least"
    assert division.valued_by == "progress"
    assert all(share.decision in ("launch", "adjust", "keep") for share in division.shares)
    with pytest.raises(InputError, match=r"policy least defines its own values.*default, slope, hull"):
        sw.allocate(CLUSTER / "cluster.yaml", CLUSTER / "jobs.yaml", policy=Smallest(), values="own")


@pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_trace_is_replayed_under_names_and_objects(parallel: bool) -> None:
    if parallel:
        pytest.importorskip("ray")
        pytest.importorskip("torch")
    policy = Smallest()
    answer = sw.simulate(CLUSTER / "trace.csv", policies=["fifo", policy], jobs=40, parallel=parallel)
    assert [row.policy for row in answer.rows] == ["fifo", "least"]
    assert answer.rows[1].figures["unfinished"].value == 0
    assert policy.asked == 0, "each run has a copy"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Smallest, "is not a policy"),
        (get_allocator("fifo"), "Two policies are named 'fifo'"),
        (Wrong(1), "wrong exceeds the capacity or chooses a column that is not offered"),
        (Wrong(99), "wrong failed: IndexError: .*AllocatorContract"),
        (Wrong(threading.Lock()), "cannot be copied"),
    ],
)
def test_invalid_policies_are_refused(policy: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sw.simulate(CLUSTER / "trace.csv", policies=["fifo", policy], jobs=40)


def test_recommendation_uses_the_passed_model(example: Path, store: str) -> None:
    model = UslModel()
    answer = sw.recommend(example, store=store, model=model)
    assert answer.status == "ok"
    assert answer.evidence.model == "usl"
    assert set(answer.evidence.parameters) == {"parallel", "serial", "coherence"}
    assert answer == sw.recommend(example, store=store, model="usl")
    assert not hasattr(model, "fit_"), "a copy is fitted"
    default = sw.recommend(example, store=store)
    assert default.evidence.model == "default"
    assert default == sw.recommend(example, store=store, model="default")
    assert answer.predicted.throughput != default.predicted.throughput


def test_caps_hold_for_any_prediction_of_a_model(example: Path, store: str) -> None:
    job = sw.load_job(example).with_objective("time", None)
    worker = job.bounds.worker.model_copy(update={"replicas": (1, 64)})
    job = job.model_copy(update={"bounds": job.bounds.model_copy(update={"worker": worker})})
    with TrialStore(store, create=False) as opened:
        trials = opened.trials()
    limit = 2 * max(trial.workers for trial in trials)
    capped = sw.recommend(job, trials=trials, model=Keen())
    uncapped = sw.recommend(job, trials=trials, model=Keen(), extrapolate=True)
    assert capped.target.replicas("worker") == limit < uncapped.target.replicas("worker") == 64
    assert any(reason.startswith("The measured range cap ruled out") for reason in capped.reasons)
    assert (capped.evidence.extrapolated, uncapped.evidence.extrapolated) == (False, True)
    rate = capped.predicted.throughput
    assert 0 < rate.lower < rate.value < rate.upper


def test_a_model_that_cannot_take_the_trials_says_so(example: Path, store: str) -> None:
    answer = sw.recommend(example, store=store, model="phases")
    assert answer.status == "not_enough_data"
    assert "have measured phases" in answer.reasons[0]
    with TrialStore(store, create=False) as opened:
        trials = opened.trials()[:2]
    assert sw.recommend(example, trials=trials, model="gp").status == "not_enough_data"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Odd(), "odd returned samples/s that are 0, negative or not finite"),
        (Odd(-1.0), "odd returned samples/s that are 0, negative or not finite"),
        (Odd("x"), "odd failed: .*ModelContract"),  # type: ignore[arg-type]
        (UpsideDown(), "upside-down returned intervals that do not contain"),
        (UslModel, "is not a throughput model"),
        ("uls", "did you mean 'usl'"),
    ],
)
def test_invalid_models_are_refused(model: Any, message: str, example: Path, store: str) -> None:
    with pytest.raises(InputError, match=message):
        sw.recommend(example, store=store, model=model)


def test_a_prior_is_for_the_default_model(example: Path, store: str) -> None:
    with pytest.raises(InputError, match="prior works with the default model only"):
        sw.recommend(example, store=store, model=get_model("usl"), prior="shipped")


def test_report_shows_the_curves_of_the_passed_model(example: Path, store: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (page,), _ = sw.report(example, store=store, model="usl", out=tmp_path / "report.html")
    assert "model usl" in page.read_text()
