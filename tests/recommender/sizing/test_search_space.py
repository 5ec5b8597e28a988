"""More freedom never gives a worse answer, and what was measured is among what is weighed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.formatting import GIB
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Bounds, Cluster, HostKind, Job, Quota, Recommendation, RoleBounds
from tests.helpers.formula_trials import formula_trials

JOB = Job.load(Path(__file__).parents[3] / "examples" / "criteo.yaml")
TRIALS = formula_trials(JOB)
ROOMY = HostKind(kind="h", count=100, cpu=64, memory=256 * GIB)


def objective_of(answer: Recommendation, objective: str) -> float:
    assert answer.predicted is not None
    time_s, cost = answer.predicted.completion_time_s.value, answer.predicted.cost.value
    return {"time": time_s, "balanced": time_s * cost}.get(objective, cost)


def inside(outer: tuple[float, float], *, integers: bool) -> st.SearchStrategy[tuple[float, float]]:
    """Return a strategy of bounds within `outer` and within the range that the trials support."""
    maximum = min(outer[1], 8 if integers else 3)
    ends = (
        st.integers(int(outer[0]), int(maximum))
        if integers
        else st.floats(outer[0], maximum).map(lambda x: round(x, 2))
    )
    return st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)))


@st.composite
def nested(draw: st.DrawFn) -> tuple[Bounds, Bounds]:
    """Narrow bounds, and wider ones that contain them."""
    roles: list[dict[str, RoleBounds]] = [{}, {}]
    for role in ("worker", "ps"):
        counts = (1, draw(st.sampled_from([2, 4, 8, 64, 400])))
        cores = (draw(st.sampled_from([0.1, 0.2])), draw(st.sampled_from([1.0, 2.0, 16.0, 64.0])))
        pairs = (draw(inside(counts, integers=True)), draw(inside(cores, integers=False))), (counts, cores)
        for bounds_by_role, (replicas, cpu) in zip(roles, pairs, strict=True):
            bounds_by_role[role] = RoleBounds(replicas=replicas, cpu=cpu, memory=(0, 64 * GIB))
    narrow, wide = (Bounds(**bounds_by_role) for bounds_by_role in roles)
    return narrow, wide


@given(
    bounds=nested(),
    objective=st.sampled_from(["time", "cost", "balanced", "deadline"]),
    prices=st.fixed_dictionaries({"core_hour": st.floats(0, 5), "gib_hour": st.floats(0, 3)}),
    quota=st.none() | st.floats(1, 12),
)
@settings(max_examples=25, deadline=None)
def test_wider_bounds_never_give_a_worse_answer(
    bounds: tuple[Bounds, Bounds], objective: str, prices: dict[str, float], quota: float | None
) -> None:
    cluster = Cluster(hosts=(ROOMY,), quota=Quota(cpu=quota)) if quota else None
    deadline = {"objective": objective} | ({"deadline": 3600} if objective == "deadline" else {})
    narrow, wide = (
        recommend(
            SizingRequest(
                Job.model_validate(JOB.model_dump() | {"bounds": b, "prices": prices} | deadline),
                TRIALS,
                cluster=cluster,
            )
        )
        for b in bounds
    )
    if narrow.status != "ok":
        return
    assert wide.status == "ok"
    # With a quota the best lies on a slant that the steps of the sizes meet within a per cent.
    assert objective_of(wide, objective) <= objective_of(narrow, objective) * (1.01 if quota else 1.001)


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_wider_core_bounds_do_not_reduce_throughput(role: str) -> None:
    throughputs = []
    for max_cores in (2, 4, 16, 32, 64, 128):
        bounds: dict[str, Any] = JOB.bounds.model_dump()
        bounds[role]["cpu"] = (bounds[role]["cpu"][0], max_cores)
        job = Job.model_validate(JOB.model_dump() | {"bounds": bounds, "objective": "time"})
        answer = recommend(SizingRequest(job, TRIALS))
        assert answer.predicted is not None
        throughputs.append(answer.predicted.throughput.value)
    assert all(wider >= 0.999 * narrower for narrower, wider in itertools.pairwise(throughputs))


def test_measured_allocation_is_a_candidate_even_with_unusual_sizes() -> None:
    odd = [t.model_copy(update={"worker_cpu": 0.731 if t.worker_cpu == 0.5 else t.worker_cpu}) for t in TRIALS]
    best = [t.model_copy(update={"throughput": (t.throughput or 0) * 6}) if t.worker_cpu == 0.731 else t for t in odd]
    answer = recommend(SizingRequest(Job.model_validate(JOB.model_dump() | {"objective": "balanced"}), best))
    assert answer.target is not None
    assert answer.target.worker[0].cpu == pytest.approx(0.731, abs=0.08)
