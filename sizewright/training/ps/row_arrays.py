"""Storage of rows and their optimizer state, in the host's memory or in a GPU's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from sizewright.training.ps.hash_index import Slots
from sizewright.training.ps.optimizers import Adagrad, Adam, Floats, RowwiseAdagrad, UpdateRule

if TYPE_CHECKING:
    import torch


class RowArrays(ABC):
    """Stores `capacity` rows of weights and state; arguments and results are arrays in the host's memory."""

    device_bytes = 0

    def __init__(self, width: int, rule: UpdateRule, capacity: int) -> None:
        self.width = width
        self.state_width = rule.state_width(width)
        self.rule = rule
        self.capacity = capacity

    @abstractmethod
    def read(self, slots: Slots) -> Floats:
        """Return the weights (n, width) of rows."""

    @abstractmethod
    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        """Return the weights (n, width) and the state (n, state_width) of rows."""

    @abstractmethod
    def put(self, slots: Slots, weights: Floats, state: Floats) -> None:
        """Set the weights and the state of rows."""

    @abstractmethod
    def update(self, slots: Slots, grads: Floats) -> None:
        """Apply gradients (n, width) to distinct rows."""

    @abstractmethod
    def grow(self, capacity: int) -> None:
        """Grow to `capacity` rows; for a moment the old and the new arrays both exist."""


class HostRows(RowArrays):
    """Rows in the host's memory; rows that are not touched cost none."""

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
    """Rows in a device's memory, updated there; only gradients and requested rows are copied."""

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
        return self._to_host(self._weights[self._to_device(slots)])

    def take(self, slots: Slots) -> tuple[Floats, Floats]:  # noqa: D102
        index = self._to_device(slots)
        return self._to_host(self._weights[index]), self._to_host(self._state[index])

    def put(self, slots: Slots, weights: Floats, state: Floats) -> None:  # noqa: D102
        index = self._to_device(slots)
        self._weights[index] = self._to_device(weights)
        self._state[index] = self._to_device(state)

    def update(self, slots: Slots, grads: Floats) -> None:  # noqa: D102
        index = self._to_device(slots)
        weights, state = self._weights[index], self._state[index]
        self._apply(weights, state, self._to_device(grads))
        self._weights[index] = weights
        self._state[index] = state

    def grow(self, capacity: int) -> None:  # noqa: D102
        for name in ("_weights", "_state"):
            old = getattr(self, name)
            new = self._torch.zeros((capacity, old.shape[1]), device=old.device)
            new[: len(old)] = old
            setattr(self, name, new)
        self.capacity = capacity

    def _apply(self, weights: torch.Tensor, state: torch.Tensor, grads: torch.Tensor) -> None:
        """Apply the rules of `optimizers` to tensors, in place."""
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

    def _to_device(self, values: Slots | Floats) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values)).to(self._weights.device)

    def _to_host(self, values: torch.Tensor) -> Floats:
        return np.ascontiguousarray(values.cpu().numpy())
