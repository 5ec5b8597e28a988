"""The fields of a trial that follow from the job and the allocation at which it is measured."""

from __future__ import annotations

from typing import Any

from sizewright.spec import Allocation, Job
from sizewright.spec.allocation import ANY_GPU


def loaders_of(job: Job, allocation: Allocation) -> int | None:
    """Return the loader processes of a worker; None for a job that is not told their number."""
    return job.loaders_at(allocation) if job.command and job.command.takes_loaders else None


def gpus_of(job: Job, allocation: Allocation, product: str | None = None) -> dict[str, Any]:
    """Return the number and kind of the GPUs of a worker as fields of a trial; no number where no bounds plan it.

    `product` is what the host says of its GPUs, for bounds that name no kind.
    """
    gpu = allocation.worker[0].gpu
    count = gpu.count if gpu else 0 if job.bounds.worker.gpu else None
    return {"worker_gpu": count, "gpu_kind": gpu.kind if gpu and gpu.kind != ANY_GPU else product}
