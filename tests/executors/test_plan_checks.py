"""The checks of plans that executors share."""

from __future__ import annotations

import pytest

from sizewright.errors import InputError, UnsupportedError
from sizewright.executors import get_executor
from sizewright.executors.plan_checks import (
    check_adjusts,
    check_capable,
    check_cool_down,
    check_launches,
    check_same_sizes,
)
from sizewright.spec import Allocation, Handle, Job, Plan

SIZES = Allocation.of(1, 1, 1.0, 1.0, 256)
LAUNCH = Plan(id="p1", kind="launch", job=Job(), target=SIZES, reason="")
ADJUST = LAUNCH.model_copy(update={"kind": "adjust"})
HANDLE = Handle(executor="slurm", id="7", job=Job().name)


def test_only_a_launch_plan_launches() -> None:
    check_launches(LAUNCH)
    with pytest.raises(InputError, match=r"^Plan p1 is of kind 'adjust' and cannot launch a job\."):
        check_launches(ADJUST)


def test_a_plan_adjusts_the_job_that_it_is_for() -> None:
    check_adjusts(ADJUST, HANDLE)
    for plan, handle in ((LAUNCH, HANDLE), (ADJUST, HANDLE.model_copy(update={"job": "other"}))):
        with pytest.raises(InputError, match=rf"^Plan p1 is of kind '{plan.kind}' for .*, but 7 is running\."):
            check_adjusts(plan, handle)


def test_an_executor_that_cannot_migrate_refuses_a_plan_that_does() -> None:
    slurm = get_executor("slurm")
    check_capable(slurm, ADJUST)
    with pytest.raises(UnsupportedError, match="slurm executor cannot migrate jobs"):
        check_capable(slurm, ADJUST.model_copy(update={"migrate": ("ps-0",), "rebalance": True}))
    with pytest.raises(UnsupportedError, match="slurm executor cannot rebalance jobs"):
        check_capable(slurm, ADJUST.model_copy(update={"rebalance": True}))


def test_a_cool_down_ends_at_its_time() -> None:
    check_cool_down(ADJUST, ends_at_s=10.0, now_s=10.0)
    with pytest.raises(InputError, match=r"is in the cool-down of its last plan for another 3 s\."):
        check_cool_down(ADJUST, ends_at_s=10.0, now_s=7.0)


def test_a_plan_that_was_applied_keeps_its_sizes() -> None:
    check_same_sizes(ADJUST, True)
    with pytest.raises(InputError, match=r"^Plan p1 was applied with other sizes\."):
        check_same_sizes(ADJUST, False)
