"""The check for the device that a job needs."""

from __future__ import annotations

from sizewright.errors import EngineError
from sizewright.spec import Job


def check_device(job: Job) -> None:
    """Raise EngineError if the job computes or stores its rows on a GPU and this machine has none."""
    if "cuda" not in (job.training.device, job.training.embedding_device):
        return
    keys = "training.device" if job.command else "training.device or embedding_device"
    try:
        import torch
    except ImportError:
        finder = "there is none on this host"
    else:
        if torch.cuda.is_available():
            return
        finder = "PyTorch finds none on this host"
    raise EngineError(
        f"The job needs a GPU ({keys} is cuda), but {finder}.",
        "Set the device to cpu, install a CUDA build of PyTorch, or import trials with `sizewright trials import`.",
    )
