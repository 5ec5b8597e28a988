"""One server's slice of the dense weights, with optimizer state for each weight."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sizewright.spec import Optimizer
from sizewright.training.optimizers import Floats, UpdateRule, make_rule


def dense_rule(optimizer: Optimizer) -> UpdateRule:
    """The rule of the dense weights: each is a row of its own, so row-wise Adagrad is Adagrad here."""
    name = "adagrad" if optimizer.name == "rowwise_adagrad" else optimizer.name
    return make_rule(optimizer.model_copy(update={"name": name}))


class DenseSlice:
    """Weights [start, start + n) of the whole vector."""

    def __init__(self, start: int, weights: Floats, rule: UpdateRule, *, total: int | None = None) -> None:
        """`total` is the size of the whole vector; by default it ends with this slice."""
        self.start = start
        self.total = start + weights.size if total is None else total
        self._rule = rule
        self._weights = weights.reshape(-1, 1).copy()
        self._state = np.zeros((len(self._weights), rule.state_width(1)), np.float32)

    @property
    def end(self) -> int:
        """One past the last weight."""
        return self.start + len(self._weights)

    def copy(self) -> Floats:
        """The weights (n,)."""
        return self._weights[:, 0].copy()

    def update(self, grads: Floats, runs: Iterable[slice] | None = None) -> None:
        """Apply gradients (n,) of the whole slice, or only those of `runs` of it."""
        for mine in [slice(0, len(self._weights))] if runs is None else runs:
            self._rule.update(self._weights[mine], self._state[mine], grads[mine].reshape(-1, 1))

    def inside(self, runs: Iterable[slice]) -> list[slice]:
        """Of runs of the whole vector what lies in this slice, counted from its start."""
        cut = (slice(max(r.start, self.start) - self.start, min(r.stop, self.end) - self.start) for r in runs)
        return [run for run in cut if run.start < run.stop]

    def part(self, start: int, end: int) -> tuple[int, Floats, Floats]:
        """Where the overlap with [start, end) begins, and copies of its weights (k, 1) and state (k, state)."""
        low, high = max(start, self.start), max(min(end, self.end), max(start, self.start))
        mine = slice(low - self.start, high - self.start)
        return low, self._weights[mine].copy(), self._state[mine].copy()

    def put(self, start: int, weights: Floats, state: Floats) -> None:
        """Put weights and state as they are. Raises ValueError when they do not lie inside."""
        if not self.start <= start <= start + len(weights) <= self.end:
            raise ValueError(f"[{start}, {start + len(weights)}) is not inside [{self.start}, {self.end})")
        mine = slice(start - self.start, start - self.start + len(weights))
        self._weights[mine] = weights.reshape(-1, 1)
        self._state[mine] = state

    def like(self, start: int, end: int) -> DenseSlice:
        """Another slice with the same rule, all zero."""
        return DenseSlice(start, np.zeros(end - start, np.float32), self._rule, total=self.total)
