"""Decide the sizes of a suspended job from its recommendation."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from sizewright.errors import InputError
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Gpu, Group, Job, Plan, Recommendation
from sizewright.spec.bounds import RoleBounds

Policy = Literal["leave", "upper", "trials"]
"""What to do without enough data: leave the sizes as they are, use the upper ends of the bounds, or run trial jobs.

Where trial jobs are not enough, the sizes are left."""
Outcome = Literal["sized", "left", "upper"]
ASKED_BY = "operator"


class Decision(NamedTuple):
    """What becomes of a job: its outcome, a sentence, and the plan of its sizes unless they are left."""

    outcome: Outcome
    sentence: str
    plan: Plan | None = None

    @property
    def interval(self) -> str:
        """The throughput that is expected, with its 90 % interval; empty where it is unknown."""
        expected = self.plan.expected if self.plan else None
        if expected is None:
            return ""
        return f"{expected.value:,.0f} ({expected.lower:,.0f} to {expected.upper:,.0f}) samples/s"


def decide(job: Job, answer: Recommendation, policy: Policy) -> Decision:
    """Return the sizes that a recommendation asks for, or what the policy says where it has none."""
    reason = " ".join(answer.reasons[:2])
    if answer.target is not None:
        plan = _plan(job, answer.target, reason).expecting(answer)
        decision = Decision("sized", "", plan)
        expected = f", {decision.interval} expected" if decision.interval else ""
        return decision._replace(sentence=f"Sized to {answer.target.describe()}{expected}. {reason}")
    remedy = f" {answer.remedies[0].text}" if answer.remedies else ""
    if policy != "upper":
        return Decision("left", f"Its sizes were left as they are. {reason}{remedy}")
    target = _upper_bound(job)
    plan = _plan(job, target, f"The upper bound, for want of data. {reason}")
    return Decision("upper", f"Sized to the upper bound, {target.describe()}. {reason}{remedy}", plan)


def _plan(job: Job, target: Allocation, reason: str) -> Plan:
    return launch_plan(job, target, reason).model_copy(update={"asked_by": ASKED_BY})


def _upper_bound(job: Job) -> Allocation:
    """Return the largest allocation within a job's bounds; amounts of memory without bounds stay as they are.

    Raises InputError if the job file does not state the bounds of replicas and cores.
    """
    roles: tuple[Literal["worker", "ps"], ...] = ("worker", "ps") if job.has_ps else ("worker",)
    groups: dict[str, Any] = {}
    for role in roles:
        bounds: RoleBounds = getattr(job.bounds, role)
        if missing := {"replicas", "cpu"} - bounds.model_fields_set:
            raise InputError(
                f"There is not enough data on {job.name}, and its description has no bounds.{role}.{min(missing)}.",
                "Write the bounds of replicas and cpu into it, or profile the job.",
            )
        memory_bytes = bounds.memory_bytes[1] if "memory_bytes" in bounds.model_fields_set else 0
        replicas = job.worker_counts[-1] if role == "worker" else bounds.replicas[1]
        gpu = Gpu(kind=bounds.gpu.kind, count=bounds.gpu.count[1]) if bounds.gpu else None
        groups[role] = (Group(replicas=replicas, cpu=bounds.cpu[1], memory_bytes=memory_bytes, gpu=gpu),)
    allocation = Allocation.model_validate({**groups, "batch_size": job.training.batch_size})
    return job.with_sides(job.with_shared_batch(allocation))
