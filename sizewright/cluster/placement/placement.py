"""Place replicas on servers by best fit decreasing; replicas stay where they are if they can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.placement.best_fit import SPECIAL, Counts, best_fit
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
            self._offered = np.atleast_2d((servers.capacity > 0).any(axis=0))
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
        self.special: Bools = np.logical_not((servers.capacity > 0).all(axis=0))
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

    def place(
        self, job: str, groups: Sequence[Replicas], prefer: Prefer = _no_preference, *, dry_run: bool = False
    ) -> bool:
        """Place these groups of a job, near to where it is now. Return False, and change nothing, if they do not fit.

        Groups are matched with those that the job has by position. `prefer` gives the servers (S,) to use first. With
        `dry_run` nothing changes in any case.
        """
        free, before = self._free.copy(), self._groups.pop(job, [])
        self._give_back(before)
        placed = None
        for allowed in self._allowed_servers(before, groups):
            placed = self._place_groups(groups, before, allowed, prefer)
            if placed is not None:
                break
        if placed is not None and not dry_run:
            self._groups[job] = list(zip(groups, placed, strict=True))
            return True
        self._free = free
        if before:
            self._groups[job] = before
        return placed is not None

    def _allowed_servers(self, before: PlacedGroups, groups: Sequence[Replicas]) -> Iterator[Bools]:
        """Yield servers (S,) of one kind at a time: the kinds that the job is on first, then by free capacity."""
        if len(self._offered) == 1:
            yield self.open
            return
        need = np.any([group.need for group in groups if group.count] or [np.zeros(len(self._scale))], axis=0)
        on = {int(self._kind[server]) for _, where in before for server in where}
        amount = (1.0 / self._scale) @ self._free[:, self.slot]
        room = [float(amount[self._kind == kind].sum()) for kind in range(len(self._offered))]
        for kind in sorted(range(len(room)), key=lambda kind: (kind not in on, -room[kind])):
            if self._offered[kind][need].all():
                yield ((self._kind == kind) | (self._kind < 0)) & self.open

    def _place_groups(
        self, groups: Sequence[Replicas], before: PlacedGroups, allowed: Bools, prefer: Prefer
    ) -> list[ReplicasByServer] | None:
        """Place each group, the largest replicas first. Return None, and take nothing, if one does not fit."""
        free = self.free
        placed: dict[int, ReplicasByServer] = {}
        for index in sorted(range(len(groups)), key=lambda i: -float((groups[i].need / self._scale).max())):
            current = before[index][1] if index < len(before) else {}
            where = _place_group(free, groups[index], allowed, current, prefer(index), self._scale, self.special)
            if where is None:
                return None
            placed[index] = where
        self._free[:, self.slot] = free.T
        return [placed[index] for index in range(len(groups))]

    def place_each(
        self,
        jobs: Sequence[str],
        count: Ints,
        need: Floats,
        in_part: Ints,
        parts: int,
        *,
        dry_run: bool = False,
    ) -> Bools:
        """Place n jobs, each in a part of its own where the servers are divided into only so many `parts`.

        Job i goes to part in_part[i] with G groups of count[i, g] replicas, which need need[i, g] (n, G, R) each.
        Return which jobs (n,) fit; nothing changes for the others, and with `dry_run` for none.
        """
        need = np.where(count[:, :, None] > 0, need, 0.0)
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
                    None if current is None else current[job, g],
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
        lacks = (np.asarray(need.any(axis=1))[:, None] & ~self._offered).any(axis=2)
        if len(kinds) == 1:
            return np.where(lacks, -1, 0)
        amount = np.einsum("rjs,r->js", free, 1.0 / self._scale)
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


def _place_group(
    free: Floats,
    group: Replicas,
    allowed: Bools,
    current: ReplicasByServer,
    prefer: Bools | None,
    scale: Floats,
    special: Bools,
) -> ReplicasByServer | None:
    """Return servers for the replicas of one group, and take them off `free` (S, R); None if they do not fit.

    The rule is that of `best_fit`, which many jobs follow at once; servers of `prefer` (S,) come first.
    """
    needed = group.need > 0
    room = ((free[:, needed] + ROUNDING * scale[needed]) / group.need[needed]).min(axis=1, initial=np.inf)
    fits = np.where(allowed, np.clip(np.floor(room), 0, group.count), 0).astype(np.intp)
    amount = free @ (np.where(special & ~needed, SPECIAL, 1.0) / scale)
    where: ReplicasByServer = {}
    remaining = group.count
    for server in sorted(current, key=lambda one: (-min(current[one], int(fits[one])), float(amount[one]), one)):
        if taken := min(current[server], remaining, int(fits[server])):
            where[server] = taken
            remaining -= taken
            fits[server] -= taken
    while remaining:
        candidates = np.flatnonzero(fits > 0)
        if not len(candidates):
            return None
        if prefer is not None and prefer[candidates].any():
            candidates = candidates[prefer[candidates]]
        whole = candidates[fits[candidates] >= remaining]
        best = int(whole[amount[whole].argmin()] if len(whole) else candidates[fits[candidates].argmax()])
        taken = min(remaining, int(fits[best]))
        where[best] = where.get(best, 0) + taken
        remaining -= taken
        fits[best] = 0
    for server, count in where.items():
        free[server] -= count * group.need
    return where


def smaller_candidates(needs: Floats, utilities: Floats, column: int, base: int) -> list[int]:
    """Return what to try if there is no room for `column`: candidates of a job, the best first.

    They need (K, R) no more than `column`, and have a higher utility (K,) than column `base`.
    """
    better = (utilities > utilities[base]) & (needs <= needs[column]).all(axis=1)
    better[[0, column]] = False
    columns = np.flatnonzero(better)
    return [int(k) for k in columns[np.argsort(-utilities[columns], kind="stable")]]
