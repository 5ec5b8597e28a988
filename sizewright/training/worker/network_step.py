"""The computation of a worker: the gradients of one batch by a PyTorch network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sizewright.datasets.clicks.batch import Batch
from sizewright.training.ps.optimizers import Floats
from sizewright.training.worker.weights import FlatWeights

Loss = Callable[[Tensor, Tensor], Tensor]


class NetworkStep:
    """Accumulates the gradients of the dense weights, and returns those of the rows.

    `weights` (d,) are the dense weights in the host's memory; after they are written, `put_weights` must follow.
    """

    def __init__(self, network: nn.Module, loss: Loss, device: str = "cpu") -> None:
        self._device, self._loss = torch.device(device), loss
        self._network = network.to(self._device)
        self._flat = FlatWeights(self._network)
        self.weights: Floats = self._flat.weights
        self.put_weights, self.take_grads = self._flat.put_weights, self._flat.take_grads

    def gradients(self, batch: Batch, inverse: NDArray[np.int64], rows: Floats) -> tuple[Floats, float]:
        """Return the gradients (u, width) of the distinct rows (u, width) of a batch, and its loss.

        `inverse` (n·tables,) has the row of each look-up of the batch.
        """
        pulled = torch.from_numpy(rows).to(self._device).requires_grad_()
        places = torch.from_numpy(inverse).to(self._device)
        embedded = nn.functional.embedding(places, pulled).view(*batch.ids.shape, rows.shape[1])
        outputs = self._network(torch.from_numpy(batch.dense).to(self._device), embedded)
        loss = self._loss(outputs, torch.from_numpy(batch.labels).to(self._device))
        loss.backward()  # type: ignore[no-untyped-call]
        assert pulled.grad is not None
        return pulled.grad.cpu().numpy(), float(loss.detach())
