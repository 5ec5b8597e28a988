"""Place replicas on servers by best fit decreasing; replicas stay where they are if they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.placement.best_fit import Counts, best_fit
from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints


@dataclass(frozen=True)
class Servers:
    """S servers with R resources."""

    names: Sequence[str]
    kinds: Sequence[str]
    """(S,): the kind of their GPUs; empty for servers without GPUs, on which replicas of any job may run."""
    capacity: Floats
    """(S, R)."""


@dataclass(slots=True)
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


_MAX_SIZES = 50
"""The share that a job takes of a cluster is computed from the most frequent sizes of its servers."""


def _no_preference(group: int) -> Bools | None:
    return None


class Placement:
    """The servers on which the replicas of jobs run. All groups of a job are placed, or none.

    The servers are divided into `parts`, a power of two. In each part there is a like share of every kind of server, so
    that many jobs can be placed at once, one in each part.
    """

    def __init__(self, servers: Servers, *, mixes: bool = False, parts: int = 1) -> None:
        """`mixes` allows the replicas of one job on servers with GPUs of different kinds."""
        self.servers = servers
        self.mixes = mixes
        self.parts = parts
        self.open: Bools = np.ones(len(servers.names), dtype=bool)
        """(S,): servers that may be used."""
        self._groups: dict[str, PlacedGroups] = {}
        kinds = [kind for kind in dict.fromkeys(servers.kinds) if kind]
        if mixes or len(kinds) < 2:
            self._kind = np.zeros(len(servers.names), dtype=np.intp)
            self._offered = (servers.capacity > 0).any(axis=0)[None]
        else:
            codes = {kind: code for code, kind in enumerate(kinds)}
            self._kind = np.array([codes.get(kind, -1) for kind in servers.kinds], dtype=np.intp)
            has = servers.capacity > 0
            self._offered = np.stack([has[(self._kind == k) | (self._kind < 0)].any(axis=0) for k in range(len(kinds))])
        sizes, numbers = np.unique(servers.capacity, axis=0, return_counts=True)
        largest = np.argsort(-numbers)[:_MAX_SIZES]
        self._sizes = sizes[largest], numbers[largest]
        self._server = _slots(servers, parts)
        used = self._server >= 0
        self.slot = np.empty(len(servers.names), dtype=np.intp)
        """(S,): the slot of each server."""
        self.slot[self._server[used]] = np.flatnonzero(used)
        self._free = np.zeros((servers.capacity.shape[1], len(self._server)))
        self._free[:, used] = servers.capacity[self._server[used]].T
        self.special = ~(servers.capacity > 0).all(axis=0)
        """(R,): resources that some servers lack."""
        self._least = -ROUNDING * np.maximum(servers.capacity.max(axis=0, initial=0.0), 1.0)
        self._scale = np.maximum(servers.capacity.max(axis=0, initial=0.0), 1e-300)

    def copy(self) -> Placement:
        """Return an independent copy."""
        copy = object.__new__(Placement)
        copy.__dict__.update(self.__dict__)
        copy._free = self._free.copy()
        copy.open = self.open.copy()
        copy._groups = self._groups.copy()
        return copy

    @property
    def free(self) -> Floats:
        """(S, R): what is free on each server."""
        return np.ascontiguousarray(self._free[:, self.slot].T)

    def free_in(self, parts: int) -> Floats:
        """Return what is free (P, R) where the servers are divided into only so many `parts` P."""
        return np.asarray(self._free.reshape(len(self._free), parts, -1).sum(axis=2).T)

    def part_of_slot(self, slot: Ints, parts: int) -> Ints:
        """Return the parts (n,) of slots (n,) where the servers are divided into only so many `parts`."""
        return slot // (len(self._server) // parts)

    def home(self, job: str) -> int:
        """Return the slot of the server with the most replicas of a job; −1 if it is not placed."""
        counts = [(count, server) for _, where in self.groups_of(job) for server, count in where.items()]
        return int(self.slot[max(counts)[1]]) if counts else -1

    def share_of(self, count: Ints, need: Floats) -> Floats:
        """Return the share (n,) of the empty cluster that each job takes, by its group that takes the most.

        That is the `count` (n, G) of its replicas over the number of such replicas, which need `need` (n, G, R) each,
        that the servers have room for.
        """
        room = np.zeros(count.shape)
        for capacity, number in zip(*self._sizes, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                most = np.fmin.reduce(capacity / need, axis=2, initial=np.inf)
            room += number * np.where(np.isfinite(most), np.floor(most), 0.0)
        return np.asarray((count / np.maximum(room, 1e-300)).max(axis=1, initial=0.0))

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
        self._take(groups)
        slots = self.slot[[server for _, where in groups for server in where]]
        if (self._free[:, slots] < self._least[:, None]).any():
            self._give_back(groups)
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
        count = np.array([[group.count for group in groups]], dtype=np.intp)
        need = np.array([[group.need for group in groups]]).reshape(1, len(groups), -1)
        preferred = [prefer(g) for g in range(len(groups))]
        return bool(self.place_each([job], count, need, np.zeros(1, dtype=np.intp), 1, preferred=preferred)[0])

    def place_each(
        self,
        jobs: Sequence[str],
        count: Ints,
        need: Floats,
        in_part: Ints,
        parts: int,
        *,
        preferred: Sequence[Bools | None] = (),
        dry_run: bool = False,
    ) -> Bools:
        """Place n jobs, each in a part of its own where the servers are divided into only so many `parts`.

        Job i goes to part in_part[i] with G groups of count[i, g] replicas, which need need[i, g] (n, G, R) each. For
        each group, servers that are `preferred` (S,) are used first. Return which jobs (n,) fit; nothing changes for
        the others, and with `dry_run` for none.
        """
        size = len(self._server) // parts
        view = self._free.reshape(len(self._free), parts, size)
        server = self._server.reshape(parts, size)[in_part]
        free = view[:, in_part]
        current = self._return_within(free, jobs, count.shape[1], in_part * size)
        usable = (server >= 0) & self.open[server]
        largest_first = np.argsort(-(need / self._scale).max(axis=2, initial=0.0), axis=1, kind="stable")
        placed = np.zeros((*count.shape, size), dtype=np.int32)
        fits = np.zeros(len(jobs), dtype=bool)
        kind = self._kind[server]
        for kinds in self._kind_order(jobs, need, free, kind).T:
            rows = np.flatnonzero(~fits & (kinds >= 0))
            if not len(rows):
                continue
            allowed = usable[rows] & ((kind[rows] == kinds[rows, None]) | (kind[rows] < 0))
            left = free[:, rows]
            done = np.ones(len(rows), dtype=bool)
            for group in largest_first[rows].T:
                i = np.flatnonzero(done & (count[rows, group] > 0))
                if not len(i):
                    continue
                job, g = rows[i], group[i]
                part_left = left[:, i]
                placed[job, g], done[i] = best_fit(
                    part_left, count[job, g], need[job, g], allowed[i], self._scale, self.special,
                    None if current is None else current[job, g], _masks(preferred, g, server[job]),
                )  # fmt: skip
                left[:, i] = part_left
            fits[rows] = done
            free[:, rows[done]] = left[:, done]
        if not dry_run:
            done = np.flatnonzero(fits)
            self._record(jobs, done, count, need, placed, server)
            view[:, in_part[done]] = free[:, done]
        return fits

    def _return_within(self, free: Floats, jobs: Sequence[str], groups: int, first_slot: Ints) -> Counts | None:
        """Add to `free` (R, n, N) what the jobs (n,) have there now; return their replicas (n, G, N) by group."""
        moving = [i for i, job in enumerate(jobs) if job in self._groups]
        if not moving:
            return None
        size = free.shape[2]
        current = np.zeros((len(jobs), groups, size), dtype=np.int32)
        for i in moving:
            for g, (replicas, where) in enumerate(self._groups[jobs[i]]):
                for server, count in where.items():
                    slot = self.slot[server] - first_slot[i]
                    if 0 <= slot < size:
                        free[:, i, slot] += count * replicas.need
                        if g < groups:
                            current[i, g, slot] = count
        return current

    def _record(self, jobs: Sequence[str], done: Ints, count: Ints, need: Floats, placed: Counts, server: Ints) -> None:
        """Record where the jobs of the rows `done` are `placed` (n, G, N), and take them from where they were.

        What they need in their parts is set afterwards.
        """
        for i in done.tolist():
            self.remove(jobs[i])
            self._groups[jobs[i]] = [(Replicas(c, row), {}) for c, row in zip(count[i].tolist(), need[i], strict=True)]
        i, g, slot = np.nonzero(placed[done])
        i = done[i]
        entries = zip(i.tolist(), g.tolist(), server[i, slot].tolist(), placed[i, g, slot].tolist(), strict=True)
        for row, group, where, replicas in entries:
            self._groups[jobs[row]][group][1][where] = replicas

    def _take(self, groups: PlacedGroups) -> None:
        for replicas, where in groups:
            for server, count in where.items():
                self._free[:, self.slot[server]] -= count * replicas.need

    def _give_back(self, groups: PlacedGroups) -> None:
        for replicas, where in groups:
            for server, count in where.items():
                self._free[:, self.slot[server]] += count * replicas.need

    def _kind_order(self, jobs: Sequence[str], need: Floats, free: Floats, kind: Ints) -> Ints:
        """Return the kinds of servers (n, Q) that each job tries in turn; −1 for those that lack what it needs.

        The kinds that a job is on come first, then the others by free capacity.
        """
        kinds = range(len(self._offered))
        lacks = np.stack([(need[:, :, ~self._offered[k]] > 0).any(axis=(1, 2)) for k in kinds], axis=1)
        if len(kinds) == 1:
            return np.where(lacks, -1, 0)
        amount = sum(free[r] / self._scale[r] for r in range(len(free)))
        room = np.stack([np.where(kind == k, amount, 0.0).sum(axis=1) for k in kinds], axis=1)
        for i, job in enumerate(jobs):
            if job in self._groups:
                on = {int(self._kind[server]) for _, where in self.groups_of(job) for server in where} - {-1}
                room[i, list(on)] += room.max() + 1.0
        order = np.argsort(-room, axis=1, kind="stable")
        return np.where(np.take_along_axis(lacks, order, axis=1), -1, order)


def _slots(servers: Servers, parts: int) -> Ints:
    """Return the server in each slot (parts × N,), the slots of a part one after the other; −1 where there is none.

    Equal servers are divided into `parts` in their order. Servers of which there are fewer than parts are dealt out.
    """
    S = len(servers.names)
    _, kind = np.unique(np.array(servers.kinds, dtype=str), return_inverse=True)
    rows = np.column_stack([kind, servers.capacity])
    _, equal, numbers = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    equal = equal.ravel()
    order = np.argsort(equal, kind="stable")
    rank = np.arange(S) - (np.cumsum(numbers) - numbers)[equal[order]]
    part = np.empty(S, dtype=np.intp)
    part[order] = rank * parts // numbers[equal[order]]
    few = order[numbers[equal[order]] < parts]
    part[few] = np.arange(len(few)) % parts
    in_part = np.bincount(part, minlength=parts)
    by_part = np.argsort(part, kind="stable")
    slots = np.full((parts, in_part.max(initial=0)), -1, dtype=np.intp)
    slots[part[by_part], np.arange(S) - (np.cumsum(in_part) - in_part)[part[by_part]]] = by_part
    return slots.ravel()


def _masks(preferred: Sequence[Bools | None], group: Ints, server: Ints) -> Bools | None:
    """Return the preferred servers (n, N) for the groups (n,) of jobs; None if there is no preference."""
    if all(each is None for each in preferred):
        return None
    masks = [np.zeros(server.max() + 1, dtype=bool) if each is None else each for each in preferred]
    return np.stack([masks[g][row] for g, row in zip(group.tolist(), server, strict=True)])


def smaller_candidates(needs: Floats, utilities: Floats, column: int, base: int) -> list[int]:
    """Return what to try if there is no room for `column`: candidates of a job, the best first.

    They need (K, R) no more than `column`, and have a higher utility (K,) than column `base`.
    """
    better = (utilities > utilities[base]) & (needs <= needs[column]).all(axis=1)
    better[[0, column]] = False
    columns = np.flatnonzero(better)
    return [int(k) for k in columns[np.argsort(-utilities[columns], kind="stable")]]
