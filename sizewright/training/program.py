"""What a session trains: the network, its loss and its samples. The built-in one follows the job's description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sizewright.datasets.samples import SampleSource, open_samples
from sizewright.spec import Job

if TYPE_CHECKING:
    from torch import Tensor, nn


class Program(Protocol):
    """Sent to every replica, so it must be importable there and small."""

    spread: float
    """New embedding rows are drawn within ±spread/√width."""

    def network(self, job: Job) -> nn.Module:
        """Takes dense columns (n, features) and embedded ids (n, tables, width); the same weights in every worker."""

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """One number to be minimised."""

    def samples(self, job: Job, scale: float) -> SampleSource:
        """The job's samples, ids folded into tables of `scale` times their rows."""


class BuiltIn:
    """Networks of the job's family, trained on clicks; `seed` is that of the first weights and of synthetic data."""

    spread = 1.0

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def network(self, job: Job) -> nn.Module:  # noqa: D102
        from sizewright.training.networks import make_network

        return make_network(job.model, self._seed)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:  # noqa: D102
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(outputs, labels)

    def samples(self, job: Job, scale: float) -> SampleSource:  # noqa: D102
        return open_samples(job, scale=scale, seed=self._seed)
