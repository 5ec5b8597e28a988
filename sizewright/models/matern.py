"""The Matérn kernel (ν = 3/2), and random functions of the Gaussian process that it belongs to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.table import ALLOCATION_AXES, Table, as_columns, filled

Floats = NDArray[np.float64]

LENGTH = 1.3  # in natural logarithms: a function changes as an axis is multiplied by 3.7
FEATURES = 256


def matern(a: Floats, b: Floats, length: float | Floats = LENGTH) -> Floats:
    """Return the Matérn kernel (n, m) of places (n, k) and (m, k) with one length, or a length per axis (k,)."""
    a, b = a / length, b / length
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2 * a @ b.T
    distance = np.sqrt(3 * np.maximum(squares, 0.0))
    kernel: Floats = (1 + distance) * np.exp(-distance)
    return kernel


class Features(NamedTuple):
    """Random Fourier features of the kernel (Rahimi and Recht 2007); its spectrum is Student's t with 3 degrees."""

    frequencies: Floats
    phases: Floats

    @classmethod
    def draw(
        cls, dims: int, rng: np.random.Generator, length: float | Floats = LENGTH, count: int = FEATURES
    ) -> Features:
        """Draw `count` features for places of `dims` dimensions."""
        normal = rng.standard_normal((count, dims))
        chi2 = rng.chisquare(3, (count, 1))
        return cls(normal * np.sqrt(3 / chi2) / length, rng.uniform(0, 2 * np.pi, count))

    def of(self, places: Floats) -> Floats:
        """Return the features (n, f) of places (n, a), in single precision, which is several times as fast."""
        angles = (places @ self.frequencies.T + self.phases).astype(np.float32)
        waves: Floats = np.float32(np.sqrt(2 / len(self.phases))) * np.cos(angles)
        return waves


def smooth_draws(X: Table, count: int, rng: np.random.Generator) -> Floats:
    """Return random functions (count, n) of the logarithms of the axes, with standard deviation 1 everywhere."""
    columns = as_columns(X, ALLOCATION_AXES)
    places = np.column_stack([np.log(np.maximum(filled(column, 1.0), 0.05)) for column in columns.values()])
    features = Features.draw(places.shape[1], rng)
    draws: Floats = rng.standard_normal((count, FEATURES)) @ features.of(places).T
    return draws
