"""The program that a session trains: a network, its loss and its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sizewright.datasets.clicks.samples import SampleSource, open_samples
from sizewright.spec import Job

if TYPE_CHECKING:
    from torch import Tensor, nn


class Program(Protocol):
    """Defines what is trained.

    It is sent to every replica, so it must be small and importable there.
    """

    init_scale: float
    """New embedding rows are drawn from ±init_scale/√width."""

    def network(self, job: Job) -> nn.Module:
        """Return a network of dense columns (n, features) and embedded tables (n, tables, width).

        Where tables have rows of several widths, it gets a tuple of them, one per group of `Model.table_groups`. The
        rows of a sample's ids in a table are summed.

        It must have the same weights in every worker.
        """

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the scalar to minimise."""

    def samples(self, job: Job, scale: float) -> SampleSource:
        """Return the job's samples, with ids folded into tables of `scale` times their rows."""


class BuiltIn:
    """Trains a network of the job's family on clicks; `seed` sets the first weights and synthetic data."""

    init_scale = 1.0

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def network(self, job: Job) -> nn.Module:  # noqa: D102
        from sizewright.training.worker.networks import make_network

        return make_network(job.model, self._seed)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:  # noqa: D102
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(outputs, labels)

    def samples(self, job: Job, scale: float) -> SampleSource:  # noqa: D102
        return open_samples(job, scale=scale, seed=self._seed)
