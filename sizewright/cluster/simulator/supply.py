"""What a simulated cluster has to give: a sum, or servers, or servers some of which are lent for a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.placement import Placement, Replicas, Servers, below
from sizewright.cluster.problem import ROUNDING, Bools, Floats, Ints
from sizewright.cluster.reclaim import Reclaim, least_cost
from sizewright.cluster.simulator.state import State
from sizewright.cluster.simulator.workload import Workload
from sizewright.spec.units import format_count


class Supply:
    """As much all the time, wherever it is."""

    def __init__(self, capacity: Floats) -> None:
        self.capacity = capacity

    def that_fit(self, workload: Workload) -> tuple[Workload, list[str]]:
        """Without candidates that fit nowhere even alone, nor jobs that would wait for ever; and what was changed."""
        alone, always = self.alone(workload)
        always = always & workload.offered
        can, rows = np.asarray(always.any(axis=1)), np.arange(len(workload))
        less = can & ~always[rows, workload.requested]
        largest = np.where(always, workload.speed, -1.0).argmax(axis=1)
        offered = workload.offered & alone
        offered[:, 0] = True
        fitting = replace(
            workload, offered=np.where(can[:, None], offered, workload.offered),
            requested=np.where(less, largest, workload.requested),
        )  # fmt: skip
        told = [
            (int((~can).sum()), "left out: the cluster is too small"),
            (int(less.sum()), "asking for more than there is, taken to ask for the largest that fits"),
        ]
        return fitting.only(can), [f"{format_count(count, 'job')} {what}" for count, what in told if count]

    def alone(self, workload: Workload) -> tuple[Bools, Bools]:
        """(N, K): what fits where nothing else is; and what does so at any time."""
        fits: Bools = np.asarray((workload.needs <= self.capacity * (1 + ROUNDING)).all(axis=2))
        fits[:, 0] = False
        return fits, fits

    def figures(self) -> dict[str, float]:
        """What it did, by name."""
        return {}

    def changes_s(self, now_s: float) -> float:
        """When it changes next by itself."""
        return float("inf")

    def at(self, now_s: float, state: State) -> Floats:
        """(R,): what there is from now on; what it needs back it takes from the jobs."""
        return self.capacity

    def place(self, state: State, jobs: Ints, columns: Ints, worth: Floats | None = None) -> Ints:
        """(n,): the columns that the jobs get in fact; `worth` (n, K) tells a policy's second choices."""
        return columns


class Placed(Supply):
    """Servers: replicas are placed; what does not fit gets less, where its policy goes by worth, or stays as it is."""

    def __init__(self, servers: Servers, *, mixes: bool = False) -> None:
        super().__init__(servers.capacity.sum(axis=0))
        self.placement = Placement(servers, mixes=mixes)

    def place(self, state: State, jobs: Ints, columns: Ints, worth: Floats | None = None) -> Ints:
        """See `Supply`. What shrinks or stops makes room; then the largest are placed first."""
        placed, before = columns.copy(), state.column[jobs]
        self._forget(state)
        size = state.workload.needs[jobs, columns, 0]
        held = state.workload.needs[jobs, before, 0]
        changed = np.flatnonzero(columns != before)
        for i in sorted(changed, key=lambda i: (size[i] >= held[i], -size[i])):
            job, column = int(jobs[i]), int(columns[i])
            if column == 0:
                self.placement.remove(str(job))
            else:
                needs = state.workload.needs[job]
                tried = [column, *(below(needs, worth[i], column, int(before[i])) if worth is not None else [])]
                placed[i] = next((k for k in tried if self._fits(state, job, k)), before[i])
        return placed

    def _fits(self, state: State, job: int, column: int) -> bool:
        return self.placement.place(str(job), self.groups(state.workload, job, column), self.preferred)

    def _forget(self, state: State) -> None:
        """Jobs that are done have left."""
        for job in self.placement.jobs:
            if state.column[int(job)] == 0:
                self.placement.remove(job)

    def alone(self, workload: Workload) -> tuple[Bools, Bools]:
        """See `Supply`: placed on empty servers."""
        fits = self._placeable(workload)
        return fits, fits

    def _placeable(self, workload: Workload) -> Bools:
        """(N, K): on the servers that are open, with nothing else there; the same groups are tried once."""
        fits, known = np.zeros(workload.offered.shape, dtype=bool), dict[tuple[float, ...], bool]()
        for job, column in zip(*np.nonzero(workload.offered & (workload.speed > 0)), strict=True):
            told = (*workload.needs[job, column], workload.replicas[job, column], workload.base[job])
            if told not in known:
                known[told] = self._placed_alone(self.groups(workload, int(job), int(column)))
            fits[job, column] = known[told]
        return fits

    def _placed_alone(self, groups: list[Replicas]) -> bool:
        went = self.placement.place("", groups, self.preferred)
        self.placement.remove("")
        return went

    def groups(self, workload: Workload, job: int, column: int) -> list[Replicas]:
        """The base replicas of a job, and those beyond them."""
        count, least = int(workload.replicas[job, column]), int(workload.base[job])
        need = workload.needs[job, column] / count
        return [Replicas(min(count, least), need), Replicas(max(count - least, 0), need)]

    def preferred(self, group: int) -> Bools | None:
        """(S,): servers for a group's replicas to take first."""
        return None


@dataclass
class LoanLog:
    """What was lent, and what it cost to give it back."""

    lent: list[int] = field(default_factory=list)
    preempted: int = 0
    shrunk: int = 0


class Loaned(Placed):
    """Own servers, and inference servers that are lent by a schedule and go back when they are wanted."""

    def __init__(
        self, servers: Servers, own: int, lent: Ints, step_s: float, reclaim: Reclaim = least_cost, seed: int = 0
    ) -> None:
        """The first `own` servers are the cluster's; of the others `lent` (T,) are there in each step of `step_s`.

        A job may have replicas on both.
        """
        super().__init__(servers, mixes=True)
        self.own, self.lent, self.step_s, self.reclaim = own, lent, step_s, reclaim
        self.rng = np.random.default_rng(seed)
        self.log = LoanLog()
        self.loaned: Bools = np.arange(len(servers.names)) >= own
        self.placement.open = ~self.loaned
        self._step = -1

    def alone(self, workload: Workload) -> tuple[Bools, Bools]:
        """See `Supply`: at any time there are the own servers only."""
        open_, always = self.placement.open, self._placeable(workload)
        self.placement.open = np.ones_like(open_)
        ever = self._placeable(workload)
        self.placement.open = open_
        return ever, always

    def changes_s(self, now_s: float) -> float:
        """See `Supply`; what is lent in the last step stays."""
        step = now_s // self.step_s + 1
        return float(step * self.step_s) if step < len(self.lent) else float("inf")

    def at(self, now_s: float, state: State) -> Floats:
        """See `Supply`."""
        step = min(int(now_s // self.step_s), len(self.lent) - 1)
        if step != self._step:
            self._step = step
            self._bring_to(int(self.lent[step]), state)
            self.log.lent.append(int(self.lent[step]))
        capacity: Floats = self.placement.servers.capacity[self.placement.open].sum(axis=0)
        return capacity

    def figures(self) -> dict[str, float]:
        """See `Supply`: servers that were lent, on average; what giving them back stopped and shrank."""
        lent = float(np.mean(self.log.lent)) if self.log.lent else 0.0
        return {"lent": lent, "stopped_by_reclaim": self.log.preempted, "shrunk_by_reclaim": self.log.shrunk}

    def preferred(self, group: int) -> Bools | None:
        """See `Placed`: base replicas on own servers, the others together on loaned ones."""
        return ~self.loaned if group == 0 else self.loaned

    def _bring_to(self, count: int, state: State) -> None:
        here = np.flatnonzero(self.placement.open & self.loaned)
        if count > len(here):
            self.placement.open[np.flatnonzero(~self.placement.open)[: count - len(here)]] = True
        elif count < len(here):
            self._forget(state)
            for server in self.reclaim(list(map(int, here)), self._base(here), len(here) - count, self.rng):
                self._vacate(server, state)

    def _base(self, servers: Ints) -> dict[str, frozenset[int]]:
        """By job, the servers of any kind with base replicas, of jobs that have some on these."""
        found = {}
        for job in self.placement.jobs:
            base = frozenset(self.placement.of(job)[0][1])
            if base & set(map(int, servers)):
                found[job] = base
        return found

    def _vacate(self, server: int, state: State) -> None:
        """The server goes back: jobs with base replicas there are stopped, others go on with less."""
        self.placement.open[server] = False
        for job in self.placement.jobs:
            (_, base), (_, flexible) = self.placement.of(job)
            if server in base or (server in flexible and not self._shrink(job, server, state)):
                self.placement.remove(job)
                state.give(np.array([int(job)]), np.array([0]))
                self.log.preempted += 1

    def _shrink(self, job: str, server: int, state: State) -> bool:
        """Whether a job can go on without its replicas there."""
        number, workload = int(job), state.workload
        left = int(workload.replicas[number, state.column[number]]) - self.placement.of(job)[1][1][server]
        fits = np.flatnonzero(workload.offered[number] & (workload.replicas[number] <= left))
        fits = fits[fits > 0]
        if not len(fits):
            return False
        column = int(fits[workload.replicas[number, fits].argmax()])
        if not self.placement.place(job, self.groups(workload, number, column)):
            return False
        state.give(np.array([number]), np.array([column]))
        self.log.shrunk += 1
        return True


def equal_servers(kinds: Sequence[tuple[str, int, Sequence[float]]]) -> Servers:
    """Servers of several kinds: a name, how many, and the capacity (R,) of each."""
    names = [f"{kind}-{number}" for kind, count, _ in kinds for number in range(count)]
    told = [kind for kind, count, _ in kinds for _ in range(count)]
    return Servers(names, told, np.concatenate([np.tile(np.asarray(each, float), (n, 1)) for _, n, each in kinds]))
