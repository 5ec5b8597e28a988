"""The jobs of a simulation: their arrivals, their work, and their speed with each candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Bools, Floats, Ints
from sizewright.cluster.problem.scheduler_state import units_of
from sizewright.errors import InputError


@dataclass(frozen=True)
class Workload:
    """N jobs, in order of arrival, with K columns of R resources; column 0 is nothing."""

    jobs: Sequence[str]
    resources: Sequence[str]
    arrived_s: Floats
    """(N,): times of arrival."""
    work: Floats
    """(N,): work, in units of speed × seconds."""
    known_work: Floats
    """(N,): the estimate of the work that policies see."""
    speed: Floats
    """(N, K)."""
    needs: Floats
    """(N, K, R)."""
    offered: Bools
    """(N, K): True for nothing, all candidates of elastic jobs, and the one candidate of rigid jobs."""
    requested: Ints
    """(N,): the column that the user requested."""
    replicas: Ints
    """(N, K): the number of equal replicas of each candidate."""
    base: Ints
    """(N,): the number of base replicas, without which a job stops."""
    change_s: Floats
    """(N,): time for which a running job does not train when it is scaled."""
    restart_s: Floats
    """(N,): time for which a job does not train after it was stopped or has failed."""
    start_up_s: Floats
    """(N,): time for which a job does not train after its first start."""
    spread: Floats | None = None
    """(N,): factor of a job's speed for each host more than the least that its replicas need; absent, 1."""
    meets_request: Bools | None = None
    """(N, K): True for the columns that meet the request, if several do; absent, `requested` only."""

    def __post_init__(self) -> None:
        N = len(self.jobs)
        if (np.diff(self.arrived_s) < 0).any():
            raise InputError("The jobs of the workload are not in order of arrival.", "Sort them by arrived_s.")
        if N and not (np.isfinite(self.work).all() and (self.work > 0).all()):
            raise InputError("The work of a job is not above 0, or not finite.", "Give each job positive work.")
        rows = np.arange(N)
        if N and not ((self.speed[rows, self.requested] > 0) & self.offered[rows, self.requested]).all():
            raise InputError("A job requests a candidate that has no speed or is not offered.", "Give it a speed.")

    def __len__(self) -> int:
        return len(self.jobs)

    def units(self, amounts: Floats) -> Floats:
        """Return amounts (…, R) in the units in which the size of a job counts, see `units_of`."""
        return units_of(amounts, self.resources)

    def gpu_kind(self, jobs: Ints) -> Ints:
        """Return the index (n, K) among the GPUs of the resources that candidates of jobs (n,) take; 0 without GPUs."""
        if not self._gpus.any():
            return np.zeros((len(jobs), self.speed.shape[1]), dtype=np.intp)
        return np.asarray((self.needs[jobs][:, :, self._gpus] > 0).argmax(axis=2))

    def requests(self, jobs: Ints) -> Bools:
        """Return the columns (n, K) that meet the request of jobs (n,)."""
        if self.meets_request is not None:
            return np.asarray(self.meets_request[jobs])
        return np.asarray(np.arange(self.speed.shape[1]) == self.requested[jobs][:, None])

    @property
    def _gpus(self) -> Bools:
        """(R,): True for GPUs."""
        return np.array([name == "gpu" or name.startswith(GPU) for name in self.resources])

    def only(self, kept: Bools) -> Workload:
        """Return the workload with the jobs (N,) for which `kept` is True."""
        rows = np.flatnonzero(kept)
        arrays: dict[str, Any] = {k: v[rows] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, jobs=[self.jobs[int(i)] for i in rows], **arrays)
