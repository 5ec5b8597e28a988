"""Where rows and their optimizer state lie: in the host's memory, or in that of a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from sizewright.training.hash_index import Slots
from sizewright.training.optimizers import Adagrad, Adam, Floats, RowwiseAdagrad, UpdateRule

if TYPE_CHECKING:
    import torch


class RowArrays(ABC):
    """`capacity` rows of weights and state; what goes in and out is in the host's memory."""

    device_bytes = 0

    def __init__(self, width: int, rule: UpdateRule, capacity: int) -> None:
        self.width, self.state_width, self.rule = width, rule.state_width(width), rule
        self.capacity = capacity

    @abstractmethod
    def read(self, slots: Slots) -> Floats:
        """Weights (n, width) of rows."""

    @abstractmethod
    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        """Weights (n, width) and state (n, state_width) of rows."""

    @abstractmethod
    def put(self, slots: Slots, weights: Floats, state: Floats) -> None:
        """Set rows."""

    @abstractmethod
    def update(self, slots: Slots, grads: Floats) -> None:
        """Apply gradients (n, width) to distinct rows."""

    @abstractmethod
    def grow(self, capacity: int) -> None:
        """Make room; for a moment the old and the new arrays both exist."""


class HostRows(RowArrays):
    """In the host's memory: rows that are not touched cost none."""

    def __init__(self, width: int, rule: UpdateRule, capacity: int) -> None:
        super().__init__(width, rule, capacity)
        self._weights = np.zeros((capacity, self.width), np.float32)
        self._state = np.zeros((capacity, self.state_width), np.float32)

    def read(self, slots: Slots) -> Floats:  # noqa: D102
        return self._weights.take(slots, axis=0)

    def take(self, slots: Slots) -> tuple[Floats, Floats]:  # noqa: D102
        return self._weights.take(slots, axis=0), self._state.take(slots, axis=0)

    def put(self, slots: Slots, weights: Floats, state: Floats) -> None:  # noqa: D102
        self._weights[slots] = weights
        self._state[slots] = state

    def update(self, slots: Slots, grads: Floats) -> None:  # noqa: D102
        weights, state = self.take(slots)
        self.rule.update(weights, state, grads)
        self.put(slots, weights, state)

    def grow(self, capacity: int) -> None:  # noqa: D102
        for name in ("_weights", "_state"):
            old = getattr(self, name)
            new = np.zeros((capacity, old.shape[1]), np.float32)
            new[: len(old)] = old
            setattr(self, name, new)
        self.capacity = capacity


class DeviceRows(RowArrays):
    """In a device's memory, updated there; only gradients and the rows asked for travel."""

    def __init__(self, width: int, rule: UpdateRule, capacity: int, device: str) -> None:
        import torch

        super().__init__(width, rule, capacity)
        self._torch: Any = torch
        self._weights = torch.zeros((capacity, self.width), device=device)
        self._state = torch.zeros((capacity, self.state_width), device=device)

    @property
    def device_bytes(self) -> int:  # type: ignore[override]
        """Bytes that the rows take on the device."""
        return 4 * self.capacity * (self.width + self.state_width)

    def read(self, slots: Slots) -> Floats:  # noqa: D102
        return self._host(self._weights[self._index(slots)])

    def take(self, slots: Slots) -> tuple[Floats, Floats]:  # noqa: D102
        at = self._index(slots)
        return self._host(self._weights[at]), self._host(self._state[at])

    def put(self, slots: Slots, weights: Floats, state: Floats) -> None:  # noqa: D102
        at = self._index(slots)
        self._weights[at] = self._there(weights)
        self._state[at] = self._there(state)

    def update(self, slots: Slots, grads: Floats) -> None:  # noqa: D102
        at, there = self._index(slots), self._there(grads)
        weights, state = self._weights[at], self._state[at]
        self._apply(weights, state, there)
        self._weights[at] = weights
        self._state[at] = state

    def grow(self, capacity: int) -> None:  # noqa: D102
        for name in ("_weights", "_state"):
            old = getattr(self, name)
            new = self._torch.zeros((capacity, old.shape[1]), device=old.device)
            new[: len(old)] = old
            setattr(self, name, new)
        self.capacity = capacity

    def _apply(self, weights: torch.Tensor, state: torch.Tensor, grads: torch.Tensor) -> None:
        """The rules of `optimizers`, on tensors."""
        rule, rate = self.rule, float(self.rule.rate)
        if isinstance(rule, (Adagrad, RowwiseAdagrad)):
            squares = grads * grads
            state += squares.mean(dim=1, keepdim=True) if isinstance(rule, RowwiseAdagrad) else squares
            weights -= rate * grads / (state.sqrt() + 1e-8)
        elif isinstance(rule, Adam):
            first, second = state[:, : self.width], state[:, self.width :]
            first += (1 - float(rule.beta1)) * (grads - first)
            second += (1 - float(rule.beta2)) * (grads * grads - second)
            weights -= rate * first / (second.sqrt() + 1e-8)
        else:
            weights -= rate * grads

    def _index(self, slots: Slots) -> Any:
        return self._torch.from_numpy(slots).to(self._weights.device)

    def _there(self, values: Floats) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values)).to(self._weights.device)

    def _host(self, values: torch.Tensor) -> Floats:
        return np.ascontiguousarray(values.cpu().numpy())
