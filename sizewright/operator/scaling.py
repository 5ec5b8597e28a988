"""Change the number of workers of running jobs, where the platform does so without a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sizewright.errors import InputError
from sizewright.executors._base import UnsupportedExecutor
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor, is_queued
from sizewright.executors.kubernetes.live_object import RESIZED
from sizewright.operator.labels import annotations_of
from sizewright.spec import Allocation, Capabilities, ChangeCost, Handle, Job, Metrics, Plan

_ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation by which Kueue lets the number of a job's pods change."""


class WorkerChanges(UnsupportedExecutor):
    """Change the number of a job's workers by `change`, and nothing else of it."""

    capabilities = Capabilities(adjust=True, live=True, observe=True)

    def __init__(self, executor: ClusterExecutor, change: Callable[[Handle, Plan], None]) -> None:
        self.name = executor.name
        self._executor, self._change = executor, change

    def observe(self, handle: Handle) -> Metrics:
        """Return the metrics of the pods that run."""
        return self._executor.observe(handle)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the seconds until new pods train."""
        return self._executor.change_cost(plan)

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Change the number of workers to that of the target; each has the size of the present ones."""
        assert plan.current is not None
        (worker,) = plan.current.worker
        workers = (worker.model_copy(update={"replicas": plan.target.replicas("worker")}),)
        target = plan.current.model_copy(update={"worker": workers})
        if target != plan.current:
            self._change(handle, plan.model_copy(update={"target": target}))


def scalable_job(job: Job, executor: ClusterExecutor, job_object: Mapping[str, Any], current: Allocation) -> Job:
    """Return a job whose bounds allow the numbers of workers that it can have while it runs, at their present size.

    Raises InputError with the reason if their number cannot change.
    """
    limits, bounds = executor.worker_limits(job_object), job.bounds.worker
    if limits is None or current.replicas("ps"):
        raise InputError(
            f"The number of workers of this {executor.kind} cannot change while it runs.",
            "Use an indexed Job with as many completions as pods, or a PyTorchJob with an elasticPolicy.",
        )
    if job.training.global_batch_size:
        raise InputError(
            "Its workers share a global batch, so that each would need another batch size.",
            "Give the batch size of a worker (training.batch_size).",
        )
    annotations = annotations_of(job_object)
    if is_queued(job_object) and annotations.get(_ELASTIC) != "true":
        raise InputError(
            "Kueue would stop this job to change its number of workers.", f"Annotate it with {_ELASTIC}: 'true'."
        )
    if annotations.get(RESIZED):
        raise InputError("Its pods were resized, and new ones would have the earlier size.", "Restart the job.")
    low, high = max(limits[0], bounds.replicas[0]), min(limits[1], bounds.replicas[1])
    if low > high:
        raise InputError(
            f"The {executor.kind} can have {limits[0]} to {limits[1]} workers while it runs, but its bounds are "
            f"{bounds.replicas[0]} to {bounds.replicas[1]}.",
            "Write bounds that overlap with that.",
        )
    (worker,) = current.worker
    sizes: dict[str, Any] = {"replicas": (low, high), "cpu": (worker.cpu, worker.cpu)}
    if worker.memory_bytes:
        sizes["memory_bytes"] = (worker.memory_bytes, worker.memory_bytes)
    narrowed = job.bounds.model_copy(update={"worker": bounds.model_copy(update=sizes), "batch_size": None})
    return job.with_batch_size(current.batch_size).model_copy(update={"bounds": narrowed})
