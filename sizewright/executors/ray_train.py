"""Plans as scaling configurations of Ray Train."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

from sizewright.errors import InputError, MissingExtraError
from sizewright.spec import Plan

if TYPE_CHECKING:
    from ray.train import ScalingConfig


def scaling_config(plan: Plan, *, elastic: bool = False) -> ScalingConfig:
    """Return the configuration by which Ray Train starts a plan's workers with their cores, memory and GPUs.

    If `elastic`, Ray Train may use any number of workers from that of the plan's `lower` to that of its `upper`; it
    restarts them from their checkpoint when the number changes, and the batch of all workers changes with it. Raises
    InputError if the plan has other roles or workers of several sizes, or if Ray Train is of its first version, which
    is not elastic; MissingExtraError without Ray.
    """
    others = dict.fromkeys(role for role, group in plan.target.groups if group.replicas and role != "worker")
    if others:
        raise InputError(
            f"Ray Train has workers only, but plan {plan.id} has {' and '.join(others)}.",
            "Use an executor, such as ray or kuberay.",
        )
    sizes = [group for group in plan.target.worker if group.replicas]
    if len(sizes) != 1:
        raise InputError(
            f"Ray Train gives all workers one size, but plan {plan.id} has workers of {len(sizes)} sizes.",
            "Make the groups equal.",
        )
    gpus = sizes[0].gpu.count if sizes[0].gpu else 0
    if plan.job.command and plan.job.command.processes_of(gpus) > 1:
        raise InputError(
            f"Ray Train starts one process for each worker, and command.processes is {plan.job.command.processes}.",
            "Set it to 1, and give each worker one GPU; or use an executor, such as ray.",
        )
    try:
        from ray.train import ScalingConfig
    except ImportError:
        raise MissingExtraError("profile", "Ray Train") from None
    if elastic and "elastic_resize_monitor_interval_s" not in signature(ScalingConfig).parameters:
        raise InputError("Ray Train is elastic in its version 2 only.", "Remove RAY_TRAIN_V2_ENABLED=0.")
    worker = sizes[0]
    resources: dict[str, float] = {"CPU": worker.cpu}
    if worker.memory_bytes:
        resources["memory"] = worker.memory_bytes
    if worker.gpu:
        resources["GPU"] = worker.gpu.count
    counts = sorted(each.replicas("worker") for each in (plan.lower, plan.target, plan.upper) if each)
    number = (max(1, counts[0]), counts[-1]) if elastic and counts[0] < counts[-1] else worker.replicas
    return ScalingConfig(
        num_workers=number,  # type: ignore[arg-type]  # its older form takes no pair
        use_gpu=worker.gpu is not None,
        resources_per_worker=resources,
    )
