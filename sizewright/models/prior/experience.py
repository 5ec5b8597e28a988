"""What jobs have in common, and how far a job is from those that were measured.

Physics leaves each job faster or slower than foretold. Jobs that are alike are so alike, and those of a family: a
Gaussian process over what describes them tells how much of that a new job will have, and how little is known far from
all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sizewright.models.prior.work import work_of
from sizewright.models.residual import matern
from sizewright.spec import Job
from sizewright.spec.model import Family

Floats = NDArray[np.float64]

AXES = (
    "batch size", "floating-point operations a sample", "layer floats a sample", "tables",
    "distinct rows a sample", "row width", "dense weights", "embedding bytes",
)  # fmt: skip
FAMILIES: tuple[str, ...] = get_args(Family)
# A family or mode apart counts as so many standard deviations of an axis.
_FAMILY_APART, _MODE_APART = 0.7, 1.0
_LENGTHS, _SPREADS, _OWN = (1.0, 2.0, 4.0, 8.0), (0.05, 0.1, 0.2, 0.3), (0.02, 0.05, 0.1, 0.2)
_FAMILY = (0.03, 0.1, 0.3, 1.0)


class Guess(NamedTuple):
    """Of a job: how much faster than physics foretells, in log, how sure that is, and where it lies."""

    level: float
    sd: float
    distance: float
    nearest: str
    axis: str
    """On which it is farthest from the nearest."""


class Scales(NamedTuple):
    """Of the process: how far alike jobs reach, and standard deviations of what they, a family, and one job share."""

    length: float
    spread: float
    family: float
    own: float


class Experience(NamedTuple):
    """Jobs (j) that were measured, and what they had beyond physics."""

    names: tuple[str, ...]
    bases: tuple[str, ...]
    places: Floats
    """(j, a), in standard deviations."""
    centre: Floats
    scale: Floats
    levels: Floats
    scales: Scales
    limit: float
    """How far from the nearest a job may be."""

    def guess(self, job: Job, table_scale: float = 1.0) -> Guess:
        """Of a new job."""
        place = self._standard(describe(job, table_scale))
        gaps = np.sqrt(((self.places - place) ** 2).sum(axis=1))
        nearest = int(np.argmin(gaps))
        far = int(np.argmax(np.abs(place - self.places[nearest])))
        level, sd = krige(self.places, self.levels, place[None], self.scales)
        axis = AXES[far] if far < len(AXES) else "family or mode"
        return Guess(float(level[0]), float(sd[0]), float(gaps[nearest]), self.names[nearest], axis)

    def _standard(self, place: Floats) -> Floats:
        return (place - self.centre) / self.scale

    def as_record(self) -> dict[str, Any]:
        """In plain numbers."""
        told = {k: v for k, v in self._asdict().items() if k != "scales"} | self.scales._asdict()
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in told.items()}


def from_record(record: dict[str, Any]) -> Experience:
    """As `as_record` gave it. Raises KeyError, TypeError or ValueError for another."""
    arrays: dict[str, Any] = {name: np.array(record[name], float) for name in ("places", "centre", "scale", "levels")}
    names = {name: tuple(map(str, record[name])) for name in ("names", "bases")}
    scales = Scales(*(float(record[name]) for name in Scales._fields))
    return Experience(**(arrays | names), scales=scales, limit=float(record["limit"]))


def learn(names: Sequence[str], bases: Sequence[str], described: Floats, levels: Floats) -> Experience:
    """From descriptions (j, a) and levels (j,) of measured jobs."""
    logs = described[:, : len(AXES)]
    centre, scale = np.zeros(described.shape[1]), np.ones(described.shape[1])
    centre[: len(AXES)] = logs.mean(axis=0)
    scale[: len(AXES)] = np.maximum(logs.std(axis=0), 0.1)
    places = (described - centre) / scale
    chosen = _likeliest(places, levels, bases)
    return Experience(tuple(names), tuple(bases), places, centre, scale, levels, chosen, _limit(places, bases))


def describe(job: Job, table_scale: float = 1.0) -> Floats:
    """Where a job lies (a,): logarithms, then one for each family and the mode."""
    batch = float(job.training.batch_size)
    work = {
        name: float(column[0])
        for name, column in work_of(job, np.array([batch]), np.array([table_scale]))._asdict().items()
    }
    logs = [
        batch, work["flops"] / batch, work["layer_floats"] / batch, job.model.tables.count,
        work["rows"] / batch, job.model.row_width, work["weights"], work["embedding_bytes"],
    ]  # fmt: skip
    family = [_FAMILY_APART * (job.model.family == one) for one in FAMILIES]
    return np.array([*np.log(np.maximum(logs, 1e-9)), *family, _MODE_APART * (job.training.sync == "sync")])


def krige(places: Floats, levels: Floats, at: Floats, scales: Scales) -> tuple[Floats, Floats]:
    """Mean and standard deviation (m,) of levels at `at` (m, a), given those (j,) at `places` (j, a); 0 far away."""
    kernel = _alike(matern(places, places, scales.length), _same_family(places, places), scales)
    kernel += scales.own**2 * np.eye(len(places))
    cross = _alike(matern(at, places, scales.length), _same_family(at, places), scales)
    solved = np.linalg.solve(kernel, np.column_stack([levels, cross.T]))
    variance = scales.spread**2 + scales.family**2 + scales.own**2 - (cross * solved[:, 1:].T).sum(axis=1)
    return cross @ solved[:, 0], np.sqrt(np.maximum(variance, scales.own**2))


def _alike(near: Floats, same_family: NDArray[np.bool_], scales: Scales) -> Floats:
    """Covariance (m, j) of what jobs have beyond physics."""
    return np.asarray(scales.spread**2 * near + scales.family**2 * same_family)


def _same_family(one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Of jobs at `one` (m, a) and `other` (j, a): (m, j)."""
    of_family = slice(len(AXES), len(AXES) + len(FAMILIES))
    return np.asarray((one[:, None, of_family] == other[None, :, of_family]).all(axis=2))


def _likeliest(places: Floats, levels: Floats, bases: Sequence[str]) -> Scales:
    """Scales by which each base shape, left out, is foretold best by the others."""
    same, base_of = _same_family(places, places), np.array(bases)
    groups = [np.flatnonzero(base_of == base) for base in dict.fromkeys(bases)]
    shared = np.array(list(itertools.product(_FAMILY, _OWN)))
    family, own = (shared**2).T[:, :, None, None]
    best, most = Scales(_LENGTHS[0], _SPREADS[0], _FAMILY[0], _OWN[0]), -np.inf
    for length, spread in itertools.product(_LENGTHS, _SPREADS):
        kernels = spread**2 * matern(places, places, length) + family * same + own * np.eye(len(places))
        likelihoods = _left_out(kernels, levels, groups)
        first = int(np.argmax(likelihoods))
        if likelihoods[first] > most:
            best, most = Scales(length, spread, *shared[first].tolist()), float(likelihoods[first])
    return best


def _left_out(kernels: Floats, levels: Floats, groups: Sequence[NDArray[np.int64]]) -> Floats:
    """Log likelihood (c,) by kernels (c, j, j) of the levels (j,) of each group given those of all others (Rasmussen
    and Williams 2006, section 5.4.2)."""
    inverse = np.linalg.inv(kernels)
    solved, total = inverse @ levels, np.zeros(len(kernels))
    for group in groups:
        covariance = np.linalg.inv(inverse[:, group[:, None], group])
        sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        far = (covariance @ solved[:, group, None])[..., 0] / sd
        total -= (0.5 * far**2 + np.log(sd)).sum(axis=1)
    return total


def _limit(places: Floats, bases: Sequence[str]) -> float:
    """As far as the loneliest job is from any other base shape; beyond that nothing shows how wrong physics can be."""
    gaps = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
    base_of = np.array(bases)
    apart = np.where(base_of[:, None] != base_of[None], gaps, np.inf).min(axis=1)
    return float(apart.max()) if np.isfinite(apart).all() else 1.0
