from __future__ import annotations

import pytest

from sizewright.recommender.control.missing import MissingReplicas
from sizewright.spec import Allocation, Bounds, ChangeCost, Job, RoleBounds, Training
from sizewright.spec.wording import sentence

JOB = Job(bounds=Bounds(worker=RoleBounds(replicas=(2, 8))))
AT = Allocation.of(4, 2, 0.5, 0.3, 512)
COST = ChangeCost(seconds=30.0, lower=10.0, upper=60.0)


def test_missing_worker_is_waited_for_as_long_as_a_change_takes() -> None:
    missing = MissingReplicas(JOB)
    for seconds in (10.0, 30.0, 19.0):
        reason = missing.update(seconds, AT, {"worker": 3, "ps": 2})
        assert reason
        assert reason.values == {"role": "worker", "running": 3, "requested": 4}
        assert sentence(reason) == "Skipped: 3 of 4 worker replicas are running."
        assert missing.act(AT, COST) is None
    missing.update(2.0, AT, {"worker": 3, "ps": 2})
    action = missing.act(AT, COST)
    assert action is not None
    assert action.target == Allocation.of(3, 2, 0.5, 0.3, 512)


def test_replica_that_starts_ends_the_wait() -> None:
    missing = MissingReplicas(JOB)
    missing.update(50.0, AT, {"worker": 3, "ps": 2})
    assert missing.update(50.0, AT, {"worker": 4, "ps": 2}) is None
    missing.update(50.0, AT, {"worker": 3, "ps": 2})
    assert missing.act(AT, COST) is None
    missing.update(50.0, AT, {"worker": 3, "ps": 2})
    assert missing.act(AT, COST) is not None
    missing.forget()
    assert missing.act(AT, COST) is None


@pytest.mark.parametrize(("workers", "ps"), [(4, 1), (3, 1), (1, 2), (5, 2)])
def test_missing_ps_or_too_few_workers_are_waited_for(workers: int, ps: int) -> None:
    missing = MissingReplicas(JOB)
    assert missing.update(1000.0, AT, {"worker": workers, "ps": ps})
    assert missing.act(AT, COST) is None


def test_last_groups_are_dropped() -> None:
    first, second = Allocation.of(2, 1, 0.5, 0.3, 512), Allocation.of(2, 1, 1.0, 0.3, 512)
    mixed = AT.model_copy(update={"worker": (*first.worker, *second.worker)})
    missing = MissingReplicas(JOB)
    missing.update(1000.0, mixed, {"worker": 3, "ps": 2})
    action = missing.act(mixed, COST)
    assert action is not None
    assert action.target is not None
    assert [(group.replicas, group.cpu) for group in action.target.worker] == [(2, 0.5), (1, 1.0)]


def test_workers_that_are_left_share_the_global_batch() -> None:
    job = JOB.model_copy(update={"training": Training(global_batch_size=2048)})
    missing = MissingReplicas(job)
    missing.update(1000.0, AT, {"worker": 3, "ps": 2})
    action = missing.act(AT, COST)
    assert action is not None
    assert action.target == Allocation.of(2, 2, 0.5, 0.3, 1024), "three workers cannot share 2,048 samples evenly"
