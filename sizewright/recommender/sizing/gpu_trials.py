"""The trials that tell how fast a job is on the GPUs that it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Job
from sizewright.spec.allocation import ANY_GPU
from sizewright.spec.reason import Reason


def trials_on_gpus(job: Job, trials: Sequence[Trial]) -> tuple[list[Trial], tuple[Reason, ...]]:
    """Return the trials without those on GPUs of another kind than the bounds name, and a reason if there are such."""
    kind = job.bounds.worker.gpu.kind if job.bounds.worker.gpu else ANY_GPU
    others = {trial.gpu_kind for trial in trials if trial.gpu_kind not in (None, ANY_GPU, kind)}
    if kind == ANY_GPU or not others:
        return list(trials), ()
    kept = [trial for trial in trials if trial.gpu_kind not in others]
    left_out = len(trials) - len(kept)
    names = ", ".join(sorted(filter(None, others)))
    return kept, (Reason.of("trials_on_other_gpus", trials=left_out, others=names, kind=kind),)


def device_ooms(job: Job, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials in which the memory of a GPU ran out, of the kind that the bounds name."""
    return trials_on_gpus(job, [trial for trial in trials if trial.oom_memory == "device"])[0]


def why_gpus_unclear(job: Job, trials: Sequence[Trial]) -> tuple[Reason, str] | None:
    """Return why trials cannot tell the effect of GPUs, and a remedy; None if they can.

    Throughput on one kind of GPU says nothing of another, and no trial tells the effect of GPUs that none records.
    """
    kinds = sorted({trial.gpu_kind for trial in trials if trial.gpu_kind})
    if len(kinds) > 1:
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
