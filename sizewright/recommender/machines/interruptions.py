"""The completion time of a job that is interrupted now and then and resumes from its last checkpoint.

Interruptions come at random (a Poisson process), each stops the whole job, and the work since the last checkpoint is
lost. A restart takes `restart_s` without training, and an interruption during it starts it anew. These are the rules of
the simulator's failures. The mean is Daly's ("A higher order estimate of the optimum checkpoint interval for restart
dumps", FGCS 2006, eq. 13) for whole intervals, after Young (CACM 1974); the distribution is ours.

All times are in seconds. The work is the time that the job takes without interruptions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]

_NO_RATE = 1e-200
_MIN_HAZARD = 1e-6  # of a stretch; with less the interruption is as likely at any time, to rounding
_POINTS = 2048  # of the grid of times
_DAMPING = 20.0  # of the tail beyond the grid, which the transform would fold back: its share becomes e⁻²⁰
_WORKS = 65  # of the grid of works, over which the unknown throughput is integrated
_NEGLIGIBLE = 1e-4  # share of works beyond the grid
_MIN_SD = 1e-9


@dataclass(frozen=True)
class Checkpoints:
    """How a job recovers from an interruption."""

    every_s: float
    """Time between checkpoints."""
    restart_s: float
    """Time from an interruption until training continues."""

    def expected_time_s(self, work_s: Floats, rate: Floats | float) -> Floats:
        """Return the mean completion times (n,), given works (n,) and interruptions of the job per second (n,).

        They are infinite where a checkpoint is hardly ever reached.
        """
        rate = np.maximum(rate, _NO_RATE)
        whole = np.floor(work_s / self.every_s)
        with np.errstate(over="ignore", invalid="ignore"):
            intervals = np.where(whole > 0, whole * np.expm1(rate * self.every_s), 0.0)
            rest = np.expm1(rate * (work_s - whole * self.every_s))
            return np.asarray(np.exp(rate * self.restart_s) * (intervals + rest) / rate)

    def slowdown(self, rate: Floats | float) -> Floats:
        """Return the mean time of a second of work (n,) in a long job, given interruptions per second (n,)."""
        rate = np.maximum(rate, _NO_RATE)
        with np.errstate(over="ignore"):
            time_s = np.exp(rate * self.restart_s) * np.expm1(rate * self.every_s) / rate
        return np.asarray(time_s / self.every_s)


class ExtraTime:
    """The distribution of the time that interruptions add to works (m,), up to `span_s`.

    The number of interruptions of an interval is geometric, and each adds the lost work and a restart. So the
    generating function of the sum is known. A fast Fourier transform inverts it on an exponentially damped grid (Grübel
    and Hermesmeier, ASTIN Bulletin 1999).
    """

    def __init__(self, work_s: Floats, rate: float, checkpoints: Checkpoints, span_s: float) -> None:
        self.step_s = span_s / (_POINTS - 1)
        self._damping = np.exp(-_DAMPING * np.arange(_POINTS) / _POINTS)
        rate = max(rate, _NO_RATE)
        every_s, restart_s = checkpoints.every_s, checkpoints.restart_s
        restart = self._transform(self._at(restart_s)) * _until_success(
            rate * restart_s, self._transform(self._lost(rate, np.array([restart_s])))
        )
        whole = np.floor(work_s / every_s)
        rest_s = work_s - whole * every_s
        interval = _until_success(rate * every_s, restart * self._transform(self._lost(rate, np.array([every_s]))))
        rest = _until_success(rate * rest_s[:, None], restart * self._transform(self._lost(rate, rest_s)))
        probability = np.fft.irfft(rest * interval ** whole[:, None], _POINTS) / self._damping
        self._cumulated = np.clip(np.cumsum(probability, axis=1), 0.0, 1.0)

    def within(self, limits_s: Floats) -> Floats:
        """Return the probabilities (m,) that interruptions add at most `limits_s` (m,)."""
        ends_s = (np.arange(_POINTS) + 0.5) * self.step_s
        within = [np.interp(limit, ends_s, row) for limit, row in zip(limits_s, self._cumulated, strict=True)]
        return np.asarray(np.where(limits_s < 0, 0.0, within))

    def times(self, work_s: Floats) -> tuple[Floats, Floats]:
        """Return the completion times of all works (m,), each as likely as the others, and their probabilities."""
        times_s = work_s[:, None] + np.arange(_POINTS) * self.step_s
        return times_s.ravel(), np.diff(self._cumulated, axis=1, prepend=0.0).ravel() / len(work_s)

    def _transform(self, probability: Floats) -> NDArray[np.complex128]:
        return np.asarray(np.fft.rfft(probability * self._damping))

    def _at(self, time_s: float) -> Floats:
        """Return a certain time on the grid (1, points), between two of its points in proportion."""
        point = np.arange(_POINTS) - time_s / self.step_s
        return np.asarray(np.maximum(1.0 - np.abs(point), 0.0)[None, :])

    def _lost(self, rate: float, length_s: Floats) -> Floats:
        """Return the distribution of the time (m, points) until the interruption of stretches (m,) with one.

        Each time lies between two points of the grid in proportion, so that the mean is exact on any grid.
        """
        length = np.maximum(length_s, 1e-9)[:, None]
        each_rate = np.maximum(rate, _MIN_HAZARD / length)
        time = np.arange(-1, _POINTS + 1) * self.step_s
        before_end = np.clip(time, 0.0, length)
        # the integral of the cumulated distribution (1 - e^-λt) / (1 - e^-λ·length)
        integral = (before_end + np.expm1(-each_rate * before_end) / each_rate) / -np.expm1(-each_rate * length)
        integral = integral + np.maximum(time - length, 0.0)
        return np.asarray(np.diff(integral, n=2, axis=1) / self.step_s)


def _until_success(hazard: Floats | float, attempt: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the transform of the failed attempts before one succeeds, which has the probability e^-hazard."""
    success = np.exp(-np.asarray(hazard))
    return np.asarray(success / (1.0 - (1.0 - success) * attempt))


@dataclass(frozen=True)
class WorkTimes:
    """Works (n,) that are known with an error: lognormal, with other standard deviations above and below the median."""

    median_s: Floats
    sd_slower: Floats
    sd_faster: Floats

    @classmethod
    def of(cls, median_s: Floats, shortest_s: Floats, longest_s: Floats, *, slower: float, faster: float) -> WorkTimes:
        """Return works whose quantiles are known: 0.5, `slower` (above it) and `faster` (below it)."""
        sd_slower = np.log(longest_s / median_s) / ndtri(slower)
        sd_faster = np.log(shortest_s / median_s) / ndtri(faster)
        return cls(median_s, np.maximum(sd_slower, _MIN_SD), np.maximum(sd_faster, _MIN_SD))

    def within(self, limits_s: Floats) -> Floats:
        """Return the probabilities (n, m) that the works are below limits (m,)."""
        with np.errstate(divide="ignore"):
            excess = np.log(np.maximum(limits_s, 0.0) / self.median_s[:, None])
        sd = np.where(excess > 0, self.sd_slower[:, None], self.sd_faster[:, None])
        return np.asarray(ndtr(excess / sd))

    def quantiles(self, shares: Floats) -> Floats:
        """Return the quantiles (n, m) of shares (m,)."""
        z = ndtri(shares)
        sd = np.where(z > 0, self.sd_slower[:, None], self.sd_faster[:, None])
        return np.asarray(self.median_s[:, None] * np.exp(sd * z))

    def row(self, row: int) -> WorkTimes:
        """Return one of the works, as an array of one."""
        return WorkTimes(self.median_s[[row]], self.sd_slower[[row]], self.sd_faster[[row]])


def probability_within(deadline_s: float, works: WorkTimes, rate: Floats, checkpoints: Checkpoints) -> Floats:
    """Return the probabilities (n,) that jobs complete by a deadline, given interruptions per second (n,)."""
    if not len(rate):
        return np.zeros(0)
    ends_s = works.quantiles(np.array([_NEGLIGIBLE, 1 - _NEGLIGIBLE]))
    work_s = np.linspace(min(ends_s.min(), deadline_s), min(ends_s.max(), deadline_s), _WORKS)
    reached, by_deadline = works.within(work_s), works.within(np.array([deadline_s]))[:, 0]
    share = np.diff(reached, axis=1)
    span_s = max(deadline_s - float(work_s[0]), _NEGLIGIBLE * deadline_s)
    probability = np.zeros(len(rate))
    for each in np.unique(rate):
        rows = rate == each
        within = ExtraTime(work_s, float(each), checkpoints, span_s).within(deadline_s - work_s)
        beyond = reached[rows, 0] * within[0] + (by_deadline - reached[:, -1])[rows] * within[-1]
        probability[rows] = beyond + share[rows] @ ((within[1:] + within[:-1]) / 2)
    return probability


def time_quantiles(shares: Floats, works: WorkTimes, rate: float, checkpoints: Checkpoints) -> Floats:
    """Return quantiles (m,) of the completion time of one job, given interruptions per second.

    They are infinite where the mean is.
    """
    work_s = works.quantiles((np.arange(_WORKS) + 0.5) / _WORKS)[0]
    extra_s = float((checkpoints.expected_time_s(work_s, rate) - work_s).max())
    if not np.isfinite(extra_s):
        return np.full(len(shares), np.inf)
    longest_loss_s = min(checkpoints.every_s, float(work_s.max())) + checkpoints.restart_s
    span_s = 16 * extra_s + 4 * longest_loss_s  # the tail is at most that of an exponential distribution
    times_s, probability = ExtraTime(work_s, rate, checkpoints, span_s).times(work_s)
    order = np.argsort(times_s)
    reached = np.cumsum(probability[order])
    return np.interp(shares, (reached - probability[order] / 2) / reached[-1], times_s[order])
