"""The checks of plans that executors share."""

from __future__ import annotations

import pytest

from sizewright.errors import InputError, UnsupportedError
from sizewright.executors import get_executor
from sizewright.executors.plan_checks import (
    check_adjusts,
    check_capable,
    check_cool_down,
    check_current,
    check_launches,
    check_no_job,
    check_not_ended,
    check_same,
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
    check_same(ADJUST, SIZES, SIZES)
    with pytest.raises(InputError, match=r"^Plan p1 was applied with other sizes\."):
        check_same(ADJUST, SIZES, None)
    with pytest.raises(InputError, match=r"^Plan p1 was applied with other migrations\."):
        check_same(ADJUST, (), ("ps-0",), "migrations")


def test_a_plan_is_made_from_what_runs_now() -> None:
    check_current(ADJUST, False, "nothing")  # the plan does not say what it was made for
    plan = ADJUST.model_copy(update={"current": SIZES})
    check_current(plan, True, SIZES.describe())
    with pytest.raises(InputError, match=rf"^Plan p1 was made for {SIZES.describe()}, but .* runs with 2 PS\."):
        check_current(plan, False, "2 PS")


def test_a_job_has_a_name_of_its_own_and_changes_only_while_it_runs() -> None:
    check_no_job("job 7", False)
    check_not_ended("Job 7", False)
    with pytest.raises(InputError, match=r"^There is a job 7 already\."):
        check_no_job("job 7", True)
    with pytest.raises(InputError, match=r"^Job 7 has ended: there is nothing to change\."):
        check_not_ended("Job 7", True)
