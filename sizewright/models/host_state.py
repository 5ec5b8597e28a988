"""The state of the host during each trial, from the CPU seconds that a sample cost.

Throughput is the cores used over the CPU seconds of a sample. Between repeats of an allocation the cores hardly differ
(standard deviation of the log .02 in our bank), while the CPU seconds do (.085): clocks, caches and neighbours of a
host change from minute to minute. Over allocations the CPU seconds change smoothly, so that a trial's deviation from a
smooth curve tells the state of its host:

    log c = trend + g(allocation) + h        c = (w·u_w + p·u_p) / throughput

w workers use u_w cores each, p PS u_p. The trend is linear in the logarithms of the axes, with slopes as the bank has
them; g is a Gaussian process about it, h the state of the host, independent from trial to trial. The standard
deviations of g and h are averaged over a grid by their likelihood, so that code whose CPU seconds change abruptly, or
which waits busily, gets no correction that its trials do not show. The form is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from typing_extensions import Self

from sizewright.datasets.trials.trial import Trial
from sizewright.models.matern import matern
from sizewright.models.table import Columns, Table, as_columns, filled

Floats = NDArray[np.float64]

USE_COLUMNS = ("worker_cpu_used", "ps_cpu_used")
"""Columns of a trial that the correction needs, beside throughput and allocation."""
_SLOPES = {
    "workers": (-0.1, 0.1),
    "ps": (0.08, 0.11),
    "worker_cpu": (-0.2, 0.15),
    "ps_cpu": (-0.02, 0.1),
    "batch_size": (-0.15, 0.3),
    "embedding_bytes": (0.0, 0.05),
}
"""Mean and standard deviation of the slope of log c along each axis, over the jobs of the bank."""
_SMOOTH_SDS, _HOST_SDS = (0.01, 0.03, 0.06, 0.12, 0.25), (0.005, 0.02, 0.04, 0.08, 0.16)
_LOG_SD = (float(np.log(0.06)), 0.7)
"""Mean and standard deviation of the logarithm of both standard deviations, over our grids."""
_LEVEL_SD = 10.0  # as good as a flat prior
_MIN_TRIALS, _MAX_PLACES = 3, 512
_MAX_SHARE_OF_CORES = 1.1
_MAX_JUMP, _MAX_DEVIATION = 1.5, 0.5
"""Log CPU seconds that differ more from the median of the trials, or from the curve, tell a mistake and no state."""


class HostState(NamedTuple):
    """Deviations of the host from its mean state, as logarithms of CPU seconds a sample."""

    deviation: Floats
    """(n,), above 0 where a trial's host was slower; 0 for a trial without the cores that it used."""
    sd: float
    """Standard deviation of the state from trial to trial."""

    @classmethod
    def of(cls, trials: Table) -> Self:
        """Return the state of the host in each row of a trial table; all 0 where fewer than three tell the cores used.

        Raises InputError where a cell is not a number.
        """
        columns = as_columns(trials, ("throughput", *USE_COLUMNS, *_SLOPES))
        log_seconds = _log_cpu_seconds(columns)
        known = np.flatnonzero(np.isfinite(log_seconds))
        deviation = np.zeros(len(log_seconds))
        if len(known) < _MIN_TRIALS:
            return cls(deviation, 0.0)
        axes = np.column_stack([np.log(np.maximum(filled(columns[name], 1.0)[known], 0.05)) for name in _SLOPES])
        axes -= axes.mean(axis=0)
        detrended = log_seconds[known] - axes @ np.array([slope for slope, _ in _SLOPES.values()])
        kept = np.abs(detrended - np.median(detrended)) <= _MAX_JUMP
        while True:
            found, sd = _deviations(axes[kept], detrended[kept])
            if np.abs(found).max() <= _MAX_DEVIATION:
                break
            kept[np.flatnonzero(kept)[np.argmax(np.abs(found))]] = False
        deviation[known[kept]] = found
        return cls(deviation, sd)


def at_mean_state(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials of any jobs, each with the throughput that it would have on a host in its mean state."""
    factors = np.ones(len(trials))
    rows_of_job = defaultdict(list)
    for row, trial in enumerate(trials):
        if trial.usable:
            rows_of_job[trial.job_hash].append(row)
    for rows in rows_of_job.values():
        factors[rows] = np.exp(HostState.of([trials[row] for row in rows]).deviation)
    return [
        trial if factor == 1 else trial.model_copy(update={"throughput": (trial.throughput or 0.0) * factor})
        for trial, factor in zip(trials, factors, strict=True)
    ]  # fmt: skip


def _log_cpu_seconds(columns: Columns) -> Floats:
    """Return log CPU seconds a sample (n,); NaN where they are unknown, or more cores were used than allowed."""
    used = {}
    for role, count in (("worker", "workers"), ("ps", "ps")):
        cores = np.where(columns[count] > 0, columns[f"{role}_cpu_used"], 0.0)
        allowed = filled(columns[f"{role}_cpu"], np.inf)
        used[role] = np.where(cores <= _MAX_SHARE_OF_CORES * allowed, cores * columns[count], np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_seconds = np.log((used["worker"] + used["ps"]) / columns["throughput"])
    return np.where(np.isfinite(log_seconds), log_seconds, np.nan)


def _deviations(axes: Floats, detrended: Floats) -> tuple[Floats, float]:
    """Return the deviations (n,) from the smooth curve over centred `axes` (n, a), and their standard deviation.

    `detrended` are log CPU seconds (n,) without the mean slopes of the trend.
    """
    places, place_of = np.unique(axes.round(9), axis=0, return_inverse=True)
    counts = np.bincount(place_of).astype(float)
    if len(places) > _MAX_PLACES:
        kept = np.linspace(0, len(places) - 1, _MAX_PLACES).astype(int)
    else:
        kept = np.arange(len(places))
    centre = float(np.median(detrended))
    means = np.bincount(place_of, detrended - centre) / counts
    squares = float(((detrended - centre - means[place_of]) ** 2).sum())

    scaled = places * np.array([sd for _, sd in _SLOPES.values()])
    trend = _LEVEL_SD**2 + scaled @ scaled[kept].T  # (p, k)
    kernel = matern(places, places[kept])
    grid = [(smooth, host) for smooth in _SMOOTH_SDS for host in _HOST_SDS]
    likelihoods, curves = [], []
    for smooth, host in grid:
        covariance = trend + smooth**2 * kernel
        cholesky = np.linalg.cholesky(covariance[kept] + np.diag(host**2 / counts[kept] + 1e-8))
        white = np.linalg.solve(cholesky, means[kept])
        repeats = -0.5 * squares / host**2 - (len(detrended) - len(places)) * np.log(host)
        prior = -0.5 * sum(((np.log(sd) - _LOG_SD[0]) / _LOG_SD[1]) ** 2 for sd in (smooth, host))
        likelihoods.append(-0.5 * white @ white - np.log(np.diag(cholesky)).sum() + repeats + prior)
        curves.append(covariance @ np.linalg.solve(cholesky.T, white))
    weights = softmax(likelihoods)
    curve = weights @ np.array(curves)
    sd = float(np.sqrt(weights @ np.array([host**2 for _, host in grid])))
    return detrended - centre - curve[place_of], sd
