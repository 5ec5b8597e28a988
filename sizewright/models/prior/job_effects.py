"""The log offset of each job from the mechanistic model, and the offset that similar jobs predict for a new one.

The mechanistic model predicts every job somewhat too slow or too fast: its log offset. Similar jobs, and jobs of one
family, have similar offsets. A Gaussian process over the descriptions of jobs predicts the offset of a new job, and
how uncertain it is far from all measured jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trial_bank.shapes import BankJob
from sizewright.models.matern import matern
from sizewright.models.prior.work import work_of
from sizewright.spec import Job
from sizewright.spec.model import Family

Floats = NDArray[np.float64]

AXES = (
    "batch size",
    "floating-point operations a sample",
    "layer floats a sample",
    "tables",
    "distinct rows a sample",
    "row width",
    "dense weights",
    "embedding bytes",
)
FAMILIES: tuple[str, ...] = get_args(Family)
_FAMILY_COLUMNS = slice(len(AXES), len(AXES) + len(FAMILIES))
# Distance, in standard deviations of an axis, that a different family or mode adds.
_FAMILY_DISTANCE, _MODE_DISTANCE = 0.7, 1.0
# The grid of hyperparameters.
_LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0)
_SIGNAL_SDS = (0.05, 0.1, 0.2, 0.3)
_FAMILY_SDS = (0.03, 0.1, 0.3, 1.0)
_NUGGET_SDS = (0.02, 0.05, 0.1, 0.2)
# A job this many standard deviations from what similar jobs predict is an exception.
_EXCEPTION_SDS, _MIN_SD = 4.0, 1e-3
_ROUNDS = 2


class JobEffect(NamedTuple):
    """The predicted log offset of one job from the mechanistic model, and its most similar measured job."""

    log_offset: float
    sd: float
    distance: float
    nearest: str
    axis: str
    """The axis on which it differs most from the nearest job."""
    known: bool = False
    """True where this very job was measured."""


class Hyperparameters(NamedTuple):
    """The Gaussian process: its length scale, and the sd of what similar jobs, a family, and one job share."""

    length_scale: float
    signal_sd: float
    family_sd: float
    nugget_sd: float


_FILE_KEYS = {"length_scale": "length", "signal_sd": "spread", "family_sd": "family", "nugget_sd": "own"}
"""Names of the hyperparameters in files."""


class JobEffects(NamedTuple):
    """A Gaussian process conditioned on the log offsets of measured jobs (j)."""

    names: tuple[str, ...]
    bases: tuple[str, ...]
    hashes: tuple[str, ...]
    features: Floats
    """Descriptions of the jobs (j, a), in standard deviations."""
    centre: Floats
    scale: Floats
    log_offsets: Floats
    job_sd: Floats
    """(j,), sd of what only this job has: larger for a job that deviates from all similar ones."""
    noise: Floats
    """(j,), sd of the measurement of each log offset."""
    hyperparameters: Hyperparameters
    max_distance: float
    """The largest distance from the nearest measured job at which a job can be predicted."""

    def predict(self, job: Job, table_scale: float = 1.0) -> JobEffect:
        """Return the predicted effect of a job, with the share `table_scale` of its rows."""
        features = self._standardize(describe(job, table_scale))
        distances = np.sqrt(((self.features - features) ** 2).sum(axis=1))
        nearest = int(np.argmin(distances))
        column = int(np.argmax(np.abs(features - self.features[nearest])))
        same = self._same_job([job])
        mean, sd = krige(self, features[None], same)
        return JobEffect(
            log_offset=float(mean[0]),
            sd=float(sd[0]),
            distance=float(distances[nearest]),
            nearest=self.names[nearest],
            axis=AXES[column] if column < len(AXES) else "family or mode",
            known=bool(same.any()),
        )

    def similarity(self, jobs: Sequence[Job]) -> tuple[Floats, Floats]:
        """Return the similarity of jobs (m, m), from 0 to 1, and the posterior covariance (m, m) of their offsets.

        Each counts as a job of its own: equal jobs have similarity 1, but do not share what only one job has.
        """
        at = np.array([self._standardize(describe(job)) for job in jobs])
        return matern(at, at, self.hyperparameters.length_scale), _posterior(self, at, self._same_job(jobs))[1]

    def distance(self, one: Job, other: Job) -> float:
        """Return the distance of two jobs, in the standard deviations of `features`."""
        return float(np.linalg.norm(self._standardize(describe(one)) - self._standardize(describe(other))))

    def _same_job(self, jobs: Sequence[Job]) -> NDArray[np.bool_]:
        """Return whether each of the jobs (m) is each of the measured ones: (m, j)."""
        return np.array([[known in hashes for known in self.hashes] for hashes in (job.hashes for job in jobs)])

    def _standardize(self, description: Floats) -> Floats:
        return (description - self.centre) / self.scale

    def as_record(self) -> dict[str, Any]:
        """Return everything as plain numbers, by its name in files."""
        arrays = {
            "places": self.features,
            "centre": self.centre,
            "scale": self.scale,
            "levels": self.log_offsets,
            "to_itself": self.job_sd,
            "noise": self.noise,
        }
        return {
            "names": self.names,
            "bases": self.bases,
            "hashes": self.hashes,
            **{name: array.tolist() for name, array in arrays.items()},
            "limit": self.max_distance,
            **{_FILE_KEYS[name]: value for name, value in self.hyperparameters._asdict().items()},
        }


def from_record(record: dict[str, Any]) -> JobEffects:
    """Return the effects that `as_record` wrote. Raises KeyError, TypeError or ValueError for any other record."""

    def array(key: str) -> Floats:
        return np.array(record[key], float)

    def names(key: str) -> tuple[str, ...]:
        return tuple(map(str, record[key]))

    return JobEffects(
        names=names("names"),
        bases=names("bases"),
        hashes=names("hashes"),
        features=array("places"),
        centre=array("centre"),
        scale=array("scale"),
        log_offsets=array("levels"),
        job_sd=array("to_itself"),
        noise=array("noise"),
        hyperparameters=Hyperparameters(**{name: float(record[key]) for name, key in _FILE_KEYS.items()}),
        max_distance=float(record["limit"]),
    )


def learn(jobs: Sequence[BankJob], described: Floats, log_offsets: Floats, noise: Floats) -> JobEffects:
    """Return the effects of measured jobs from their descriptions (j, a), log offsets (j,) and the sd of these (j,)."""
    logs = described[:, : len(AXES)]
    centre, scale = np.zeros(described.shape[1]), np.ones(described.shape[1])
    centre[: len(AXES)] = logs.mean(axis=0)
    scale[: len(AXES)] = np.maximum(logs.std(axis=0), 0.1)
    features = (described - centre) / scale
    bases = [job.base for job in jobs]
    hyperparameters, job_sd = _fit_hyperparameters(features, log_offsets, noise, bases)
    return JobEffects(
        names=tuple(job.job.name for job in jobs),
        bases=tuple(bases),
        hashes=tuple(job.job.hash for job in jobs),
        features=features,
        centre=centre,
        scale=scale,
        log_offsets=log_offsets,
        job_sd=job_sd,
        noise=noise,
        hyperparameters=hyperparameters,
        max_distance=_max_distance(features, bases),
    )


def describe(job: Job, table_scale: float = 1.0) -> Floats:
    """Return the description of a job (a,): logarithms of sizes, then a column for each family and for the mode."""
    batch = float(job.batch_size_for(job.worker_counts[len(job.worker_counts) // 2]))
    columns = work_of(job, np.array([batch]), np.array([table_scale]))._asdict()
    work = {name: float(column[0]) for name, column in columns.items()}
    sizes = [
        batch,
        work["flops"] / batch,
        work["layer_floats"] / batch,
        job.model.tables.count,
        work["rows"] / batch,
        sum(job.model.row_widths) / job.model.tables.count,
        work["weights"],
        work["embedding_bytes"],
    ]
    families = [_FAMILY_DISTANCE * (job.model.family == family) for family in FAMILIES]
    return np.array([*np.log(np.maximum(sizes, 1e-9)), *families, _MODE_DISTANCE * (job.training.sync == "sync")])


def krige(effects: JobEffects, at: Floats, same: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return mean and sd (m,) of the log offset of jobs with features `at` (m, a); the mean is 0 far from all jobs.

    kᵀK⁻¹y and C − kᵀK⁻¹k (Rasmussen and Williams 2006, section 2.2), where K includes what only one job has, and noise.
    `same` (m, j) marks jobs that were measured: only for these it is known what only that job has.
    """
    mean, covariance = _posterior(effects, at, same)
    return mean, np.sqrt(np.maximum(np.diag(covariance), _MIN_SD**2))


def _posterior(effects: JobEffects, at: Floats, same: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return mean (m,) and covariance (m, m) of log offsets at `at` (m, a): see `krige`."""
    hyperparameters, features = effects.hyperparameters, effects.features
    job_sd = effects.job_sd * same
    cross = _covariance(at, features, hyperparameters) + effects.job_sd * job_sd
    kernel = _covariance(features, features, hyperparameters) + np.diag(effects.job_sd**2 + effects.noise**2)
    solved = np.linalg.solve(kernel, np.column_stack([effects.log_offsets, cross.T]))
    job_variance = np.where(job_sd.any(axis=1), job_sd.max(axis=1), hyperparameters.nugget_sd) ** 2
    covariance = _covariance(at, at, hyperparameters) + np.diag(job_variance) - cross @ solved[:, 1:]
    return cross @ solved[:, 0], covariance


def _covariance(one: Floats, other: Floats, hyperparameters: Hyperparameters) -> Floats:
    """Return the covariance (m, j) of what jobs with features `one` (m, a) and `other` (j, a) share."""
    similarity = matern(one, other, hyperparameters.length_scale)
    family_variance = hyperparameters.family_sd**2 * _same_family(one, other)
    return np.asarray(hyperparameters.signal_sd**2 * similarity + family_variance)


def _same_family(one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Return whether jobs with features `one` (m, a) and `other` (j, a) are of one family: (m, j)."""
    return np.asarray((one[:, None, _FAMILY_COLUMNS] == other[None, :, _FAMILY_COLUMNS]).all(axis=2))


def _fit_hyperparameters(
    features: Floats, log_offsets: Floats, noise: Floats, bases: Sequence[str]
) -> tuple[Hyperparameters, Floats]:
    """Return hyperparameters by which the jobs of each base shape are predicted well from the others, and `job_sd`.

    A job that is missed by far is an exception, and its deviation counts as what only that job has. This keeps the
    predictions of other jobs sharp: the hyperparameters are fitted again with exceptions as no evidence on others.
    """
    groups = [np.flatnonzero(np.array(bases) == base) for base in dict.fromkeys(bases)]
    exceptions = np.zeros(len(log_offsets))
    for _ in range(_ROUNDS):
        variance = noise**2 + exceptions**2
        hyperparameters = _average_hyperparameters(features, log_offsets, variance, groups, exceptions)
        kernel = _covariance(features, features, hyperparameters) + np.diag(hyperparameters.nugget_sd**2 + variance)
        errors, sd = _leave_groups_out(kernel[None], log_offsets, groups, exceptions)
        exceptions = np.where(np.abs(errors / sd) > _EXCEPTION_SDS, np.abs(errors), 0.0)[0]
    return hyperparameters, np.maximum(exceptions, hyperparameters.nugget_sd)


def _average_hyperparameters(
    features: Floats,
    log_offsets: Floats,
    variance: Floats,
    groups: Sequence[NDArray[np.int64]],
    exceptions: Floats,
) -> Hyperparameters:
    """Return the geometric mean over a grid, weighted by likelihood, so that one job more or less changes it little."""
    same_family, eye = _same_family(features, features), np.eye(len(features))
    inner_grid = np.array(list(itertools.product(_FAMILY_SDS, _NUGGET_SDS)))
    family_variance, nugget_variance = (inner_grid**2).T[:, :, None, None]
    log_likelihoods = []
    for length_scale, signal_sd in itertools.product(_LENGTH_SCALES, _SIGNAL_SDS):
        shared = signal_sd**2 * matern(features, features, length_scale)
        kernels = shared + family_variance * same_family + nugget_variance * eye
        errors, sd = _leave_groups_out(kernels + np.diag(variance), log_offsets, groups, exceptions)
        squares = np.minimum(np.abs(errors / sd), _EXCEPTION_SDS) ** 2
        log_likelihoods.append(-(0.5 * squares + np.log(sd)).sum(axis=1))
    logs = np.concatenate(log_likelihoods)
    weights = np.exp(logs - logs.max())
    grid = np.log(list(itertools.product(_LENGTH_SCALES, _SIGNAL_SDS, _FAMILY_SDS, _NUGGET_SDS)))
    return Hyperparameters(*np.exp(weights @ grid / weights.sum()).tolist())


def _leave_groups_out(
    kernels: Floats, log_offsets: Floats, groups: Sequence[NDArray[np.int64]], exceptions: Floats
) -> tuple[Floats, Floats]:
    """Return error and sd (c, j) of each log offset (j,), predicted from all other groups by each kernel (c, j, j).

    The closed form of leave-group-out (Rasmussen and Williams 2006, section 5.4.2). What only one job has, given as
    `exceptions` (j,), does not count towards the sd.
    """
    inverse = np.linalg.inv(kernels)
    solved = inverse @ log_offsets
    errors, sd = np.empty_like(solved), np.empty_like(solved)
    for size in {len(group) for group in groups}:
        at = np.array([group for group in groups if len(group) == size])
        covariance = np.linalg.inv(inverse[:, at[:, :, None], at[:, None, :]])
        errors[:, at] = (covariance @ solved[:, at, None])[..., 0]
        sd[:, at] = np.sqrt(np.diagonal(covariance, axis1=2, axis2=3))
    return errors, np.sqrt(np.maximum(sd**2 - exceptions**2, _MIN_SD**2))


def _max_distance(features: Floats, bases: Sequence[str]) -> float:
    """Return the largest distance of any job from all other base shapes.

    No measurement shows how wrong the mechanistic model can be beyond that distance.
    """
    distances = np.sqrt(((features[:, None] - features[None]) ** 2).sum(axis=2))
    base_of = np.array(bases)
    nearest_other = np.where(base_of[:, None] != base_of[None], distances, np.inf).min(axis=1)
    return float(nearest_other.max()) if np.isfinite(nearest_other).all() else 1.0
