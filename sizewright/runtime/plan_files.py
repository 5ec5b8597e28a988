"""Make plans from a recommended target, from a file, or from sizes that a user chose."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sizewright.datasets.trials.trial import now
from sizewright.errors import InputError, JobError
from sizewright.spec import Allocation, Job, Plan
from sizewright.spec._base import load_yaml, parse
from sizewright.spec.units import parse_bytes, parse_cores, parse_count

NEEDED_SIZES = ("workers", "worker_cpu", "ps", "ps_cpu")


def launch_plan(job: Job, target: Allocation, reason: str = "Chosen by its user.") -> Plan:
    """Return the plan that launches an allocation."""
    plan_id = f"{job.name}-{now():%Y%m%d%H%M%S}-{uuid.uuid4().hex[:4]}"
    return Plan(id=plan_id, kind="launch", job=job, target=target, reason=reason)


def adjust_plan(job: Job, current: Allocation, target: Allocation, reason: str = "Chosen by its user.") -> Plan:
    """Return the plan that changes a running job from one allocation to another."""
    plan = launch_plan(job, target, reason)
    return plan.model_copy(update={"kind": "adjust", "current": current})


def is_plan(path: str | Path) -> bool:
    """Return whether a file holds a plan rather than a job. Raises JobError where it cannot be read."""
    return "target" in load_yaml(path, "plan")


def plan_from_file(path: str | Path, sizes: Mapping[str, Any]) -> Plan:
    """Return the plan of a plan file, or the plan that launches the job of a job file at `sizes`.

    For a job, `sizes` must contain all of NEEDED_SIZES and may contain `worker_memory`, `ps_memory` and `worker_gpu`;
    cores and memory may be written with units. Bounds that allow one number of GPUs stand for it, others need it.

    Raises JobError for a file that is neither, InputError for missing or superfluous sizes.
    """
    if is_plan(path):
        if sizes:
            raise InputError(
                f"{path} is a plan and has an allocation already.",
                f"Leave out {_options(sizes)}, or pass the job file.",
            )
        return Plan.load(path)
    job = Job.load(path)
    needed = [*(NEEDED_SIZES if job.has_ps else NEEDED_SIZES[:2])]
    if (gpu := job.bounds.worker.gpu) and gpu.count[0] < gpu.count[1]:
        needed.append("worker_gpu")
    if extra := [name for name in sizes if "ps" in name.split("_") and not job.has_ps]:
        raise InputError(f"The job in {path} has no parameter servers.", f"Leave out {_options(extra)}.")
    missing = [name for name in needed if name not in sizes]
    if missing:
        raise InputError(
            f"{path} is a job, and these sizes are missing: {_options(missing)}.",
            f"Make a plan first: sizewright recommend {path} --out plan.yaml; or give these sizes.",
        )
    return launch_plan(job, _allocation(job, sizes))


def _allocation(job: Job, sizes: Mapping[str, Any]) -> Allocation:
    sizes = {name: _read(name, value) for name, value in sizes.items()}
    gpu = job.bounds.worker.gpu
    gpus = sizes.get("worker_gpu", gpu.count[0] if gpu else 0)
    groups: dict[str, Any] = {
        role: [{"replicas": sizes[count], "cpu": sizes[f"{role}_cpu"], "memory_bytes": sizes.get(f"{role}_memory", 0)}]
        for role, count in (("worker", "workers"), ("ps", "ps"))
        if count in sizes
    }
    if gpus:
        groups["worker"][0]["gpu"] = gpus
    allocation = parse(Allocation, groups | {"batch_size": job.training.batch_size}, _options(sizes))
    job.check_workers(allocation.replicas("worker"))
    return job.with_gpu_kind(job.with_sides(job.with_shared_batch(allocation)))


def _read(name: str, value: Any) -> Any:
    """Parse the value of an option. Raises JobError that names the option."""
    try:
        if name.endswith("_memory"):
            return parse_bytes(value)
        if name.endswith("_cpu"):
            return parse_cores(value)
        return parse_count(value)
    except ValueError as error:
        raise JobError(f"{_options([name])}: {error}.", "Correct the option.") from None


def _options(names: Any) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
