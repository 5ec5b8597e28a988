"""Trials of the same allocation as one: their mean, how many they were, and how far they lie apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.axes import Axes

Floats = NDArray[np.float64]


class Repeats(NamedTuple):
    """Distinct allocations (n), in the order in which they were first measured."""

    rows: NDArray[np.int64]
    """The first trial of each."""
    rates: Floats
    """Mean logarithm of samples/s (n,)."""
    counts: Floats
    """Trials of each (n,)."""
    squares: float
    """Of the trials about their means, summed."""

    def log_likelihood(self, noise: Floats) -> Floats:
        """Of how far trials lie from their means, for each noise (d,), up to a constant."""
        freedom = self.counts.sum() - len(self.counts)
        total: Floats = -0.5 * self.squares / noise**2 - freedom * np.log(noise)
        return total


def pooled(axes: Axes, rates: Floats) -> Repeats:
    """From the axes and the logarithms of samples/s (N,) of all trials."""
    _, first, group = np.unique(np.column_stack(axes).round(9), axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(group).astype(float)
    means = np.bincount(group, rates) / counts
    order = np.argsort(first)
    return Repeats(first[order], means[order], counts[order], float(((rates - means[group]) ** 2).sum()))
