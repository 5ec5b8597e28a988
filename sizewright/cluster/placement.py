"""Which replicas run on which server: best fit decreasing, staying put first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.problem import ROUNDING, Bools, Floats, Ints


@dataclass(frozen=True)
class Servers:
    """S servers with R resources."""

    names: Sequence[str]
    kinds: Sequence[str]
    """(S,): of their GPUs; empty where they have none, so that any job may have replicas there."""
    capacity: Floats
    """(S, R)."""


@dataclass(frozen=True)
class Replicas:
    """Equal replicas of one job."""

    count: int
    need: Floats
    """(R,) of one."""


Held = dict[int, int]
"""Replicas by server."""
Prefer = Callable[[int], "Bools | None"]


def _any(group: int) -> Bools | None:
    return None


class Placement:
    """Where the replicas of jobs are; a job's groups are placed all or not at all."""

    def __init__(self, servers: Servers, *, mixes: bool = False) -> None:
        """`mixes`: one job's replicas may be on servers of several kinds of GPUs."""
        self.servers, self.mixes = servers, mixes
        self.free = servers.capacity.copy()
        self.open: Bools = np.ones(len(servers.names), dtype=bool)
        """(S,): servers that may be used."""
        self._held: dict[str, list[tuple[Replicas, Held]]] = {}
        self._kinds = np.array(servers.kinds)

    def copy(self) -> Placement:
        """The same, to be gone on with apart."""
        made = Placement(self.servers, mixes=self.mixes)
        made.free, made.open, made._held = self.free.copy(), self.open.copy(), self._held.copy()
        return made

    def of(self, job: str) -> list[tuple[Replicas, Held]]:
        """The groups of a job and where they are."""
        return self._held.get(job, [])

    @property
    def jobs(self) -> Sequence[str]:
        """Those that are placed."""
        return tuple(self._held)

    def servers_of(self, job: str) -> Ints:
        """Servers on which a job has something."""
        return np.array(sorted({server for _, held in self.of(job) for server in held}), dtype=np.intp)

    def hold(self, job: str, groups: list[tuple[Replicas, Held]]) -> bool:
        """A job has its groups there already; whether there is room for them, and else it has not."""
        before = self.free.copy()
        for replicas, held in groups:
            for server, count in held.items():
                self.free[server] -= count * replicas.need
        if (self.free < -ROUNDING * np.maximum(self.servers.capacity, 1.0)).any():
            self.free = before
            return False
        self._held[job] = groups
        return True

    def remove(self, job: str) -> None:
        """A job leaves."""
        for replicas, held in self._held.pop(job, []):
            for server, count in held.items():
                self.free[server] += count * replicas.need

    def place(self, job: str, groups: Sequence[Replicas], prefer: Prefer = _any) -> bool:
        """Bring a job to these groups, near to where it is; whether that went, and else all is as it was.

        Groups are matched by position; `prefer` tells for each the servers (S,) to take first.
        """
        before, free = self._held.pop(job, []), self.free.copy()
        for replicas, held in before:
            for server, count in held.items():
                self.free[server] += count * replicas.need
        for allowed in self._choices(before):
            found = self._all(groups, before, allowed & self.open, prefer)
            if found is not None:
                self._held[job] = [(group, held) for group, held in zip(groups, found, strict=True)]
                return True
        self.free = free
        if before:
            self._held[job] = before
        return False

    def fits(self, job: str, groups: Sequence[Replicas]) -> bool:
        """Whether `place` would go; all stays as it is."""
        free, before = self.free.copy(), self._held.get(job)
        went = self.place(job, groups)
        self.free = free
        self._held.pop(job, None)
        if before is not None:
            self._held[job] = before
        return went

    def _choices(self, before: list[tuple[Replicas, Held]]) -> list[Bools]:
        """Servers of one kind at a time, those of the kind that it is on first, then that with most to give."""
        kinds = [kind for kind in dict.fromkeys(self._kinds.tolist()) if kind]
        if self.mixes or len(kinds) < 2:
            return [np.ones(len(self._kinds), dtype=bool)]
        here = {str(self._kinds[server]) for _, held in before for server in held}
        room = {kind: float(self.free[self._kinds == kind].sum()) for kind in kinds}
        ordered = sorted(room, key=lambda kind: (kind not in here, -room[kind]))
        return [(self._kinds == kind) | (self._kinds == "") for kind in ordered]

    def _all(
        self, groups: Sequence[Replicas], before: list[tuple[Replicas, Held]], allowed: Bools, prefer: Prefer
    ) -> list[Held] | None:
        """Where each group goes, the largest replicas first; None, and nothing taken, where one does not fit."""
        free, found = self.free.copy(), dict[int, Held]()
        scale = np.maximum(self.servers.capacity.max(axis=0, initial=0.0), 1e-300)
        for index in sorted(range(len(groups)), key=lambda i: -float((groups[i].need / scale).max())):
            stays = before[index][1] if index < len(before) else {}
            held = _fill(free, groups[index], allowed, stays, prefer(index), scale)
            if held is None:
                return None
            found[index] = held
        self.free = free
        return [found[index] for index in range(len(groups))]


def _fill(
    free: Floats, group: Replicas, allowed: Bools, stays: Held, prefer: Bools | None, scale: Floats
) -> Held | None:
    """Servers for the replicas of one group, taken off `free` (S, R); None where they do not fit."""
    held, left = dict[int, int](), group.count
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(group.need > 0, (free + ROUNDING * scale) / group.need, np.inf).min(axis=1)
    fits = np.where(allowed, np.clip(np.floor(room), 0, group.count), 0).astype(np.intp)
    for server, count in stays.items():
        if taken := min(count, left, int(fits[server])):
            held[server], left = taken, left - taken
            fits[server] -= taken
    while left:
        best = _best(free, fits, left, prefer, scale)
        if best is None:
            return None
        taken = min(left, int(fits[best]))
        held[best] = held.get(best, 0) + taken
        fits[best], left = 0, left - taken
    for server, count in held.items():
        free[server] -= count * group.need
    return held


def _best(free: Floats, fits: Ints, left: int, prefer: Bools | None, scale: Floats) -> int | None:
    """The fullest server that takes all that is left; else the one that takes most of it."""
    some = np.flatnonzero(fits > 0)
    if not len(some):
        return None
    if prefer is not None and prefer[some].any():
        some = some[prefer[some]]
    whole = some[fits[some] >= left]
    if len(whole):
        return int(whole[(free[whole] / scale).sum(axis=1).argmin()])
    return int(some[fits[some].argmax()])


def below(needs: Floats, worth: Floats, column: int, least: int) -> list[int]:
    """Candidates of a job that need (K, R) no more than `column` and are worth (K,) more than `least`, the best first:
    what to try where there is no room for `column`."""
    better = (worth > worth[least]) & (needs <= needs[column]).all(axis=1)
    better[[0, column]] = False
    found = np.flatnonzero(better)
    return [int(k) for k in found[np.argsort(-worth[found], kind="stable")]]
