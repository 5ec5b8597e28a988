"""The check for the device that a job needs."""

from __future__ import annotations

from sizewright.errors import EngineError
from sizewright.spec import Job


def check_device(job: Job) -> None:
    """Raise EngineError if the job computes or stores its rows on a GPU and this machine has none."""
    if "cuda" not in (job.training.device, job.training.embedding_device):
        return
    import torch

    if not torch.cuda.is_available():
        raise EngineError(
            "The job needs a GPU (training.device or embedding_device is cuda), but PyTorch finds none on this host.",
            "Set the device to cpu, install a CUDA build of PyTorch, or import trials with `sizewright trials import`.",
        )
