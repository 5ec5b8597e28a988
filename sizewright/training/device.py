"""Whether the device that a job asks for is there."""

from __future__ import annotations

from sizewright.errors import EngineError
from sizewright.spec import Job


def check_device(job: Job) -> None:
    """Raises EngineError when the job computes or keeps its rows on a GPU and this machine has none."""
    if "cuda" not in (job.training.device, job.training.embedding_device):
        return
    import torch

    if not torch.cuda.is_available():
        raise EngineError(
            "The job asks for a GPU (training.device or embedding_device is cuda), and PyTorch finds none here.",
            "Set it to cpu, install a CUDA build of PyTorch, or bring trials of your own: sizewright trials import.",
        )
