"""The trials that tell how fast a job is on the GPUs that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Job
from sizewright.spec.allocation import ANY_GPU, same_kind
from sizewright.spec.reason import Reason


def trials_on_gpus(job: Job, trials: Sequence[Trial]) -> tuple[list[Trial], tuple[Reason, ...]]:
    """Return the trials without those on GPUs of another kind than the bounds name, and a reason if there are such."""
    kind = job.bounds.worker.gpu.kind if job.bounds.worker.gpu else ANY_GPU
    others = {
        trial.gpu_kind
        for trial in trials
        if trial.gpu_kind and trial.gpu_kind != ANY_GPU and not same_kind(trial.gpu_kind, kind)
    }
    if kind == ANY_GPU or not others:
        return list(trials), ()
    kept = [trial for trial in trials if trial.gpu_kind not in others]
    left_out = len(trials) - len(kept)
    names = ", ".join(sorted(filter(None, others)))
    return kept, (Reason.of("trials_on_other_gpus", trials=left_out, others=names, kind=kind),)


class DeviceLimit(NamedTuple):
    """A trial in which the memory of a GPU ran out, at `batch_size` on `gpus` GPUs of all workers."""

    batch_size: int
    gpus: int
    largest_batch_size: float
    """What may still fit: the largest batch size below it that was measured, or else half of it."""


def device_limits(job: Job, trials: Sequence[Trial]) -> list[DeviceLimit]:
    """Return a limit for each trial in which the memory of a GPU ran out, of the kind that the bounds name."""
    on_gpus = trials_on_gpus(job, trials)[0]
    measured = [trial.batch_size or job.training.batch_size for trial in on_gpus if trial.usable]
    limits = []
    for trial in (each for each in on_gpus if each.oom_memory == "device"):
        batch_size = trial.batch_size or job.training.batch_size
        largest = max((size for size in measured if size < batch_size), default=batch_size / 2)
        limits.append(DeviceLimit(batch_size, trial.workers * (trial.worker_gpu or 1), largest))
    return limits


def why_gpus_unclear(job: Job, trials: Sequence[Trial]) -> tuple[Reason, str] | None:
    """Return why trials cannot tell the effect of GPUs, and a remedy; None if they can.

    Throughput on one kind of GPU says nothing of another, and no trial tells the effect of GPUs that none records.
    """
    kinds = sorted({trial.gpu_kind for trial in trials if trial.gpu_kind})
    if any(not same_kind(kinds[0], kind) for kind in kinds):
        return (
            Reason.of("gpu_kinds_mixed", kinds=", ".join(kinds)),
            f"Name the kind of the job in its bounds, such as worker: {{gpu: {{kind: {kinds[0]}, count: 1}}}}, or pass "
            "the trials of one kind.",
        )
    gpu = job.bounds.worker.gpu
    unknown = bool(trials) and all(trial.worker_gpu is None for trial in trials)
    if gpu and gpu.count[0] < gpu.count[1] and unknown:
        return (
            Reason.of("gpus_not_recorded", low=gpu.count[0], high=gpu.count[1]),
            "Profile the job with these bounds, or import trials with worker_gpu (GPUs of one worker).",
        )
    return None
