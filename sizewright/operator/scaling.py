"""Decide on the number of workers of a running job, on platforms that change it without a restart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor, is_queued
from sizewright.executors.kubernetes.live_object import RESIZED as RESIZED_SIZES
from sizewright.executors.kubernetes.merge_patch import merge_patch
from sizewright.operator.labels import annotations_of
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.run_evidence import RunEvidence
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.control.windows import MetricsWindows, Window
from sizewright.runtime.guardrails import GuardrailError, check_rails
from sizewright.runtime.plan_files import adjust_plan
from sizewright.spec import Allocation, Candidate, Job, Metrics, Plan, Rails
from sizewright.spec.reason import Reason

_KUEUE_ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation by which Kueue lets the number of a Job's pods change."""
_COUNTS = frozenset({"replicas", "parallelism", "completions"})
"""The keys of an object that a change of the number of workers may write."""
_GROWTH = 2.0
"""The model is fitted again when the observed seconds have grown by this factor."""


class WorkerScaler:
    """Watches one running job, and decides on the number of its workers. `clock` measures pauses."""

    def __init__(self, job: Job, run: str, allocation: Allocation, scaler: AutoScaler) -> None:
        self.job, self.scaling = job, scaler.scaling
        self._scaler = scaler
        self._windows, self._evidence = MetricsWindows(), RunEvidence(job, run, allocation)
        self._allocation = allocation
        self._observed_s = self._fitted_s = 0.0
        self._window: Window | None = None
        self._missing = self._scaler.refit([], allocation.replicas("worker"))

    def observe(self, at_s: float, metrics: Metrics, allocation: Allocation) -> None:
        """Take in an observation of the job at an allocation that it has now."""
        if allocation != self._allocation:
            self._allocation = allocation
            self._evidence.changed(allocation)
            self._windows.forget()
            self._observed_s = self._fitted_s = 0.0
            self._window = None
        window = self._windows.add(at_s, metrics)
        if isinstance(window, Reason) or not window.samples:
            return
        self._window = window
        self._evidence.add(window)
        self._observed_s += window.seconds
        if self._evidence.current_trial() and self._observed_s >= _GROWTH * self._fitted_s:
            self._missing = self._scaler.refit(self._evidence.trials(), self._evidence.workers)
            self._fitted_s = self._observed_s

    def skip(self) -> None:
        """Leave out the time until the next observation, in which workers are missing."""
        self._windows.forget()

    def act(self, change_s: float, changes: int) -> Action | None:
        """Return the change that pays after `changes` earlier ones, or why there is none; None while it watches."""
        if self._window is None or self._observed_s < self.scaling.warm_up_s:
            return None
        if self._missing:
            return Action((Reason.of("model_not_fitted", error=self._missing),))
        rate, error = self._evidence.rate
        return self._scaler.act(self._allocation, rate, error, self.samples_left, change_s=change_s, changes=changes)

    def candidates(self) -> tuple[Candidate, ...]:
        """Return what the job could have of a cluster that it shares; nothing while its speed is not known.

        Their numbers of workers differ from the present one by one legal step at most.
        """
        if self._window is None or self._observed_s < self.scaling.warm_up_s or self._missing:
            return ()
        workers, step = self._allocation.replicas("worker"), self.scaling.max_added_workers
        found = self._scaler.candidates(self._allocation, self._evidence.rate[0])
        return tuple(each for each in found if abs(each.allocation.replicas("worker") - workers) <= step)

    @property
    def samples_left(self) -> int:
        """The samples still to be trained; where that is unknown, as many as have been trained."""
        return self._window.expected_left if self._window else 0


def scalable_job(
    job: Job, executor: ClusterExecutor, job_object: Mapping[str, Any], current: Allocation, rails: Rails
) -> Job:
    """Return a job whose bounds are the numbers of workers that it may have while it runs, at their present size.

    Raises InputError with the reason if their number cannot change.
    """
    if current.replicas("ps"):
        raise InputError("A job with PS cannot be scaled while it runs.", "Remove the annotation sizewright/scale.")
    if job.training.global_batch_size:
        raise InputError(
            "Its workers share a global batch, so that each would need another batch size.",
            "Give the batch size of a worker (training.batch_size).",
        )
    limits, bounds = executor.worker_limits(job_object), job.bounds.worker.replicas
    if is_queued(job_object):
        if not executor.scales_in_queues:
            raise InputError(
                f"Kueue would stop this {executor.kind} to change its workers.", "Take it out of its queue."
            )
        if annotations_of(job_object).get(_KUEUE_ELASTIC) != "true":
            raise InputError(
                "Kueue would stop this job to change its number of workers.",
                f"Annotate it with {_KUEUE_ELASTIC}: 'true', on a Kueue that supports it.",
            )
    if annotations_of(job_object).get(RESIZED_SIZES):
        raise InputError("Its pods were resized, and new ones would have the earlier size.", "Restart the job.")
    low, high = max(limits[0], bounds[0]), min(limits[1], bounds[1])
    if low > high:
        raise InputError(
            f"The {executor.kind} can have {limits[0]} to {limits[1]} workers while it runs, but its bounds are "
            f"{bounds[0]} to {bounds[1]}.",
            "Write bounds that overlap with that.",
        )
    low, high = _within_rails(job, current, low, high, rails)
    (worker,) = current.worker
    sizes: dict[str, Any] = {"replicas": (low, high), "cpu": (worker.cpu, worker.cpu)}
    if worker.memory_bytes:
        sizes["memory_bytes"] = (worker.memory_bytes, worker.memory_bytes)
    of_worker = job.bounds.worker.model_copy(update=sizes)
    narrowed = job.bounds.model_copy(update={"worker": of_worker, "batch_size": None, "loaders": None})
    return job.with_batch_size(current.batch_size).model_copy(update={"bounds": narrowed})


def scaling_plan(job: Job, current: Allocation, workers: int, reason: str = "") -> Plan:
    """Return the plan that changes nothing but the number of workers; it keeps nobody from resizing them soon."""
    return adjust_plan(job, current, with_workers(current, workers), reason)


def with_workers(allocation: Allocation, workers: int) -> Allocation:
    """Return an allocation of one group of workers with another number of them."""
    (worker,) = allocation.worker
    return allocation.model_copy(update={"worker": (worker.model_copy(update={"replicas": workers}),)})


def scaling_patch(executor: ClusterExecutor, job_object: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """Return the patch (RFC 7396) that writes the number of workers into an object.

    Raises InputError if anything else of the object would have to change, since only new pods would have it.
    """
    patch = merge_patch(job_object, executor.with_sizes(job_object, plan))
    others = [path for path in _leaves(patch) if path[-1] not in _COUNTS]
    if others:
        raise InputError(
            f"{'.'.join(others[0])} of this {executor.kind} repeats the number of workers, and running pods would not "
            "follow.",
            "Let its code find the number of workers by itself.",
        )
    return patch


def _within_rails(job: Job, current: Allocation, low: int, high: int, rails: Rails) -> tuple[int, int]:
    """Return the least and the greatest number of workers that the guardrails allow, apart from the size of a step.

    Raises GuardrailError if they do not allow the present number, or that within the limits which is nearest to it.
    """
    of_worker = rails.worker.model_copy(update={"step": None})
    rails = rails.model_copy(update={"worker": of_worker})
    nearest = min(max(current.replicas("worker"), low), high)
    check_rails(scaling_plan(job, current, nearest), rails)

    def is_refused(workers: int) -> bool:
        try:
            check_rails(scaling_plan(job, current, workers), rails)
        except GuardrailError:
            return True
        return False

    most = nearest + bisect_left(range(nearest + 1, high + 1), True, key=is_refused)
    least = nearest - bisect_left(range(nearest - 1, low - 1, -1), True, key=is_refused)
    return least, most


def _leaves(patch: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in patch.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)
