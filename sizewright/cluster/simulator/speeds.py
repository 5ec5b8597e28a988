"""What policies know of the speeds of jobs: all of them, or estimates that are learned as the jobs run."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import Bools, Floats, Ints
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload

SPEEDS = ("known", "learned")
"""The names of what policies know."""
GROWTH = 2.0
"""A job is offered at most this many times the largest size at which it has run (Pollux, OSDI 2021; Sia, SOSP 2023)."""


class KnownSpeeds:
    """Policies know the speed of each job at each size."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def observe(self, state: SimulationState) -> None:
        """Learn from what the live jobs have done so far."""

    def estimates(self, jobs: Ints) -> Floats:
        """Return the speeds (n, K) of jobs (n,) that policies see."""
        return np.asarray(self.workload.speed[jobs])

    def offered(self, jobs: Ints) -> Bools:
        """Return the candidates (n, K) of jobs (n,) that policies may choose."""
        return np.asarray(self.workload.offered[jobs])


class LearnedSpeeds(KnownSpeeds):
    """Policies know the speeds at the sizes at which a job has run, and see estimates for the others.

    As in Sia, a job that arrives is measured at its smallest size on each kind of GPU, in no time. As in Pollux, its
    speed is taken to grow in proportion to its size until it has run at another one; from then on by the power law
    through the two known sizes next to it. On a kind on which it has not run, it grows as on the kind where most sizes
    are known. An estimate errs by a lognormal factor, which is drawn once for each job and size.

    A job is offered its smallest sizes, what its user requested, and up to `GROWTH` times the largest size at which it
    has run, or one size more.
    """

    def __init__(self, workload: Workload, error: float, seed: int) -> None:
        """`error` is the standard deviation of the logarithm of an estimate over its mean."""
        super().__init__(workload)
        self.factor = np.random.default_rng((seed, 1)).lognormal(0.0, error, workload.speed.shape)
        self.units = workload.units(workload.needs)
        self.kind = workload.gpu_kind(np.arange(len(workload)))
        self.ran = np.zeros(workload.speed.shape, dtype=bool)
        """(N, K): True for the candidates with which a job has trained."""
        self._estimate = np.full(workload.speed.shape, np.nan)
        self._offered = np.zeros(workload.speed.shape, dtype=bool)

    def observe(self, state: SimulationState) -> None:
        """See `KnownSpeeds`."""
        live = state.live
        is_new = np.isnan(self._estimate[live, 0]) | (state.trained[live] != self.ran[live]).any(axis=1)
        for job in map(int, live[is_new]):
            self.ran[job] = state.trained[job]
            self._offered[job] = self._offers(job)
            self._estimate[job] = self._estimates(job)

    def estimates(self, jobs: Ints) -> Floats:
        """See `KnownSpeeds`."""
        return np.asarray(self._estimate[jobs])

    def offered(self, jobs: Ints) -> Bools:
        """See `KnownSpeeds`."""
        return np.asarray(self._offered[jobs])

    def _smallest(self, job: int) -> Bools:
        """Return the smallest candidate (K,) of a job on each kind."""
        units = np.where(self.workload.offered[job], self.units[job], 0.0)
        smallest = np.zeros(len(units), dtype=bool)
        for kind in np.unique(self.kind[job, units > 0]):
            of_kind = np.where((self.kind[job] == kind) & (units > 0), units, np.inf)
            smallest[of_kind.argmin()] = True
        return smallest

    def _offers(self, job: int) -> Bools:
        """Return the candidates (K,) that a job is offered."""
        offered, units = self.workload.offered[job], self.units[job]
        limit = 0.0
        if self.ran[job].any():
            largest = units[self.ran[job]].max()
            limit = max(GROWTH * largest, units[offered & (units > largest)].min(initial=np.inf))
            limit = limit if np.isfinite(limit) else GROWTH * largest
        may = (units <= limit) | self._smallest(job) | self.workload.requests(np.array([job]))[0]
        may[0] = True
        return np.asarray(offered & may)

    def _estimates(self, job: int) -> Floats:
        """Return the estimated speeds (K,) of a job."""
        truth, kinds = self.workload.speed[job], self.kind[job]
        is_known = self.ran[job] | self._smallest(job)
        candidates = truth > 0
        known_on = {kind: is_known & (kinds == kind) for kind in np.unique(kinds[candidates & is_known])}
        log_size = np.log(np.where(candidates, self.units[job], 1.0))
        log_speed = np.log(np.where(candidates, truth, 1.0))
        best = max(known_on, key=lambda kind: int(known_on[kind].sum()), default=0)
        estimate = np.zeros(len(truth))
        for kind, known in known_on.items():
            of_kind = candidates & (kinds == kind)
            source = known if known.sum() > 1 else known_on[best]
            order = np.flatnonzero(source)[np.argsort(log_size[source], kind="stable")]
            along = _through(log_size[order], log_speed[order], log_size)
            first = np.flatnonzero(known)[0]
            estimate[of_kind] = np.exp(along - along[first] + log_speed[first])[of_kind]
        return np.asarray(np.where(is_known, truth, estimate * self.factor[job]))


def _through(log_size: Floats, log_speed: Floats, at: Floats) -> Floats:
    """Return log speeds at log sizes `at` on the power laws through neighbouring points; one point scales linearly."""
    if len(log_size) == 1:
        return np.asarray(log_speed[0] + at - log_size[0])
    slope = np.diff(log_speed) / np.diff(log_size)
    segment = np.clip(np.searchsorted(log_size, at) - 1, 0, len(slope) - 1)
    return np.asarray(log_speed[segment] + slope[segment] * (at - log_size[segment]))
