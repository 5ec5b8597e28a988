from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sizewright.models._base import BaseThroughputModel, Explanation
from sizewright.models.memory import MemoryModel
from sizewright.models.table import as_columns
from sizewright.recommender.auto_scale import Scaling, Standing, weigh
from sizewright.recommender.scoring import Scored, Scorer
from sizewright.spec import Bounds, Job, Training
from sizewright.spec.bounds import RoleBounds

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 16), cpu=(1.0, 1.0)), ps=RoleBounds(replicas=(1, 4), cpu=(1.0, 1.0)))


class Known(BaseThroughputModel):
    """Each PS serves four workers; curves stray from that by so much, each row by its own."""

    name = "known"

    def __init__(self, sd: float = 0.0) -> None:
        self.sd = sd

    def fit(self, X: Any, y: Any = None) -> Known:
        return self

    def predict(self, X: Any) -> np.ndarray:
        told = as_columns(X, ("workers", "ps"))
        return 100.0 * (told["workers"] ** -6 + (4.0 * told["ps"]) ** -6) ** (-1 / 6)

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[np.ndarray, np.ndarray]:
        middle = self.predict(X)
        return middle * np.exp(-1.6 * self.sd), middle * np.exp(1.6 * self.sd)

    def paths(self, X: Any, rng: np.random.Generator) -> np.ndarray:
        middle = np.log(self.predict(X))
        return middle + self.sd * rng.standard_normal((200, len(middle)))

    def explain(self) -> Explanation:
        raise NotImplementedError


def case(objective: str = "time", sd: float = 0.0) -> tuple[Job, Known, Scored]:
    job = Job(bounds=BOUNDS, training=Training(samples=10**6), objective=objective)  # type: ignore[arg-type]
    model = Known(sd)
    scorer = Scorer(job, model, MemoryModel(job), 1e6)
    return job, model, scorer.score(scorer.grid((), {}))


def row(scored: Scored, workers: int, ps: int) -> int:
    return int(np.flatnonzero((scored.grid.workers == workers) & (scored.grid.ps == ps))[0])


def decide(
    workers: int, ps: int, *, objective: str = "time", left: int = 10**6, change_s: float = 0.0, sd: float = 0.0,
    changes: int = 0, **scaling: Any,
) -> tuple[str, tuple[float, float], Any]:  # fmt: skip
    job, model, scored = case(objective, sd)
    at = row(scored, workers, ps)
    rate = float(scored.throughput[at])
    standing = Standing(at, {}, rate, 0.0, left, float(scored.price_per_hour[at]), changes)
    allowed = np.ones(len(scored.grid), bool)
    found = weigh(job, model, scored, allowed, standing, change_s, Scaling(**scaling), np.random.default_rng(0))
    return found.kind, (float(scored.grid.workers[found.row]), float(scored.grid.ps[found.row])), found


def test_what_is_known_to_be_best_is_gone_to_in_legal_steps() -> None:
    kind, there, found = decide(2, 1)
    assert (kind, there) == ("adjust", (10.0, 4.0))
    assert found.gain == pytest.approx(0.8, abs=0.02)
    assert found.chance == 1.0
    assert decide(10, 4)[1] == (16.0, 4.0)


def test_at_the_best_it_stays() -> None:
    kind, there, found = decide(16, 4)
    assert (kind, there) == ("keep", (16.0, 4.0))
    assert "saves" in found.reason


def test_too_much_is_given_back_where_cost_counts() -> None:
    kind, there, _ = decide(16, 1, objective="cost", most_workers_more=16)
    assert kind == "adjust"
    assert there[0] < 16


def test_a_change_that_costs_more_than_it_brings_is_left_alone() -> None:
    rate = 200.0
    assert decide(2, 1, left=int(1000 * rate), change_s=90.0)[0] == "adjust"
    kind, there, found = decide(2, 1, left=int(100 * rate), change_s=90.0)
    assert (kind, there) == ("keep", (2.0, 1.0))
    assert "0.0% of what is left" in found.reason


def test_the_gain_is_that_of_the_time_that_is_left_with_the_change_in_it() -> None:
    """80 s at 10 times the rate after 90 s, against 800 s."""
    _, _, found = decide(2, 1, left=200 * 800, change_s=90.0, most_workers_more=30)
    rate = float(Known().predict({"workers": [16.0], "ps": [4.0]})[0])
    assert found.gain == pytest.approx(1 - (90 + 200 * 800 / rate) / 800, abs=0.01)


def test_what_is_not_known_is_tried_only_where_that_is_worth_more_than_it_costs() -> None:
    assert decide(16, 4, sd=0.02)[0] == "keep"
    assert decide(15, 4, sd=0.3, change_s=0.1)[0] == "adjust"  # something may well be much faster
    assert decide(15, 4, sd=0.3, change_s=0.1, left=200 * 60)[0] == "keep"  # and is not worth it any more


def test_what_is_likely_to_be_worse_is_not_tried_for_what_it_may_teach() -> None:
    assert decide(15, 4, sd=0.3, change_s=0.1, most_workers_more=1)[0] == "adjust"
    found = decide(16, 4, sd=0.3, change_s=0.1, most_risked=-0.5)[2]
    assert (found.kind, found.gain) == ("keep", pytest.approx(0.0))


def test_each_further_change_must_bring_more() -> None:
    gain = decide(15, 4, sd=0.3, change_s=0.1)[2].gain
    for changes in range(40):
        wanted = 0.05 * (1 + 0.5 * changes)
        assert decide(15, 4, sd=0.3, change_s=0.1, changes=changes)[0] == ("adjust" if gain >= wanted else "keep")


def test_what_there_was_to_choose_from_is_told() -> None:
    front = decide(8, 2)[2].front
    assert 1 < len(front) <= 6
    faster, dearer = (list(column) for column in list(zip(*front, strict=True))[1:])
    assert faster == sorted(faster)
    assert dearer == sorted(dearer)
