"""One cluster that its jobs share: they get and give back capacity through an allocator, in rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sizewright.cluster.allocate import allocate_capacity, resources_of, servers_of
from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.explain import explain
from sizewright.cluster.placement.layout import Places
from sizewright.cluster.problem.candidates import JobTable, needs_of
from sizewright.cluster.problem.problem import ROUNDING, Floats
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.tables import JobTables, tables_of
from sizewright.errors import InputError
from sizewright.spec import Allocation, Cluster


class Division(NamedTuple):
    """A division of the cluster: what there was to choose from, the choice, and where the replicas could run."""

    tables: JobTables
    solution: Solution
    places: Places

    def allocations(self) -> dict[str, Allocation | None]:
        """Return what each job gets, by name; None for nothing."""
        choice = zip(self.tables.problem.jobs, self.solution.choice, strict=True)
        return {name: self.tables.allocation(job, int(column)) for job, (name, column) in enumerate(choice)}

    def why(self, job: int) -> str:
        """Return the sentence that says why a job, by its number in the problem, gets this."""
        kept_because = "" if job in self.solution.released else self.tables.kept_because[job]
        return kept_because or explain(self.tables, self.solution, job)


class SharedCluster:
    """The capacity of one cluster, which is divided among its jobs at arrivals and ends, and every `every_s` seconds.

    `policy` is the name of an allocator, or an allocator. It chooses by `values` (see `tables_of`) where these are
    given. `time_limit_s` limits a division, and `window_s` is the time that it plans ahead. With `mixes`, a job may
    have GPUs of several kinds. Raises InputError for an unknown policy, and for times that are not above 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: str | Allocator = "default",
        *,
        every_s: float = 300.0,
        time_limit_s: float = 1.0,
        window_s: float = 900.0,
        values: str | None = None,
        mixes: bool = False,
    ) -> None:
        for name, seconds in (("time limit", time_limit_s), ("time between rounds", every_s)):
            if not seconds > 0:
                raise InputError(f"The {name} must be above 0 s, got {seconds:g}.", f"Give a {name} above 0.")
        self.servers, self.resources = servers_of(cluster), resources_of(cluster)
        self.capacity: Floats = self.servers.capacity.sum(axis=0)
        self._policy, self._every_s = get_allocator(policy), every_s
        self._time_limit_s, self._window_s, self._values, self._mixes = time_limit_s, window_s, values, mixes
        quotas = {"cpu": cluster.quota.cpu, "memory_bytes": cluster.quota.memory_bytes}
        quota = [quotas.get(name, cluster.quota.gpu) for name in self.resources]
        self._limits_per_job = np.array(
            [c if q is None else min(c, float(q)) for c, q in zip(self.capacity, quota, strict=True)]
        )
        self._divided_s, self._divided_among = -np.inf, frozenset[str]()

    def is_due(self, now_s: float, jobs: Iterable[str]) -> bool:
        """Return whether the next round is due: `jobs` differ from those of the last one, or its time is over."""
        return frozenset(jobs) != self._divided_among or now_s >= self._divided_s + self._every_s

    def divide(self, jobs: Sequence[JobTable], now_s: float = 0.0) -> Division:
        """Divide the capacity among all jobs, those that run and those that wait.

        Raises InputError if two running jobs have the same name, and as the allocator does.
        """
        tables = tables_of(
            jobs,
            self.resources,
            self.capacity,
            self._limits_per_job,
            values=self._values or "progress",
            window_s=self._window_s,
            servers=self.servers.capacity,
            mixes=self._mixes,
        )
        if self._values:  # with a scheduler state, `default` would compute its own values
            tables = replace(tables, problem=replace(tables.problem, scheduler_state=None))
        self._divided_s, self._divided_among = now_s, frozenset(job.name for job in jobs)
        solution, places = allocate_capacity(tables, self.servers, self._policy, self._time_limit_s, mixes=self._mixes)
        return Division(tables, solution, places)

    def needs(self, allocation: Allocation) -> Floats:
        """Return what an allocation needs of each resource (R,)."""
        return needs_of(allocation, self.resources)

    def has_room(self, held: Sequence[Allocation]) -> bool:
        """Return whether all of these allocations fit into the capacity together."""
        used = sum(map(self.needs, held), np.zeros(len(self.resources)))
        return bool((used <= self.capacity * (1 + ROUNDING)).all())
