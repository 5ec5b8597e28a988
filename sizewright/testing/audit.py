"""A job that counts trained samples: each sample has its own row, whose weight is 1 once it has been trained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.clicks.batch import Batch
from sizewright.spec import Data, Job, Model, Optimizer, Tables, Training

if TYPE_CHECKING:
    from torch import Tensor, nn


def audit_job(samples: int, *, batch_size: int = 32, sync: str = "async", dim: int = 1) -> Job:
    """Return a job that trains one table with one row per sample by SGD with learning rate 1."""
    return Job(
        name="audit",
        model=Model(
            dense_features=0,
            tables=Tables(count=1, rows=samples, dim=dim),
            optimizer=Optimizer(name="sgd", learning_rate=1.0),
        ),
        data=Data(),
        training=Training.model_validate({"batch_size": batch_size, "samples": samples, "sync": sync}),
    )


class AuditProgram:
    """A program in which the gradient of each row is -1, and that of the dense weight minus the number of samples."""

    init_scale = 0.0

    def __init__(self, *, step_s: float = 0.0) -> None:
        """`step_s` is the minimum time of a step."""
        self._step_s = step_s

    def network(self, job: Job) -> nn.Module:  # noqa: D102
        return _make_count(self._step_s)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:  # noqa: D102
        return -outputs.sum()

    def samples(self, job: Job, scale: float) -> _NumberedSamples:  # noqa: D102
        return _NumberedSamples()


class _NumberedSamples:
    """Samples in which sample i has id i."""

    def read(self, start: int, count: int) -> Batch:
        ids = np.arange(start, start + count, dtype=np.int64).reshape(-1, 1)
        return Batch(np.zeros(count, np.float32), np.zeros((count, 0), np.float32), ids)


def _make_count(step_s: float) -> nn.Module:
    import torch
    from torch import nn

    class Count(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = nn.Parameter(torch.zeros(1))

        def forward(self, dense: Tensor, embedded: Tensor) -> Tensor:
            time.sleep(step_s)
            return embedded[:, 0, :].sum(1) + self.count

    return Count()


def read_counts(folder: str | Path, samples: int) -> tuple[NDArray[np.float32], float]:
    """Read from a checkpoint how often each sample (n,) was trained, and the count of the dense weight."""
    from sizewright.training.ps.snapshot_files import snapshots

    path = snapshots(folder)[-1]
    keys, weights, dense = (np.load(path / f"{name}.npy") for name in ("keys", "weights", "dense"))
    counts = np.zeros(samples, np.float32)
    counts[keys] = weights[:, 0]
    return counts, float(dense.sum())
