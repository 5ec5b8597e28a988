from __future__ import annotations

import pytest

from sizewright.recommender.missing import Missing
from sizewright.spec import Allocation, Bounds, ChangeCost, Job, RoleBounds

JOB = Job(bounds=Bounds(worker=RoleBounds(replicas=(2, 8))))
AT = Allocation.of(4, 2, 0.5, 0.3, 512)
COST = ChangeCost(seconds=30.0, lower=10.0, upper=60.0)


def test_the_others_are_waited_for_as_long_as_a_change_takes() -> None:
    missing = Missing(JOB)
    for seconds in (10.0, 30.0, 19.0):
        assert missing.look(seconds, AT, {"worker": 3, "ps": 2}) == "3 of 4 replicas of the worker are there"
        assert missing.act(AT, COST) is None
    missing.look(2.0, AT, {"worker": 3, "ps": 2})
    action = missing.act(AT, COST)
    assert action is not None
    assert action.target == Allocation.of(3, 2, 0.5, 0.3, 512)


def test_one_that_comes_ends_the_wait() -> None:
    missing = Missing(JOB)
    missing.look(50.0, AT, {"worker": 3, "ps": 2})
    assert missing.look(50.0, AT, {"worker": 4, "ps": 2}) == ""
    missing.look(50.0, AT, {"worker": 3, "ps": 2})
    assert missing.act(AT, COST) is None
    missing.look(50.0, AT, {"worker": 3, "ps": 2})
    assert missing.act(AT, COST) is not None
    missing.forget()
    assert missing.act(AT, COST) is None


@pytest.mark.parametrize(("workers", "ps"), [(4, 1), (3, 1), (1, 2), (5, 2)])
def test_without_a_ps_or_below_its_bounds_it_only_waits(workers: int, ps: int) -> None:
    missing = Missing(JOB)
    assert missing.look(1000.0, AT, {"worker": workers, "ps": ps})
    assert missing.act(AT, COST) is None


def test_the_last_groups_are_done_without() -> None:
    first, second = Allocation.of(2, 1, 0.5, 0.3, 512), Allocation.of(2, 1, 1.0, 0.3, 512)
    mixed = AT.model_copy(update={"worker": (*first.worker, *second.worker)})
    missing = Missing(JOB)
    missing.look(1000.0, mixed, {"worker": 3, "ps": 2})
    action = missing.act(mixed, COST)
    assert action is not None
    assert action.target is not None
    assert [(group.replicas, group.cpu) for group in action.target.worker] == [(2, 0.5), (1, 1.0)]
