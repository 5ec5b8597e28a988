from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sizewright.models._base import BaseThroughputModel, Explanation
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.models.table import as_columns
from sizewright.recommender.control.auto_scale import CurrentState, Scaling, choose_change
from sizewright.recommender.sizing.scoring import Scored, Scorer
from sizewright.spec import Bounds, Job, Training
from sizewright.spec.bounds import RoleBounds
from sizewright.spec.wording import sentence

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 16), cpu=(1.0, 1.0)), ps=RoleBounds(replicas=(1, 4), cpu=(1.0, 1.0)))


class FourWorkersPerPs(BaseThroughputModel):
    """Each PS serves four workers; sampled curves deviate by `sd` (log), independently for each row."""

    name = "four_workers_per_ps"

    def __init__(self, sd: float = 0.0) -> None:
        self.sd = sd

    def fit(self, X: Any, y: Any = None) -> FourWorkersPerPs:
        return self

    def predict(self, X: Any) -> np.ndarray:
        columns = as_columns(X, ("workers", "ps"))
        return 100.0 * (columns["workers"] ** -6 + (4.0 * columns["ps"]) ** -6) ** (-1 / 6)

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[np.ndarray, np.ndarray]:
        middle = self.predict(X)
        return middle * np.exp(-1.6 * self.sd), middle * np.exp(1.6 * self.sd)

    def curves(self, X: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        middle = self.predict(X)
        return middle * np.exp(self.sd * rng.standard_normal((200, len(middle))))

    def explain(self) -> Explanation:
        raise NotImplementedError


def case(objective: str = "time", sd: float = 0.0) -> tuple[Job, FourWorkersPerPs, Scored]:
    job = Job(bounds=BOUNDS, training=Training(samples=10**6), objective=objective)  # type: ignore[arg-type]
    model = FourWorkersPerPs(sd)
    scorer = Scorer(job, model, MemoryModel(job), 1e6)
    return job, model, scorer.score(scorer.grid((), {}))


def row(scored: Scored, workers: int, ps: int) -> int:
    return int(np.flatnonzero((scored.grid.workers == workers) & (scored.grid.ps == ps))[0])


def decide(
    workers: int, ps: int, *, objective: str = "time", samples_left: int = 10**6, change_s: float = 0.0,
    sd: float = 0.0, changes: int = 0, **scaling: Any,
) -> tuple[str, tuple[float, float], Any]:  # fmt: skip
    job, model, scored = case(objective, sd)
    at = row(scored, workers, ps)
    rate = float(scored.throughput[at])
    state = CurrentState(at, {}, rate, 0.0, samples_left, float(scored.price_per_hour[at]), changes)
    allowed = np.ones(len(scored.grid), bool)
    choice = choose_change(job, model, scored, allowed, state, change_s, Scaling(**scaling), np.random.default_rng(0))
    return choice.kind, (float(scored.grid.workers[choice.row]), float(scored.grid.ps[choice.row])), choice


def test_best_allocation_is_reached_in_legal_steps() -> None:
    kind, target, choice = decide(2, 1)
    assert (kind, target) == ("adjust", (10.0, 4.0))
    assert choice.gain == pytest.approx(0.8, abs=0.02)
    assert choice.chance == 1.0
    assert decide(10, 4)[1] == (16.0, 4.0)


def test_best_allocation_is_kept() -> None:
    kind, target, choice = decide(16, 4)
    assert (kind, target) == ("keep", (16.0, 4.0))
    assert "saves" in sentence(choice.reason)


def test_cost_objective_releases_surplus_workers() -> None:
    kind, target, _ = decide(16, 1, objective="cost", max_added_workers=16)
    assert kind == "adjust"
    assert target[0] < 16


def test_change_that_costs_more_than_it_saves_is_not_made() -> None:
    rate = 200.0
    assert decide(2, 1, samples_left=int(1000 * rate), change_s=90.0)[0] == "adjust"
    kind, target, choice = decide(2, 1, samples_left=int(100 * rate), change_s=90.0)
    assert (kind, target) == ("keep", (2.0, 1.0))
    assert "saves 0.0 % of the objective" in sentence(choice.reason)


def test_gain_includes_the_time_of_the_change() -> None:
    """80 s at 10 times the rate after 90 s, against 800 s."""
    _, _, choice = decide(2, 1, samples_left=200 * 800, change_s=90.0, max_added_workers=30)
    rate = float(FourWorkersPerPs().predict({"workers": [16.0], "ps": [4.0]})[0])
    assert choice.gain == pytest.approx(1 - (90 + 200 * 800 / rate) / 800, abs=0.01)


def test_uncertain_allocation_is_tried_only_where_that_pays() -> None:
    assert decide(16, 4, sd=0.02)[0] == "keep"
    assert decide(15, 4, sd=0.3, change_s=0.1)[0] == "adjust"  # something may well be much faster
    assert decide(15, 4, sd=0.3, change_s=0.1, samples_left=200 * 60)[0] == "keep"  # and is not worth it any more


def test_allocation_likely_to_be_worse_is_not_tried() -> None:
    assert decide(15, 4, sd=0.3, change_s=0.1, max_added_workers=1)[0] == "adjust"
    choice = decide(16, 4, sd=0.3, change_s=0.1, max_risk=-0.5)[2]
    assert (choice.kind, choice.gain) == ("keep", pytest.approx(0.0))


def test_each_further_change_must_save_more() -> None:
    gain = decide(15, 4, sd=0.3, change_s=0.1)[2].gain
    for changes in range(40):
        min_gain = 0.05 * (1 + 0.5 * changes)
        assert decide(15, 4, sd=0.3, change_s=0.1, changes=changes)[0] == ("adjust" if gain >= min_gain else "keep")


def test_pareto_front_is_returned() -> None:
    front = decide(8, 2)[2].front
    assert 1 < len(front) <= 6
    throughput_times, price_times = (list(column) for column in list(zip(*front, strict=True))[1:])
    assert throughput_times == sorted(throughput_times)
    assert price_times == sorted(price_times)
