"""The capacity of a simulated cluster: a sum, servers, or servers of which some are lent for a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.placement.placement import Placement, Replicas, Servers, smaller_candidates
from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints
from sizewright.cluster.reclaim import Reclaim, least_cost
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload
from sizewright.formatting import format_count


class Capacity:
    """A constant capacity (R,) without servers."""

    def __init__(self, capacity: Floats) -> None:
        self.capacity = capacity

    def fit_workload(self, workload: Workload) -> tuple[Workload, list[str]]:
        """Return the workload without candidates that never fit and without jobs that would wait for ever.

        A job whose request does not always fit requests its fastest candidate that does. The notes say what changed.
        """
        ever, always = self.fits_alone(workload)
        always = always & workload.offered
        can_run = np.asarray(always.any(axis=1))
        reduced = can_run & ~always[np.arange(len(workload)), workload.requested]
        largest = np.where(always, workload.speed, -1.0).argmax(axis=1)
        offered = workload.offered & ever
        offered[:, 0] = True
        fitting = replace(
            workload,
            offered=np.where(can_run[:, None], offered, workload.offered),
            requested=np.where(reduced, largest, workload.requested),
        )
        notes = []
        if count := int((~can_run).sum()):
            notes.append(f"{format_count(count, 'job')} left out: the cluster is too small")
        if count := int(reduced.sum()):
            notes.append(
                f"{format_count(count, 'job')} requested more than the cluster has; the largest candidate that fits is "
                "taken as the request"
            )
        return fitting.only(can_run), notes

    def fits_alone(self, workload: Workload) -> tuple[Bools, Bools]:
        """Return which candidates (N, K) fit on the empty cluster: at some time, and at any time."""
        fits: Bools = np.asarray((workload.needs <= self.capacity * (1 + ROUNDING)).all(axis=2))
        fits[:, 0] = False
        return fits, fits

    def figures(self) -> dict[str, float]:
        """Return figures of what happened to the capacity, by name."""
        return {}

    def next_change_s(self, now_s: float) -> float:
        """Return the time of the next scheduled change of the capacity."""
        return float("inf")

    def update(self, now_s: float, state: SimulationState) -> Floats:
        """Return the capacity (R,) from now on; servers that go back are taken from the jobs."""
        return self.capacity

    def place(self, state: SimulationState, jobs: Ints, columns: Ints, utilities: Floats | None = None) -> Ints:
        """Return the columns (n,) that the jobs (n,) actually get.

        `utilities` (n, K) ranks the alternatives if the policy maximises utility.
        """
        return columns


class PlacedCapacity(Capacity):
    """Servers on which replicas are placed.

    A job whose candidate does not fit gets a smaller one if the policy maximises utility, or else keeps what it has. If
    the workload says that a job is slower on more hosts than it needs (`spread`), a job that changes is packed anew
    where that needs fewer hosts.
    """

    def __init__(self, servers: Servers, *, mixes: bool = False) -> None:
        super().__init__(servers.capacity.sum(axis=0))
        self.placement = Placement(servers, mixes=mixes)
        self.packed = Counter[bool]()
        """The number of placements on as few hosts as possible (True), and on more (False)."""
        self._spread_matters = False
        self._fewest: dict[tuple[float, ...], Ints] = {}

    def place(self, state: SimulationState, jobs: Ints, columns: Ints, utilities: Floats | None = None) -> Ints:
        """See `Capacity`. Jobs that shrink or stop come first, then the largest."""
        self._spread_matters = state.workload.spread is not None
        placed = columns.copy()
        before = state.column[jobs]
        self._remove_stopped(state)
        size = state.workload.needs[jobs, columns, 0]
        size_before = state.workload.needs[jobs, before, 0]
        changed = np.flatnonzero(columns != before)
        for i in sorted(changed, key=lambda i: (size[i] >= size_before[i], -size[i])):
            job, column = int(jobs[i]), int(columns[i])
            if column == 0:
                self.placement.remove(str(job))
                continue
            tried = [column]
            if utilities is not None:
                tried += smaller_candidates(state.workload.needs[job], utilities[i], column, int(before[i]))
            placed[i] = next((k for k in tried if self._place_candidate(state, job, k)), before[i])
        return placed

    def figures(self) -> dict[str, float]:
        """See `Capacity`: the share of the placements on as few hosts as possible, if that matters to a job."""
        return {"packed": self.packed[True] / max(self.packed.total(), 1)} if self._spread_matters else {}

    def _place_candidate(self, state: SimulationState, job: int, column: int) -> bool:
        groups = self._groups(state.workload, job, column)
        if not self.placement.place(str(job), groups, self._preferred_servers):
            return False
        if state.workload.spread is not None:
            self._pack(str(job), groups)
            self._set_spread(state, job)
        return True

    def _pack(self, job: str, groups: list[Replicas]) -> None:
        """Place a job anew, wherever it is now, if it is then on fewer hosts."""
        hosts, placed = len(self.placement.servers_of(job)), self.placement.groups_of(job)
        if hosts <= self.fewest_hosts(groups):
            return
        self.placement.remove(job)
        if not self.placement.place(job, groups, self._preferred_servers) or (
            len(self.placement.servers_of(job)) >= hosts
        ):
            self.placement.remove(job)
            self.placement.hold(job, placed)

    def _set_spread(self, state: SimulationState, job: int) -> None:
        """Set by how much a job is slower on its hosts: its `spread` to the power of the hosts more than it needs."""
        assert state.workload.spread is not None
        groups = [replicas for replicas, _ in self.placement.groups_of(str(job))]
        further = len(self.placement.servers_of(str(job))) - self.fewest_hosts(groups)
        self.packed[further <= 0] += 1
        state.spread_factor[job] = state.workload.spread[job] ** max(further, 0)

    def fewest_hosts(self, groups: Sequence[Replicas]) -> int:
        """Return the least number of hosts on which equal replicas fit while the cluster is empty."""
        need, count = groups[0].need, sum(group.count for group in groups)
        key = tuple(need.tolist())
        if key not in self._fewest:
            servers = self.placement.servers
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(need > 0, servers.capacity * (1 + ROUNDING) / need, np.inf).min(axis=1)
            kinds = np.unique([kind for kind in servers.kinds if kind] or [""])
            allowed = [np.isin(servers.kinds, [kind, ""]) for kind in kinds]
            if self.placement.mixes:
                allowed = [np.ones(len(servers.names), dtype=bool)]
            most = [np.cumsum(np.sort(np.floor(room[each]))[::-1]) for each in allowed]
            longest = max(map(len, most))
            self._fewest[key] = np.max([np.pad(each, (0, longest - len(each)), mode="edge") for each in most], axis=0)
        return int(np.searchsorted(self._fewest[key], count)) + 1

    def _remove_stopped(self, state: SimulationState) -> None:
        """Remove jobs that have ended or stopped from their servers."""
        for job in self.placement.jobs:
            if state.column[int(job)] == 0:
                self.placement.remove(job)

    def fits_alone(self, workload: Workload) -> tuple[Bools, Bools]:
        """See `Capacity`."""
        fits = self._fits_on_open_servers(workload)
        return fits, fits

    def _fits_on_open_servers(self, workload: Workload) -> Bools:
        """Return which candidates (N, K) fit on the open servers while these are empty."""
        fits = np.zeros(workload.offered.shape, dtype=bool)
        known: dict[tuple[float, ...], bool] = {}  # equal candidates are tried once
        for job, column in zip(*np.nonzero(workload.offered & (workload.speed > 0)), strict=True):
            key = (*workload.needs[job, column], workload.replicas[job, column], workload.base[job])
            if key not in known:
                groups = self._groups(workload, int(job), int(column))
                known[key] = self.placement.place("", groups, self._preferred_servers)
                self.placement.remove("")
            fits[job, column] = known[key]
        return fits

    def _groups(self, workload: Workload, job: int, column: int) -> list[Replicas]:
        """Return the groups of equal replicas of a job."""
        count = int(workload.replicas[job, column])
        return [Replicas(count, workload.needs[job, column] / count)]

    def _preferred_servers(self, group: int) -> Bools | None:
        """Return the servers (S,) that a group's replicas use first; None if there is no preference."""
        return None


@dataclass
class LoanLog:
    """Servers lent in each step, and the jobs that lost replicas when servers went back."""

    lent: list[int] = field(default_factory=list)
    preempted: int = 0
    shrunk: int = 0


class LoanedCapacity(PlacedCapacity):
    """The cluster's own servers, and inference servers that are lent by a schedule and go back on demand."""

    def __init__(
        self,
        servers: Servers,
        own: int,
        lent: Ints,
        step_s: float,
        reclaim: Reclaim = least_cost,
        seed: int = 0,
        *,
        lent_speed: float = 1.0,
    ) -> None:
        """The first `own` servers are the cluster's; of the others, `lent` (T,) are available in each step of `step_s`.

        A job may have replicas on both. A replica on a lent server has `lent_speed` times the speed of one on the
        cluster's own, and the speeds of the replicas of a job add up, as in asynchronous training. Policies do not know
        of the difference.
        """
        super().__init__(servers, mixes=True)
        self.lent_speed = lent_speed
        self.own = own
        self.lent = lent
        self.step_s = step_s
        self.reclaim = reclaim
        self.rng = np.random.default_rng(seed)
        self.log = LoanLog()
        self.loaned: Bools = np.arange(len(servers.names)) >= own
        self.placement.open = ~self.loaned
        self._step = -1

    def fits_alone(self, workload: Workload) -> tuple[Bools, Bools]:
        """See `Capacity`: only the own servers are available at any time."""
        open_servers = self.placement.open
        always = self._fits_on_open_servers(workload)
        self.placement.open = np.ones_like(open_servers)
        ever = self._fits_on_open_servers(workload)
        self.placement.open = open_servers
        return ever, always

    def _groups(self, workload: Workload, job: int, column: int) -> list[Replicas]:
        """Return the base replicas of a job, and its flexible replicas."""
        count, base = int(workload.replicas[job, column]), int(workload.base[job])
        need = workload.needs[job, column] / count
        return [Replicas(min(count, base), need), Replicas(max(count - base, 0), need)]

    def next_change_s(self, now_s: float) -> float:
        """See `Capacity`; the servers lent in the last step stay."""
        step = now_s // self.step_s + 1
        return float(step * self.step_s) if step < len(self.lent) else float("inf")

    def update(self, now_s: float, state: SimulationState) -> Floats:
        """See `Capacity`."""
        step = min(int(now_s // self.step_s), len(self.lent) - 1)
        if step != self._step:
            self._step = step
            self._set_loaned(int(self.lent[step]), state)
            self.log.lent.append(int(self.lent[step]))
        capacity: Floats = self.placement.servers.capacity[self.placement.open].sum(axis=0)
        return capacity

    def place(self, state: SimulationState, jobs: Ints, columns: Ints, utilities: Floats | None = None) -> Ints:
        """See `PlacedCapacity`; jobs on lent servers get the speed of these."""
        placed = super().place(state, jobs, columns, utilities)
        self._set_speeds(state)
        return placed

    def figures(self) -> dict[str, float]:
        """See `Capacity`: the mean number of servers lent, and the jobs stopped and shrunk when servers went back."""
        lent = float(np.mean(self.log.lent)) if self.log.lent else 0.0
        return super().figures() | {
            "lent": lent,
            "stopped_by_reclaim": self.log.preempted,
            "shrunk_by_reclaim": self.log.shrunk,
        }

    def _preferred_servers(self, group: int) -> Bools | None:
        """See `PlacedCapacity`: base replicas prefer own servers, flexible replicas prefer loaned ones."""
        return ~self.loaned if group == 0 else self.loaned

    def _set_loaned(self, count: int, state: SimulationState) -> None:
        loaned = np.flatnonzero(self.placement.open & self.loaned)
        if count > len(loaned):
            self.placement.open[np.flatnonzero(~self.placement.open)[: count - len(loaned)]] = True
        elif count < len(loaned):
            self._remove_stopped(state)
            base = self._base_servers(loaned)
            for server in self.reclaim(list(map(int, loaned)), base, len(loaned) - count, self.rng):
                self._vacate(server, state)
            self._set_speeds(state)

    def _set_speeds(self, state: SimulationState) -> None:
        """Set the speed of each job that is placed to the mean over its replicas."""
        if self.lent_speed == 1.0:
            return
        for job in self.placement.jobs:
            on_server = [item for _, where in self.placement.groups_of(job) for item in where.items()]
            count = sum(replicas for _, replicas in on_server)
            lent = sum(replicas for server, replicas in on_server if self.loaned[server])
            state.speed_factor[int(job)] = 1.0 - (1.0 - self.lent_speed) * lent / count

    def _base_servers(self, loaned: Ints) -> dict[str, frozenset[int]]:
        """Return all servers with base replicas of the jobs that have some of them on loaned servers."""
        servers_by_job = {}
        for job in self.placement.jobs:
            servers = frozenset(self.placement.groups_of(job)[0][1])
            if servers & set(map(int, loaned)):
                servers_by_job[job] = servers
        return servers_by_job

    def _vacate(self, server: int, state: SimulationState) -> None:
        """Return a server: jobs with base replicas on it stop, other jobs shrink."""
        self.placement.open[server] = False
        for job in self.placement.jobs:
            (_, base), (_, flexible) = self.placement.groups_of(job)
            if server in base or (server in flexible and not self._shrink(job, server, state)):
                self.placement.remove(job)
                state.assign(np.array([int(job)]), np.array([0]))
                self.log.preempted += 1

    def _shrink(self, job: str, server: int, state: SimulationState) -> bool:
        """Shrink a job by its replicas on a server, and return True; return False if no candidate is small enough."""
        number, workload = int(job), state.workload
        flexible = self.placement.groups_of(job)[1][1]
        remaining = int(workload.replicas[number, state.column[number]]) - flexible[server]
        fits = np.flatnonzero(workload.offered[number] & (workload.replicas[number] <= remaining))
        fits = fits[fits > 0]
        if not len(fits):
            return False
        column = int(fits[workload.replicas[number, fits].argmax()])
        if not self.placement.place(job, self._groups(workload, number, column)):
            return False
        state.assign(np.array([number]), np.array([column]))
        if workload.spread is not None:
            self._set_spread(state, number)
        self.log.shrunk += 1
        return True


def equal_servers(kinds: Sequence[tuple[str, int, Sequence[float]]]) -> Servers:
    """Return servers of several kinds: for each a name, the number of servers, and the capacity (R,) of one."""
    names = [f"{kind}-{number}" for kind, count, _ in kinds for number in range(count)]
    server_kinds = [kind for kind, count, _ in kinds for _ in range(count)]
    capacity = [np.tile(np.asarray(one, float), (count, 1)) for _, count, one in kinds]
    return Servers(names, server_kinds, np.concatenate(capacity))
