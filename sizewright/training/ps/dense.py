"""One server's slice of the dense weights, with optimizer state for each weight."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sizewright.spec import Optimizer
from sizewright.training.ps.optimizers import Floats, UpdateRule, make_rule


def dense_rule(optimizer: Optimizer) -> UpdateRule:
    """Return the update rule for dense weights.

    Each dense weight is a row of width 1, so row-wise Adagrad equals Adagrad here.
    """
    name = "adagrad" if optimizer.name == "rowwise_adagrad" else optimizer.name
    return make_rule(optimizer.model_copy(update={"name": name}))


class DenseSlice:
    """The weights [start, start + n) of the whole vector, with their optimizer state.

    `total` is the size of the whole vector; by default the vector ends with this slice.
    """

    def __init__(self, start: int, weights: Floats, rule: UpdateRule, *, total: int | None = None) -> None:
        self.start = start
        self.total = start + weights.size if total is None else total
        self._rule = rule
        self._weights = weights.reshape(-1, 1).copy()
        self._state = np.zeros((len(self._weights), rule.state_width(1)), np.float32)

    @property
    def end(self) -> int:
        """The index after the last weight."""
        return self.start + len(self._weights)

    def copy(self) -> Floats:
        """Return a copy of the weights (n,)."""
        return self._weights[:, 0].copy()

    def update(self, grads: Floats, runs: Iterable[slice] | None = None) -> None:
        """Apply gradients (n,) to the whole slice, or only to `runs` of it."""
        for run in [slice(0, len(self._weights))] if runs is None else runs:
            self._rule.update(self._weights[run], self._state[run], grads[run].reshape(-1, 1))

    def inside(self, runs: Iterable[slice]) -> list[slice]:
        """Return the overlap of runs of the whole vector with this slice, relative to its start."""
        overlaps = (slice(max(r.start, self.start) - self.start, min(r.stop, self.end) - self.start) for r in runs)
        return [run for run in overlaps if run.start < run.stop]

    def part(self, start: int, end: int) -> tuple[int, Floats, Floats]:
        """Return the start of the overlap with [start, end), and copies of its weights (k, 1) and state (k, state)."""
        low = max(start, self.start)
        high = max(min(end, self.end), low)
        overlap = slice(low - self.start, high - self.start)
        return low, self._weights[overlap].copy(), self._state[overlap].copy()

    def put(self, start: int, weights: Floats, state: Floats) -> None:
        """Overwrite weights and state from `start` on. Raise ValueError if they exceed this slice."""
        if not self.start <= start <= start + len(weights) <= self.end:
            raise ValueError(f"[{start}, {start + len(weights)}) is not inside [{self.start}, {self.end})")
        target = slice(start - self.start, start - self.start + len(weights))
        self._weights[target] = weights.reshape(-1, 1)
        self._state[target] = state

    def like(self, start: int, end: int) -> DenseSlice:
        """Return another slice [start, end) of the same vector with the same rule, all zero."""
        return DenseSlice(start, np.zeros(end - start, np.float32), self._rule, total=self.total)
