"""Update rules over plain arrays: the same for rows of embedding tables and for a shard of dense weights."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from sizewright.spec import Optimizer

Floats = NDArray[np.float32]
EPSILON = np.float32(1e-8)


class UpdateRule(ABC):
    """Updates weights and their state in place; both have one row per embedding row."""

    def __init__(self, learning_rate: float) -> None:
        self.rate = np.float32(learning_rate)

    @abstractmethod
    def state_width(self, width: int) -> int:
        """Return how many floats of state a row of `width` weights needs."""

    @abstractmethod
    def update(self, weights: Floats, state: Floats, grads: Floats) -> None:
        """Apply `grads` to `weights` (n, width) and `state` (n, state_width), both in place."""


class Sgd(UpdateRule):
    """w ← w − rate·g."""

    def state_width(self, width: int) -> int:  # noqa: D102
        return 0

    def update(self, weights: Floats, state: Floats, grads: Floats) -> None:  # noqa: D102
        weights -= self.rate * grads


class Adagrad(UpdateRule):
    """s ← s + g²; w ← w − rate·g/√s (Duchi et al. 2011)."""

    def state_width(self, width: int) -> int:  # noqa: D102
        return width

    def update(self, weights: Floats, state: Floats, grads: Floats) -> None:  # noqa: D102
        state += grads * grads
        weights -= self.rate * grads / (np.sqrt(state) + EPSILON)


class RowwiseAdagrad(UpdateRule):
    """Adagrad with one accumulator per row: the mean of g² over the row."""

    def state_width(self, width: int) -> int:  # noqa: D102
        return 1

    def update(self, weights: Floats, state: Floats, grads: Floats) -> None:  # noqa: D102
        state += np.mean(grads * grads, axis=1, keepdims=True)
        weights -= self.rate * grads / (np.sqrt(state) + EPSILON)


class Adam(UpdateRule):
    """Lazy Adam (Kingma and Ba 2015): moments move only for rows that have a gradient; no bias correction."""

    beta1, beta2 = np.float32(0.9), np.float32(0.999)

    def state_width(self, width: int) -> int:  # noqa: D102
        return 2 * width

    def update(self, weights: Floats, state: Floats, grads: Floats) -> None:  # noqa: D102
        width = weights.shape[1]
        first, second = state[:, :width], state[:, width:]
        first += (1 - self.beta1) * (grads - first)
        second += (1 - self.beta2) * (grads * grads - second)
        weights -= self.rate * first / (np.sqrt(second) + EPSILON)


RULES: dict[str, type[UpdateRule]] = {
    "sgd": Sgd,
    "adagrad": Adagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "adam": Adam,
}


def make_rule(optimizer: Optimizer) -> UpdateRule:
    """Return the update rule that a job's optimizer names."""
    return RULES[optimizer.name](optimizer.learning_rate)
