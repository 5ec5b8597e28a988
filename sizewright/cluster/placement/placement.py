"""Place replicas on servers by best fit decreasing; replicas stay where they are if they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints


@dataclass(frozen=True)
class Servers:
    """S servers with R resources."""

    names: Sequence[str]
    kinds: Sequence[str]
    """(S,): the kind of their GPUs; empty for servers without GPUs, on which replicas of any job may run."""
    capacity: Floats
    """(S, R)."""


@dataclass(frozen=True)
class Replicas:
    """Equal replicas of one job."""

    count: int
    need: Floats
    """(R,): what one replica needs."""


ReplicasByServer = dict[int, int]
"""The number of replicas on each server, by its index."""
PlacedGroups = list[tuple[Replicas, ReplicasByServer]]
"""The groups of a job and the servers that they are on."""
Prefer = Callable[[int], "Bools | None"]
"""The index of a group → the servers (S,) to use first, or None."""


def _no_preference(group: int) -> Bools | None:
    return None


class Placement:
    """The servers on which the replicas of jobs run. All groups of a job are placed, or none."""

    def __init__(self, servers: Servers, *, mixes: bool = False) -> None:
        """`mixes` allows the replicas of one job on servers with GPUs of different kinds."""
        self.servers = servers
        self.mixes = mixes
        self.free = servers.capacity.copy()
        self.open: Bools = np.ones(len(servers.names), dtype=bool)
        """(S,): servers that may be used."""
        self._groups: dict[str, PlacedGroups] = {}
        self._kinds = np.array(servers.kinds)

    def copy(self) -> Placement:
        """Return an independent copy."""
        copy = Placement(self.servers, mixes=self.mixes)
        copy.free = self.free.copy()
        copy.open = self.open.copy()
        copy._groups = self._groups.copy()
        return copy

    def groups_of(self, job: str) -> PlacedGroups:
        """Return the groups of a job and the servers that they are on."""
        return self._groups.get(job, [])

    @property
    def jobs(self) -> Sequence[str]:
        """The jobs that are placed."""
        return tuple(self._groups)

    def servers_of(self, job: str) -> Ints:
        """Return the servers that run replicas of a job."""
        return np.array(sorted({server for _, where in self.groups_of(job) for server in where}), dtype=np.intp)

    def hold(self, job: str, groups: PlacedGroups) -> bool:
        """Record that a job already runs on these servers. Return False, and change nothing, if it does not fit."""
        before = self.free.copy()
        self._take(groups)
        if (self.free < -ROUNDING * np.maximum(self.servers.capacity, 1.0)).any():
            self.free = before
            return False
        self._groups[job] = groups
        return True

    def remove(self, job: str) -> None:
        """Remove a job."""
        self._give_back(self._groups.pop(job, []))

    def place(self, job: str, groups: Sequence[Replicas], prefer: Prefer = _no_preference) -> bool:
        """Place these groups of a job, near to where it is now. Return False, and change nothing, if they do not fit.

        Groups are matched with those that the job has by position. `prefer` gives the servers (S,) to use first.
        """
        free = self.free.copy()
        before = self._groups.pop(job, [])
        self._give_back(before)
        for allowed in self._allowed_servers(before):
            placed = self._place_groups(groups, before, allowed & self.open, prefer)
            if placed is not None:
                self._groups[job] = list(zip(groups, placed, strict=True))
                return True
        self.free = free
        if before:
            self._groups[job] = before
        return False

    def fits(self, job: str, groups: Sequence[Replicas]) -> bool:
        """Return what `place` would return, and change nothing."""
        free, before = self.free.copy(), self._groups.get(job)
        fits = self.place(job, groups)
        self.free = free
        self._groups.pop(job, None)
        if before is not None:
            self._groups[job] = before
        return fits

    def _take(self, groups: PlacedGroups) -> None:
        for replicas, where in groups:
            for server, count in where.items():
                self.free[server] -= count * replicas.need

    def _give_back(self, groups: PlacedGroups) -> None:
        for replicas, where in groups:
            for server, count in where.items():
                self.free[server] += count * replicas.need

    def _allowed_servers(self, before: PlacedGroups) -> list[Bools]:
        """Return servers of one kind at a time: the kind that the job is on first, then by free capacity."""
        kinds = [kind for kind in dict.fromkeys(self._kinds.tolist()) if kind]
        if self.mixes or len(kinds) < 2:
            return [np.ones(len(self._kinds), dtype=bool)]
        current = {str(self._kinds[server]) for _, where in before for server in where}
        free = {kind: float(self.free[self._kinds == kind].sum()) for kind in kinds}
        ordered = sorted(free, key=lambda kind: (kind not in current, -free[kind]))
        return [(self._kinds == kind) | (self._kinds == "") for kind in ordered]

    def _place_groups(
        self, groups: Sequence[Replicas], before: PlacedGroups, allowed: Bools, prefer: Prefer
    ) -> list[ReplicasByServer] | None:
        """Place each group, the largest replicas first. Return None, and take nothing, if one does not fit."""
        free = self.free.copy()
        scale = np.maximum(self.servers.capacity.max(axis=0, initial=0.0), 1e-300)
        placed: dict[int, ReplicasByServer] = {}
        for index in sorted(range(len(groups)), key=lambda i: -float((groups[i].need / scale).max())):
            current = before[index][1] if index < len(before) else {}
            where = _place_group(free, groups[index], allowed, current, prefer(index), scale)
            if where is None:
                return None
            placed[index] = where
        self.free = free
        return [placed[index] for index in range(len(groups))]


def _place_group(
    free: Floats, group: Replicas, allowed: Bools, current: ReplicasByServer, prefer: Bools | None, scale: Floats
) -> ReplicasByServer | None:
    """Return servers for the replicas of one group, and take them off `free` (S, R); None if they do not fit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(group.need > 0, (free + ROUNDING * scale) / group.need, np.inf).min(axis=1)
    fits = np.where(allowed, np.clip(np.floor(room), 0, group.count), 0).astype(np.intp)
    where: ReplicasByServer = {}
    remaining = group.count
    for server, count in current.items():
        if taken := min(count, remaining, int(fits[server])):
            where[server] = taken
            remaining -= taken
            fits[server] -= taken
    while remaining:
        best = _best_server(free, fits, remaining, prefer, scale)
        if best is None:
            return None
        taken = min(remaining, int(fits[best]))
        where[best] = where.get(best, 0) + taken
        remaining -= taken
        fits[best] = 0
    for server, count in where.items():
        free[server] -= count * group.need
    return where


def _best_server(free: Floats, fits: Ints, remaining: int, prefer: Bools | None, scale: Floats) -> int | None:
    """Return the fullest server with room for all `remaining` replicas, or else the one with room for most of them."""
    candidates = np.flatnonzero(fits > 0)
    if not len(candidates):
        return None
    if prefer is not None and prefer[candidates].any():
        candidates = candidates[prefer[candidates]]
    large = candidates[fits[candidates] >= remaining]
    if len(large):
        return int(large[(free[large] / scale).sum(axis=1).argmin()])
    return int(candidates[fits[candidates].argmax()])


def smaller_candidates(needs: Floats, utilities: Floats, column: int, base: int) -> list[int]:
    """Return what to try if there is no room for `column`: candidates of a job, the best first.

    They need (K, R) no more than `column`, and have a higher utility (K,) than column `base`.
    """
    better = (utilities > utilities[base]) & (needs <= needs[column]).all(axis=1)
    better[[0, column]] = False
    columns = np.flatnonzero(better)
    return [int(k) for k in columns[np.argsort(-utilities[columns], kind="stable")]]
