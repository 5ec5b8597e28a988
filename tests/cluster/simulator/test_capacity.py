"""In the simulator placed jobs fit on their servers, and loaned servers are returned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.placement.placement import Replicas, Servers
from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.reclaim import RECLAIMS, at_random
from sizewright.cluster.simulator.capacity import Capacity, LoanedCapacity, PlacedCapacity, equal_servers
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload
from tests.helpers.workloads import random_workload, workload_of


class Checked(LoanedCapacity):
    """Checks after each decision that the placed replicas match the allocation."""

    looked = 0

    def place(self, state: SimulationState, jobs: Ints, columns: Ints, utilities: Floats | None = None) -> Ints:
        placed = super().place(state, jobs, columns, utilities)
        for job, column in zip(jobs, placed, strict=True):
            placed_replicas = sum(sum(counts.values()) for _, counts in self.placement.groups_of(str(job)))
            assert placed_replicas == state.workload.replicas[job, column]
        assert (self.placement.free >= -1e-9).all()
        closed = ~self.placement.open
        assert np.allclose(self.placement.free[closed], self.placement.servers.capacity[closed])
        self.looked += 1
        return placed


def lending(steps: int, seed: int) -> Ints:
    return np.random.default_rng(seed).integers(0, 4, steps).astype(np.intp)


@of_hypothesis(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(["default", "aryl", "fifo"]))
def test_placed_replicas_match_the_allocation_while_servers_come_and_go(seed: int, policy: str) -> None:
    supply = Checked(equal_servers([("own", 2, [8.0]), ("lent", 3, [8.0])]), 2, lending(40, seed), 100.0)
    workload = random_workload(seed, 40, restart_s=5.0)
    result = Simulation(workload, supply, get_allocator(policy), Settings(every_s=30.0, window_s=60.0)).run()
    assert np.isfinite(result.finished_s).all()
    assert supply.looked > 5
    assert set(supply.log.lent) <= {0, 1, 2, 3}


def test_replica_larger_than_the_free_parts_of_servers_waits() -> None:
    rigid = workload_of([100, 100, 100], power=1.0, sizes=[3], elastic=False)
    summed = Simulation(rigid, Capacity(np.array([10.0])), get_allocator("fifo"), Settings(every_s=0.0)).run()
    servers = equal_servers([("s", 2, [5.0])])
    placed = Simulation(rigid, PlacedCapacity(servers), get_allocator("fifo"), Settings(every_s=0.0)).run()
    assert summed.figures()["queueing_s"] == 0
    assert placed.figures()["queueing_s"] == 0  # replicas of a job may use several servers
    single_replica = workload_of([100, 100, 100], power=1.0, sizes=[3], elastic=False)
    single_replica.replicas[:, 1] = 1
    single_replica.base[:] = 1
    single = Simulation(single_replica, PlacedCapacity(servers), get_allocator("fifo"), Settings(every_s=0.0)).run()
    assert single.figures()["queueing_s"] > 0


def test_loaned_servers_shorten_the_queue() -> None:
    workload, kinds = random_workload(5, 60), [("own", 1, [8.0]), ("lent", 2, [8.0])]
    waits = []
    for loaned in (0, 2):
        supply = LoanedCapacity(equal_servers(kinds), 1, np.full(100, loaned), 300.0)
        settings = Settings(every_s=30.0, window_s=60.0)
        waits.append(Simulation(workload, supply, get_allocator("aryl"), settings).run().figures()["jct_s"])
    assert waits[1] < 0.8 * waits[0]


def test_replicas_on_slower_lent_servers_slow_their_job() -> None:
    def seconds(lent_speed: float, lent: list[int], sizes: list[int]) -> float:
        workload = workload_of([4000.0], power=1.0, sizes=sizes, restart_s=0.0)
        workload.change_s[:] = 0.0
        servers = equal_servers([("own", 1, [4.0]), ("lent", 1, [4.0])])
        supply = LoanedCapacity(servers, 1, np.array(lent), 100.0, lent_speed=lent_speed)
        return float(Simulation(workload, supply, get_allocator("fifo"), Settings(every_s=10.0)).run().finished_s[0])

    always = seconds(1.0, [1], [8])
    assert seconds(0.5, [1], [8]) == pytest.approx(always / 0.75)  # half of the replicas are half as fast
    assert seconds(0.5, [1], [4]) == pytest.approx(seconds(1.0, [1], [4]))  # own servers have room
    assert seconds(0.5, [0], [4]) == pytest.approx(seconds(1.0, [0], [4]))


def test_job_is_as_fast_as_before_once_it_leaves_slower_servers() -> None:
    workload = workload_of([4000.0], power=1.0, sizes=[4, 8])
    servers = equal_servers([("own", 1, [4.0]), ("lent", 1, [4.0])])
    supply = LoanedCapacity(servers, 1, np.array([1, 0]), 100.0, lent_speed=0.5)
    simulation = Simulation(workload, supply, get_allocator("default"), Settings(every_s=10.0, until_s=50.0))
    simulation.run()
    assert simulation.state.speed_factor[0] == pytest.approx(0.75)
    simulation = Simulation(workload, supply, get_allocator("default"), Settings(every_s=10.0, until_s=150.0))
    simulation.run()
    assert simulation.state.speed_factor[0] == 1.0


def test_reclaim_shrinks_elastic_jobs_and_preempts_rigid_ones() -> None:
    """An elastic job grows onto a loaned server, and shrinks when that server is reclaimed."""
    workload = workload_of([4000.0], power=1.0, sizes=[4, 8])
    supply = LoanedCapacity(equal_servers([("own", 1, [4.0]), ("lent", 1, [4.0])]), 1, np.array([0, 1, 0, 0, 0]), 100.0)
    Simulation(workload, supply, get_allocator("default"), Settings(every_s=10.0)).run()
    assert (supply.log.shrunk, supply.log.preempted) == (1, 0)
    rigid = workload_of([4000.0], power=1.0, sizes=[8], elastic=False, restart_s=1.0)
    supply = LoanedCapacity(equal_servers([("own", 1, [4.0]), ("lent", 1, [4.0])]), 1, np.array([0, 1, 0, 1, 1]), 100.0)
    result = Simulation(rigid, supply, get_allocator("fifo"), Settings(every_s=10.0)).run()
    assert (supply.log.shrunk, supply.log.preempted) == (0, 1)
    assert list(result.preemptions) == [1]


def test_least_cost_reclaim_preempts_fewer_jobs_than_random() -> None:
    def preempted(reclaim: str) -> int:
        loaned = np.tile([12, 4], 60)
        supply = LoanedCapacity(
            equal_servers([("own", 4, [4.0]), ("lent", 12, [4.0])]), 4, loaned, 300.0, RECLAIMS[reclaim], seed=1
        )
        workload = random_workload(8, 300, restart_s=5.0, sizes=[1, 2, 4, 8])
        Simulation(workload, supply, get_allocator("sjf"), Settings(every_s=60.0)).run()
        return supply.log.preempted

    assert RECLAIMS["random"] is at_random
    assert 0 < preempted("least-cost") < preempted("random")


@pytest.mark.parametrize("amount", [0.0, 0.5])
def test_cluster_without_capacity_leaves_all_jobs_unfinished(amount: float) -> None:
    capacity: Floats = np.array([amount])
    result = Simulation(random_workload(1, 5), Capacity(capacity), get_allocator("default"), Settings()).run()
    figures = result.figures()
    assert (figures["unfinished"], figures["use"]) == (5.0, 0.0)


def servers_of_two_kinds() -> Servers:
    return Servers(["a", "v"], ["a100", "v100"], np.array([[4.0], [4.0]]))


@pytest.mark.parametrize("policy", ["fifo", "sjf", "default", "aryl"])
def test_job_too_large_for_every_server_kind_is_excluded(policy: str) -> None:
    workload = workload_of([100.0] * 6, sizes=[4, 6], elastic=False, asked=1)
    workload.offered[0], workload.requested[0] = [True, False, True], 2
    supply = PlacedCapacity(servers_of_two_kinds())
    fitting, notes = supply.fit_workload(workload)
    assert (len(fitting), notes) == (5, ["1 job left out: the cluster is too small"])
    result = Simulation(fitting, supply, get_allocator(policy), Settings(every_s=0.0)).run()
    assert np.isfinite(result.finished_s).all()


def test_elastic_job_requests_the_largest_candidate_that_fits() -> None:
    workload = workload_of([100.0], sizes=[2, 4, 6], asked=3)
    fitting, notes = PlacedCapacity(servers_of_two_kinds()).fit_workload(workload)
    assert fitting.requested[0] == 2
    assert "the largest candidate that fits is taken as the request" in notes[0]


@pytest.mark.parametrize("policy", ["fifo", "default", "aryl"])
def test_jobs_of_oversized_replicas_are_excluded(policy: str) -> None:
    workload = workload_of([100.0, 50.0], sizes=[1, 2])
    supply = LoanedCapacity(equal_servers([("own", 4, [0.5]), ("lent", 3, [0.5])]), 4, lending(40, 0), 100.0)
    fitting, notes = supply.fit_workload(workload)
    assert len(fitting) == 0
    assert "2 jobs left out" in notes[0]
    result = Simulation(workload, supply, get_allocator(policy), Settings(every_s=30.0)).run()
    assert np.isnan(result.finished_s).all()


def test_job_that_does_not_fit_on_servers_is_allocated_less() -> None:
    workload = workload_of([1000.0, 1000.0], sizes=[2, 3], change_s=0.0, asked=2)
    workload.replicas[:] = np.minimum(
        workload.replicas, 1
    )  # one replica each: 3 + 3 fit in total, but not on the servers
    supply = PlacedCapacity(Servers(["a", "b"], ["", ""], np.array([[4.0], [2.0]])))
    fitting, _ = supply.fit_workload(workload)
    result = Simulation(fitting, supply, get_allocator("default"), Settings(every_s=0.0)).run()
    assert result.waited_s.max() == 0.0


def test_figures_report_loaned_and_reclaimed_servers() -> None:
    supply = LoanedCapacity(equal_servers([("own", 1, [8.0]), ("lent", 3, [8.0])]), 1, lending(40, 1), 100.0)
    Simulation(random_workload(1, 40), supply, get_allocator("aryl"), Settings(every_s=30.0)).run()
    figures = supply.figures()
    assert 0 < figures["lent"] <= 3
    assert figures["stopped_by_reclaim"] + figures["shrunk_by_reclaim"] > 0


def spread_workload(sizes: list[int], spread: float) -> Workload:
    workload = workload_of([1000.0] * 3, arrived=[0, 10, 20], power=1.0, sizes=sizes, elastic=False)
    return replace(workload, spread=np.full(3, spread))


def test_each_further_host_slows_a_job() -> None:
    """The third job finds one free GPU on each of two hosts, though one host would be enough."""
    workload = spread_workload([3], 1.0)
    workload.needs[2, 1] = 2.0
    workload.replicas[2, 1] = 2
    results = {}
    for spread in (1.0, 0.5):
        supply = PlacedCapacity(equal_servers([("s", 2, [4.0])]))
        slowed = replace(workload, spread=np.array([1.0, 1.0, spread]))
        results[spread] = Simulation(slowed, supply, get_allocator("fifo"), Settings(every_s=0.0)).run()
        assert supply.figures() == {"packed": pytest.approx(2 / 3)}
    assert results[1.0].finished_s[2] == pytest.approx(20 + 1000 / 3)
    assert results[0.5].finished_s[2] == pytest.approx(20 + 2 * 1000 / 3)


def test_hosts_are_counted_beyond_the_fewest_possible() -> None:
    supply = PlacedCapacity(Servers(["a", "b", "c"], ["", "", ""], np.array([[4.0], [2.0], [2.0]])))
    need = np.array([1.0])
    assert [supply.fewest_hosts([Replicas(count, need)]) for count in (1, 4, 5, 6, 7, 8)] == [1, 1, 2, 2, 3, 3]
    two_kinds = PlacedCapacity(servers_of_two_kinds())
    assert two_kinds.fewest_hosts([Replicas(4, need)]) == 1


def test_job_that_grows_moves_where_it_needs_fewer_hosts() -> None:
    supply = PlacedCapacity(equal_servers([("s", 2, [4.0])]))
    workload = replace(workload_of([100.0, 100.0], sizes=[2, 3, 4], elastic=True), spread=np.full(2, 0.9))
    state = SimulationState(workload)
    state.advance(0.0)
    supply.placement.hold("1", [(Replicas(1, np.array([1.0])), {0: 1})])
    state.column[1] = 1
    for column in (1, 3):
        state.assign(np.array([0]), supply.place(state, np.array([0]), np.array([column])))
    assert supply.placement.servers_of("0").tolist() == [1]
    assert state.spread_factor[0] == 1.0


@of_hypothesis(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(["default", "fifo", "slope"]))
def test_spread_never_makes_a_job_faster_and_stays_in_its_bounds(seed: int, policy: str) -> None:
    workload = replace(random_workload(seed, 30), spread=np.full(30, 0.8))
    supply = PlacedCapacity(equal_servers([("s", 4, [4.0])]))
    simulation = Simulation(workload, supply, get_allocator(policy), Settings(every_s=30.0, window_s=60.0))
    result = simulation.run()
    assert np.isfinite(result.finished_s).all()
    assert (result.ran_s >= workload.work / workload.speed.max(axis=1) - 1e-6).all()
    factor = simulation.state.spread_factor
    assert ((factor <= 1) & (factor >= 0.8**3 - 1e-12)).all()
    assert 0 < supply.figures()["packed"] <= 1
