"""The dense weights of a network as one vector, and their gradients as another, on any device."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sizewright.training.ps.optimizers import Floats


class FlatWeights:
    """Exposes the weights and gradients (n,) of a network as flat arrays.

    On the CPU `weights` and `grads` are views of the network's tensors. On another device they are copies, which
    `put_weights` and `take_grads` synchronise.
    """

    def __init__(self, network: nn.Module) -> None:
        parameters = list(network.parameters())
        size = sum(p.numel() for p in parameters)
        device = parameters[0].device if parameters else torch.device("cpu")
        self._weights, self._grads = torch.zeros(size, device=device), torch.zeros(size, device=device)
        start = 0
        for p in parameters:
            end = start + p.numel()
            self._weights[start:end] = p.data.flatten()
            p.data = self._weights[start:end].view_as(p)
            p.grad = self._grads[start:end].view_as(p)
            start = end
        self._remote = device.type != "cpu"
        self._host_weights, self._host_grads = self._weights.cpu(), self._grads.cpu()
        self.weights: Floats = self._host_weights.numpy()
        self.grads: Floats = self._host_grads.numpy()
        self.sent: Floats = np.zeros(0, np.float32)

    def take_grads(self) -> Floats:
        """Return the gradients accumulated since the last call, valid until the next call, and reset them."""
        if self._remote:
            self._host_grads.copy_(self._grads)
            self._grads.zero_()
        if self.sent.size != self.grads.size:
            self.sent = np.empty_like(self.grads)
        np.copyto(self.sent, self.grads)
        self.grads.fill(0)
        return self.sent

    def put_weights(self) -> None:
        """Copy `weights` to the device after they have been written."""
        if self._remote:
            self._weights.copy_(self._host_weights)
