"""All dense weights of a network in one vector, and their gradients in another, wherever the network lives."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sizewright.training.optimizers import Floats


class FlatWeights:
    """`weights` and `grads` (n,) are views of the network's own on the CPU; of a network on another device they are
    copies, which `put_weights` and `take_grads` carry over."""

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
        """The gradients gathered since the last call, which begin anew; valid until the next call."""
        if self._remote:
            self._host_grads.copy_(self._grads)
            self._grads.zero_()
        if self.sent.size != self.grads.size:
            self.sent = np.empty_like(self.grads)
        np.copyto(self.sent, self.grads)
        self.grads.fill(0)
        return self.sent

    def put_weights(self) -> None:
        """After `weights` has been written: bring it to the device."""
        if self._remote:
            self._weights.copy_(self._host_weights)
