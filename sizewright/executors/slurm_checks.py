"""Whether a plan is for a Slurm job as it is now."""

from __future__ import annotations

from sizewright.errors import InputError
from sizewright.executors.slurm_jobs import SlurmRecord
from sizewright.executors.slurm_sizes import rounded_allocation
from sizewright.spec import Plan


def carried_out(record: SlurmRecord, plan: Plan) -> bool:
    """Whether the job runs as this very plan has it. Raises InputError where a plan of this id brought other sizes."""
    if record.submitting or record.last.plan.id != plan.id:
        return False
    if rounded_allocation(record.last.plan.target) != rounded_allocation(plan.target):
        raise InputError(f"Plan {plan.id} was applied with other sizes.", "Give the changed plan an id of its own.")
    return True


def check_current(record: SlurmRecord, plan: Plan) -> None:
    """Raises InputError for a plan that was made for other sizes than the job has."""
    runs_at = record.last.plan.target
    if plan.current is not None and rounded_allocation(plan.current) != rounded_allocation(runs_at):
        raise InputError(
            f"Plan {plan.id} was made for {plan.current.describe()}, and the job runs at {runs_at.describe()}.",
            "Make a new plan from what runs now.",
        )


def check_cool_down(record: SlurmRecord, plan: Plan, now_s: float) -> None:
    """Raises InputError during the cool-down of the plan applied last."""
    left_s = record.last.at_s + record.last.plan.cooldown_s - now_s
    if left_s > 0:
        raise InputError(
            f"Job {plan.job.name} is in the cool-down of its last plan for another {left_s:.0f} s.",
            f"Apply plan {plan.id} after that.",
        )
