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

from sizewright.datasets.bank.shapes import BankJob
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
_FAMILY_AXES = slice(len(AXES), len(AXES) + len(FAMILIES))
# A job so many standard deviations from what those like it tell is a case of its own.
_APART, _LEAST_SD = 4.0, 1e-3
_ROUNDS = 2


class Guess(NamedTuple):
    """Of a job: how much faster than physics foretells, in log, how sure that is, and where it lies."""

    level: float
    sd: float
    distance: float
    nearest: str
    axis: str
    """On which it is farthest from the nearest."""
    known: bool = False
    """Whether this very job was measured."""


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
    hashes: tuple[str, ...]
    places: Floats
    """(j, a), in standard deviations."""
    centre: Floats
    scale: Floats
    levels: Floats
    to_itself: Floats
    """(j,), standard deviation of what each has to itself: more where it is unlike all that is like it."""
    noise: Floats
    """(j,), standard deviation of each level about the truth."""
    scales: Scales
    limit: float
    """How far from the nearest a job may be."""

    def guess(self, job: Job, table_scale: float = 1.0) -> Guess:
        """Of a new job."""
        place = self._standard(describe(job, table_scale))
        gaps = np.sqrt(((self.places - place) ** 2).sum(axis=1))
        nearest = int(np.argmin(gaps))
        far = int(np.argmax(np.abs(place - self.places[nearest])))
        mine = job.hashes
        same = np.array([[known in mine for known in self.hashes]])
        level, sd = krige(self, place[None], same)
        axis = AXES[far] if far < len(AXES) else "family or mode"
        return Guess(float(level[0]), float(sd[0]), float(gaps[nearest]), self.names[nearest], axis, bool(same.any()))

    def together(self, jobs: Sequence[Job]) -> tuple[Floats, Floats]:
        """Of different jobs (m,): how alike they are, 0 to 1 (m, m), and the covariance (m, m) of how far each one's
        level lies from what is guessed of it."""
        at = np.array([self._standard(describe(job)) for job in jobs])
        same = np.array([[known in mine for known in self.hashes] for mine in (job.hashes for job in jobs)])
        return matern(at, at, self.scales.length), _posterior(self, at, same)[1]

    def distance(self, one: Job, other: Job) -> float:
        """Between two jobs, in the standard deviations that `places` are in."""
        return float(np.linalg.norm(self._standard(describe(one)) - self._standard(describe(other))))

    def _standard(self, place: Floats) -> Floats:
        return (place - self.centre) / self.scale

    def as_record(self) -> dict[str, Any]:
        """In plain numbers."""
        told = {k: v for k, v in self._asdict().items() if k != "scales"} | self.scales._asdict()
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in told.items()}


def from_record(record: dict[str, Any]) -> Experience:
    """As `as_record` gave it. Raises KeyError, TypeError or ValueError for another."""
    arrays: dict[str, Any] = {
        name: np.array(record[name], float) for name in ("places", "centre", "scale", "levels", "to_itself", "noise")
    }
    names = {name: tuple(map(str, record[name])) for name in ("names", "bases", "hashes")}
    scales = Scales(*(float(record[name]) for name in Scales._fields))
    return Experience(**(arrays | names), scales=scales, limit=float(record["limit"]))


def learn(jobs: Sequence[BankJob], described: Floats, levels: Floats, noise: Floats) -> Experience:
    """From descriptions (j, a) and levels (j,) of measured jobs, which are so far (j,) from the truth."""
    logs = described[:, : len(AXES)]
    centre, scale = np.zeros(described.shape[1]), np.ones(described.shape[1])
    centre[: len(AXES)] = logs.mean(axis=0)
    scale[: len(AXES)] = np.maximum(logs.std(axis=0), 0.1)
    places = (described - centre) / scale
    bases = [job.base for job in jobs]
    scales, to_itself = _likely(places, levels, noise, bases)
    return Experience(
        tuple(job.job.name for job in jobs), tuple(bases), tuple(job.job.hash for job in jobs),
        places, centre, scale, levels, to_itself, noise, scales, _limit(places, bases),
    )  # fmt: skip


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


def krige(known: Experience, at: Floats, same: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean and standard deviation (m,) of levels at `at` (m, a), given those that are known; 0 far away.

    kᵀK⁻¹y and C − kᵀK⁻¹k (Rasmussen and Williams 2006, section 2.2), K with what each job has to itself and noise. What
    a job has to itself is known of the `same` job (m, j) only.
    """
    mean, covariance = _posterior(known, at, same)
    return mean, np.sqrt(np.maximum(np.diag(covariance), _LEAST_SD**2))


def _posterior(known: Experience, at: Floats, same: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean (m,) and covariance (m, m) of levels at `at` (m, a): see `krige`."""
    scales, places = known.scales, known.places
    own = known.to_itself * same
    cross = _alike(at, places, scales) + known.to_itself * own
    kernel = _alike(places, places, scales) + np.diag(known.to_itself**2 + known.noise**2)
    solved = np.linalg.solve(kernel, np.column_stack([known.levels, cross.T]))
    of_own = np.where(own.any(axis=1), own.max(axis=1), scales.own) ** 2
    return cross @ solved[:, 0], _alike(at, at, scales) + np.diag(of_own) - cross @ solved[:, 1:]


def _alike(one: Floats, other: Floats, scales: Scales) -> Floats:
    """Covariance (m, j) of what jobs at `one` (m, a) and `other` (j, a) have in common."""
    near = matern(one, other, scales.length)
    return np.asarray(scales.spread**2 * near + scales.family**2 * _same_family(one, other))


def _same_family(one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Of jobs at `one` (m, a) and `other` (j, a): (m, j)."""
    return np.asarray((one[:, None, _FAMILY_AXES] == other[None, :, _FAMILY_AXES]).all(axis=2))


def _likely(places: Floats, levels: Floats, noise: Floats, bases: Sequence[str]) -> tuple[Scales, Floats]:
    """Scales by which each base shape, left out, is foretold well by the others, and what each job has to itself (j,).

    Jobs that are missed by far have that to themselves, so that the others are told no less surely: once these are
    known, scales are sought again as if they told nothing of the others.
    """
    groups = [np.flatnonzero(np.array(bases) == base) for base in dict.fromkeys(bases)]
    alone = np.zeros(len(levels))
    for _ in range(_ROUNDS):
        known = noise**2 + alone**2
        scales = _likely_scales(places, levels, known, groups, alone)
        kernel = _alike(places, places, scales) + np.diag(scales.own**2 + known)
        missed, sd = _left_out(kernel[None], levels, groups, alone)
        alone = np.where(np.abs(missed / sd) > _APART, np.abs(missed), 0.0)[0]
    return scales, np.maximum(alone, scales.own)


def _likely_scales(
    places: Floats, levels: Floats, known: Floats, groups: Sequence[NDArray[np.int64]], alone: Floats
) -> Scales:
    """Means of their logarithms over a grid, by likelihood: a job more or less moves them by little."""
    same, shared = _same_family(places, places), np.array(list(itertools.product(_FAMILY, _OWN)))
    family, own = (shared**2).T[:, :, None, None]
    likelihoods = []
    for length, spread in itertools.product(_LENGTHS, _SPREADS):
        kernels = spread**2 * matern(places, places, length) + family * same + own * np.eye(len(places))
        missed, sd = _left_out(kernels + np.diag(known), levels, groups, alone)
        likelihoods.append(-(0.5 * np.minimum(np.abs(missed / sd), _APART) ** 2 + np.log(sd)).sum(axis=1))
    logs = np.concatenate(likelihoods)
    weights = np.exp(logs - logs.max())
    grid = np.log(list(itertools.product(_LENGTHS, _SPREADS, _FAMILY, _OWN)))
    return Scales(*np.exp(weights @ grid / weights.sum()).tolist())


def _left_out(
    kernels: Floats, levels: Floats, groups: Sequence[NDArray[np.int64]], alone: Floats
) -> tuple[Floats, Floats]:
    """By kernels (c, j, j), how far each level (j,) is from what those of all other groups tell, and how sure that is:
    (c, j) each (Rasmussen and Williams 2006, section 5.4.2). What jobs have to themselves (j,) makes that no less sure.
    """
    inverse = np.linalg.inv(kernels)
    solved = inverse @ levels
    missed, sd = np.empty_like(solved), np.empty_like(solved)
    for group in groups:
        covariance = np.linalg.inv(inverse[:, group[:, None], group])
        missed[:, group] = (covariance @ solved[:, group, None])[..., 0]
        sd[:, group] = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    return missed, np.sqrt(np.maximum(sd**2 - alone**2, _LEAST_SD**2))


def _limit(places: Floats, bases: Sequence[str]) -> float:
    """As far as the loneliest job is from any other base shape; beyond that nothing shows how wrong physics can be."""
    gaps = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
    base_of = np.array(bases)
    apart = np.where(base_of[:, None] != base_of[None], gaps, np.inf).min(axis=1)
    return float(apart.max()) if np.isfinite(apart).all() else 1.0
