"""The jobs of a simulation: when they come, how much work they are, and how fast they are with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sizewright.cluster.problem import Bools, Floats, Ints
from sizewright.errors import InputError


@dataclass(frozen=True)
class Workload:
    """N jobs, in order of arrival, with K columns of R resources; column 0 is nothing."""

    jobs: Sequence[str]
    resources: Sequence[str]
    arrived_s: Floats
    """(N,)."""
    work: Floats
    """(N,) in the unit of speeds × seconds."""
    known_work: Floats
    """(N,): what policies are told of it."""
    speed: Floats
    """(N, K)."""
    needs: Floats
    """(N, K, R)."""
    offered: Bools
    """(N, K): all candidates of elastic jobs, one of rigid ones; nothing."""
    requested: Ints
    """(N,): the column that the user asked for."""
    replicas: Ints
    """(N, K): equal replicas of each candidate."""
    base: Ints
    """(N,): replicas without which a job stops."""
    change_s: Floats
    """(N,): for which a running job stands still when it is scaled."""
    restart_s: Floats
    """(N,): for which a job that was stopped, or has failed, stands still before it trains again."""

    def __post_init__(self) -> None:
        N = len(self.jobs)
        if (np.diff(self.arrived_s) < 0).any():
            raise InputError("Jobs of a workload are not in order of arrival.", "Sort them.")
        if N and not (np.isfinite(self.work).all() and (self.work > 0).all()):
            raise InputError("A job's work is 0, negative or no number.", "Give what it is to do.")
        rows = np.arange(N)
        if N and not ((self.speed[rows, self.requested] > 0) & self.offered[rows, self.requested]).all():
            raise InputError("A job asks for a candidate with which it does nothing.", "Give that a speed.")

    def __len__(self) -> int:
        return len(self.jobs)

    def only(self, kept: Bools) -> Workload:
        """Some of the jobs (N,)."""
        picked = np.flatnonzero(kept)
        arrays: dict[str, Any] = {k: v[picked] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, jobs=[self.jobs[int(i)] for i in picked], **arrays)
