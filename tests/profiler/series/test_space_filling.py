from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sizewright.spec
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import JobError
from sizewright.formatting import GIB
from sizewright.models.forms.dlrover import DlroverModel
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.profiler.series.space_filling import CommandPlanner, SpaceFillingPlanner, space_filling_allocations
from sizewright.spec import Allocation, Bounds, Gpu, Job, RoleBounds

STARTER = Job.load(Path(sizewright.spec.__file__).with_name("starter.yaml"))


def place(allocation: Allocation) -> tuple[float, ...]:
    (worker,), (ps,) = allocation.worker, allocation.ps
    return (worker.replicas, ps.replicas, worker.cpu, ps.cpu)


def roles(maximum: int) -> st.SearchStrategy[RoleBounds]:
    ordered = st.tuples(st.integers(1, maximum), st.integers(1, maximum)).map(lambda pair: tuple(sorted(pair)))
    cores = st.tuples(st.floats(0.1, 16), st.floats(0.1, 16)).map(lambda pair: tuple(sorted(pair)))
    return st.builds(RoleBounds, replicas=ordered, cpu=cores)  # type: ignore[arg-type]


@given(worker=roles(6), ps=roles(4), cores=st.floats(0.2, 64), count=st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_the_plan_stays_within_the_bounds_and_the_host(
    worker: RoleBounds, ps: RoleBounds, cores: float, count: int
) -> None:
    job = Job(bounds=Bounds(worker=worker, ps=ps))
    try:
        allocations = space_filling_allocations(job, cores, count)
    except JobError:
        # Only if the minimum replicas at the minimum cores do not fit, or only just.
        min_cores = worker.replicas[0] * min(0.1, worker.cpu[0]) + ps.replicas[0] * min(0.1, ps.cpu[0])
        assert cores < min_cores + 1.0
        return
    places = [place(allocation) for allocation in allocations]
    assert len(set(places)) == len(places) <= count
    for w, p, wc, pc in places:
        assert worker.replicas[0] <= w <= worker.replicas[1]
        assert ps.replicas[0] <= p <= ps.replicas[1]
        assert w * wc + p * pc <= cores + 1e-9
        assert 0.1 <= wc <= worker.cpu[1]
        assert 0.1 <= pc <= ps.cpu[1]
    room = worker.replicas[0] * worker.cpu[0] + ps.replicas[0] * ps.cpu[0] <= cores
    assume(room and max(worker.cpu[0], ps.cpu[0]) * (worker.replicas[0] + ps.replicas[0]) <= cores)
    assert all(wc >= worker.cpu[0] and pc >= ps.cpu[0] for _, _, wc, pc in places)


def test_host_too_small_for_the_minimum_replicas_is_refused() -> None:
    job = Job(bounds=Bounds(worker=RoleBounds(replicas=(50, 60))))
    with pytest.raises(JobError, match=r"No allocation within the bounds fits the 1.6 cores .* Lower the minimum"):
        space_filling_allocations(job, 1.6, 8)


def test_cores_below_the_bounds_are_measured_where_the_bounds_do_not_fit_the_host() -> None:
    job = Job(bounds=Bounds(worker=RoleBounds(cpu=(8, 16)), ps=RoleBounds(cpu=(4, 8), replicas=(1, 2))))
    allocations = space_filling_allocations(job, 1.6, 8)
    assert len(allocations) == 8
    assert all(place(a)[2] < 8 and place(a)[3] < 4 for a in allocations)


@pytest.mark.parametrize("cores", [1.6, 3.2, 12.8])
def test_the_starter_job_gets_enough_on_a_small_host(cores: float) -> None:
    points = SpaceFillingPlanner(STARTER, cores).points
    assert len(points) == 8 + 2 + 1
    assert points[0] == points[-1]
    anchor = points[0].allocation
    assert [(p.allocation, p.table_scale) for p in points[:3]] == [(anchor, 1.0), (anchor, 0.25), (anchor, 0.0625)]
    assert {p.table_scale for p in points[3:]} == {1.0}
    assert len({place(p.allocation) for p in points}) == 8
    full = 100_000_000
    trials = []
    for allocation, scale in points:
        w, p, wc, pc = place(allocation)
        m = allocation.batch_size
        seconds = 0.003 + 4e-5 * m / wc + 0.002 * w / (p * pc) + 0.001 * w / p
        trials.append(
            Trial(
                workers=int(w), ps=int(p), worker_cpu=wc, ps_cpu=pc, batch_size=m, throughput=w * m / seconds,
                embedding_bytes=round(full * scale),
            )
        )  # fmt: skip
    model = DlroverModel().fit(trials)
    account = model.explain()
    assert account.enough
    assert account.pinned == ()
    assert account.parameters["compute"] == pytest.approx(4e-5, rel=1e-6)


def test_planner_sets_the_scale_of_full_tables() -> None:
    points = SpaceFillingPlanner(STARTER, 1.6, full_scale=0.5).points
    assert [p.table_scale for p in points[:4]] == [0.5, 0.125, 0.03125, 0.5]


@given(st.integers(1, 20))
@settings(deadline=None)
def test_trials_shrink_and_ps_change_seldom(count: int) -> None:
    allocations = space_filling_allocations(STARTER, 3.2, count)
    rest = [(a.replicas("ps"), a.replicas("worker")) for a in allocations[1:]]
    assert rest == sorted(rest, reverse=True)


def test_planner_names_the_largest_replica_counts() -> None:
    planner = SpaceFillingPlanner(STARTER, 3.2, count=8)
    for role in ("worker", "ps"):
        assert planner.max_replicas(role) == max(point.allocation.replicas(role) for point in planner.points)


def test_plan_is_deterministic() -> None:
    assert SpaceFillingPlanner(STARTER, 3.2).points == SpaceFillingPlanner(STARTER, 3.2).points


def test_replicas_without_fractions_have_integer_cores() -> None:
    for allocation in space_filling_allocations(Job(), 8.0, 9, whole_cores=True):
        assert all(group.cpu == int(group.cpu) for _, group in allocation.groups)
        assert allocation.cores() <= 8


def test_a_trial_has_twice_the_memory_that_is_predicted() -> None:
    job = Job()
    for point in SpaceFillingPlanner(job, 4.0, count=4).points:
        ps, workers = (np.array([float(point.allocation.replicas(role))]) for role in ("ps", "worker"))
        assert point.allocation.ps[0].memory_bytes == int(2 * MemoryModel(job).ps_bytes(ps, workers)[0])


HUGE = Job.model_validate({"model": {"tables": {"count": 10, "rows": [10**9] * 10, "dim": 128}}})


def test_trials_of_huge_tables_ask_for_the_memory_of_their_share_of_rows() -> None:
    room = 16 * GIB
    scale = MemoryModel(HUGE).scale_that_fits(room / 2)
    points = SpaceFillingPlanner(HUGE, 4.0, room, full_scale=scale).points
    assert scale < 0.001
    for point in points:
        needed = MemoryModel(HUGE).ps_bytes(np.array([float(point.allocation.replicas("ps"))]), np.ones(1), scale)[0]
        assert point.allocation.ps[0].memory_bytes >= needed
        assert point.allocation.memory_bytes() <= room


def test_host_too_small_for_any_trial_is_refused_at_the_start() -> None:
    with pytest.raises(JobError, match=r"A trial with 1e-06 of the tables' rows needs .* but only 64.0 MiB are free"):
        SpaceFillingPlanner(HUGE, 4.0, 64 << 20, full_scale=1e-6)


def test_allocations_beyond_the_memory_of_the_host_are_not_tried() -> None:
    job = Job()
    every = SpaceFillingPlanner(job, 4.0, count=6).points
    room = sorted(point.allocation.memory_bytes() for point in every)[2] / 2 * 1.2
    points = SpaceFillingPlanner(job, 4.0, room, count=6).points
    assert 0 < len(points) < len(every)
    assert all(point.allocation.memory_bytes() <= room for point in points)


@given(total=st.integers(1, 300), low=st.integers(1, 8), more=st.integers(0, 20), cores=st.floats(2, 32))
@settings(max_examples=60, deadline=None)
def test_trials_share_a_global_batch_evenly(total: int, low: int, more: int, cores: float) -> None:
    bounds = {"worker": {"replicas": [low, low + more], "cpu": [0.1, 1]}, "ps": {"cpu": [0.1, 1]}}
    try:
        job = Job.model_validate({"training": {"global_batch_size": total}, "bounds": bounds})
        allocations = space_filling_allocations(job, cores, 6)
    except JobError:
        assume(False)
    assert all(each.replicas("worker") * each.batch_size == total for each in allocations)


def on_gpus(gpu: object, replicas: object = 1, **training: object) -> Job:
    return Job.model_validate(
        {
            "command": {"run": "train --batch {batch_size}"},
            "training": {"batch_size": 512, **training},
            "bounds": {"worker": {"replicas": replicas, "cpu": [1, 8], "gpu": gpu}, "batch_size": [256, 4096]},
        }
    )


def test_trials_of_a_command_differ_in_gpus_and_batch_size() -> None:
    points = CommandPlanner(on_gpus({"kind": "a100", "count": [1, 8]}), 16.0, 64 * GIB, count=9, host_gpus=4).points
    gpus = {point.allocation.worker[0].gpu for point in points}
    assert {gpu.kind for gpu in gpus if gpu} == {"a100"}
    assert {gpu.count for gpu in gpus if gpu} >= {1, 4}
    assert {gpu.count for gpu in gpus if gpu} <= {1, 2, 4}
    assert {256, 4096} <= {point.allocation.batch_size for point in points}


def test_workers_together_have_no_more_gpus_than_the_host() -> None:
    allocations = space_filling_allocations(on_gpus([1, 4], replicas=[1, 4]), 32.0, 20, host_gpus=4)
    assert max(allocation.gpus() for allocation in allocations) == 4
    assert {allocation.replicas("worker") for allocation in allocations} >= {1, 4}


@pytest.mark.parametrize(("host_gpus", "has"), [(0, "no GPU"), (3, "3 GPUs")])
def test_gpus_that_the_host_lacks_are_refused_with_what_to_do(host_gpus: int, has: str) -> None:
    job = on_gpus("a100:2", replicas=[2, 4])
    message = rf"at least 2 workers of 2 GPUs each, and this host has {has} for trials. .*sizewright trials export"
    with pytest.raises(JobError, match=message):
        CommandPlanner(job, 16.0, 64 * GIB, host_gpus=host_gpus)


def test_workers_without_gpus_are_measured_where_the_host_has_none_and_the_bounds_allow_it() -> None:
    allocations = space_filling_allocations(on_gpus([0, 2]), 16.0, 4, host_gpus=0)
    assert {allocation.gpus() for allocation in allocations} == {0}


def test_built_in_job_keeps_its_gpus_in_trials() -> None:
    job = Job.model_validate({"training": {"device": "cuda"}, "bounds": {"worker": {"gpu": "a100:1"}}})
    points = SpaceFillingPlanner(job, 4.0, host_gpus=8).points
    assert {point.allocation.worker[0].gpu for point in points} == {Gpu(kind="a100", count=1)}
    assert all(point.allocation.worker[0].memory_bytes for point in points)
