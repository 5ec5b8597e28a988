"""Candidates of jobs become the arrays of the problem; unusable ones are excluded with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.cluster.allocate import allocate_capacity, resources_of, servers_of
from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator
from sizewright.cluster.explain import explain
from sizewright.cluster.problem.candidates import JobTable, needs_of
from sizewright.cluster.problem.tables import JobTables, tables_of
from sizewright.errors import InputError
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Candidate, Cluster, Gpu, Group

CPUS = ["cpu", "memory_bytes"]


def sized(workers: int, cpu: float = 4, gib: int = 4, ps: int = 1, kind: str = "") -> Allocation:
    gpu = Gpu(kind=kind, count=1) if kind else None
    return Allocation(
        worker=(Group(replicas=workers, cpu=cpu, memory_bytes=gib * GIB, gpu=gpu),),
        ps=(Group(replicas=ps, cpu=2, memory_bytes=8 * GIB),) if ps else (), batch_size=512,
    )  # fmt: skip


def job(name: str = "a", counts: object = (1, 2, 4), power: float = 0.8, **fields: object) -> JobTable:
    candidates = tuple(
        Candidate(allocation=sized(n), throughput=1000.0 * n**power)
        for n in counts  # type: ignore[attr-defined]
    )
    return JobTable(name, fields.pop("candidates", candidates), **({"samples_left": 1e6, "samples": 1e6} | fields))  # type: ignore[arg-type]


def tables(*jobs: JobTable, capacity: object = (64.0, 512 * GIB), quota: object = None, **options: object) -> JobTables:
    total = np.array(capacity, float)
    return tables_of(jobs, CPUS, total, total if quota is None else np.array(quota, float), **options)  # type: ignore[arg-type]


def test_column_sums_the_needs_of_all_roles() -> None:
    built = tables(job())
    assert built.problem.needs[0].tolist() == [
        [0, 0], [6, 12 * GIB], [10, 16 * GIB], [18, 24 * GIB],
    ]  # fmt: skip
    assert built.allocation(0, 2) == sized(2)
    assert built.allocation(0, 0) is None


def test_progress_counts_restarts_and_time_saved_starts_at_the_least() -> None:
    running = job(current=sized(2), restart_s=90.0, samples=1e7, samples_left=1e7)
    progress = tables(running, values="progress", window_s=900.0).problem.utilities[0]
    assert progress[2] == pytest.approx(1000 * 2**0.8 * 900 / 1e7)
    assert progress[3] == pytest.approx(1000 * 4**0.8 * 810 / 1e7)
    saved = tables(running, values="completion").problem.utilities[0]
    assert saved[2] == pytest.approx(900 + 10000 - 10000 / 2**0.8)
    assert saved[3] == pytest.approx(900 + 10000 - 10000 / 4**0.8 - 90)


def test_time_saved_includes_the_waiting_avoided() -> None:
    saved = tables(job(counts=(2,)), values="completion", window_s=600.0).problem.utilities[0]
    assert saved.tolist() == [0.0, 600.0]


def test_attained_service_follows_from_completed_work() -> None:
    running = job(current=sized(2), samples=1e7, samples_left=4e6, arrived_s=50.0)
    waiting = job("b", arrived_s=80.0)
    state = tables(running, waiting, job("c", current=sized(1), ran_s=30.0)).problem.scheduler_state
    assert state is not None
    ran_s = 6e6 / (1000 * 2**0.8)
    assert state.now_s - state.started_s[0] == pytest.approx(ran_s)
    assert state.attained[:2] == pytest.approx([ran_s * 10, 0.0])
    assert np.isnan(state.started_s[1])
    assert state.now_s - state.started_s[2] == 30.0


def test_replica_that_fits_on_no_server_is_named() -> None:
    built = tables(job(), servers=np.array([[3.0, 512 * GIB]]))
    assert not built.problem.jobs
    assert "no server has room for one of its replicas of 4 cores" in built.left_out[0].why


def test_job_without_predictions_keeps_its_allocation() -> None:
    lost = JobTable(
        "lost", (Candidate(allocation=sized(4), throughput=1e-9),), 1e6, 1e6, current=sized(4), kept_because="why"
    )
    built = tables(lost, job())
    assert built.kept_because == ("why", "")
    assert not built.problem.offered[0, 0]


def candidates_of(*sizes: tuple[int, float]) -> tuple[Candidate, ...]:
    return tuple(Candidate(allocation=sized(n), throughput=1.0, value=value) for n, value in sizes)


@pytest.mark.parametrize(
    ("candidates", "values", "why"),
    [
        ((), "progress", "It has no candidates"),
        ((Candidate(allocation=sized(4), throughput=0.0),), "progress", "its throughput is 0"),
        (candidates_of((4, -1.0), (2, -2.0)), "own", "its value is negative"),
    ],
)
def test_running_job_without_usable_candidates_keeps_its_allocation(
    candidates: tuple[Candidate, ...], values: str, why: str
) -> None:
    (rival,) = candidates_of((8, 5.0))
    built = tables(
        job("runs", candidates=candidates, current=sized(4)), job("b", candidates=(rival,)), values=values,
        capacity=(40.0, 512 * GIB),
    )  # fmt: skip
    assert built.problem.jobs == ["runs", "b"]
    assert why in built.kept_because[0]
    assert built.kept_because[0].endswith("it keeps its current allocation.")
    answer = get_allocator("default")(built.problem)
    assert answer.choice.tolist() == [1, 0]  # 18 of 40 cores are in use, and the rival needs 34
    assert built.allocation(0, 1) == sized(4)


def test_running_job_with_an_unusable_allocation_changes_or_stops() -> None:
    built = tables(job(candidates=candidates_of((4, -1.0), (2, 3.0)), current=sized(4)), values="own")
    column = int(built.problem.current[0])
    assert built.allocation(0, column) == sized(4)
    assert built.problem.offered[0].tolist() == [True, True, False]
    assert built.kept_because == ("",)
    gone = tables(job(counts=(8,), current=sized(8)), capacity=(20.0, 512 * GIB))  # it no longer fits
    assert [exclusion.what for exclusion in gone.left_out] == ["the job"]


def test_running_job_is_kept_among_jobs_of_one_name() -> None:
    for jobs in ([job(), job(current=sized(2))], [job(current=sized(2)), job()]):
        built = tables(*jobs)
        assert built.problem.current.tolist() == [2]
        assert [exclusion.why for exclusion in built.left_out] == ["another job has the same name"]
    with pytest.raises(InputError, match="Two running jobs have the name a"):
        tables(job(current=sized(2)), job(current=sized(1)))


def test_job_on_gpus_of_any_kind_runs_on_those_of_the_cluster() -> None:
    any_kind = sized(2, kind="gpu")
    capacity = np.array([4.0, 64, 512 * GIB])
    built = tables_of(
        [job(candidates=(Candidate(allocation=any_kind, throughput=1.0),), current=any_kind)], ["gpu:a100", *CPUS],
        capacity, capacity,
    )  # fmt: skip
    assert built.problem.current.tolist() == [1]


def test_user_values_are_used_unchanged() -> None:
    built = tables(job(candidates=candidates_of((1, 5.0), (2, 6.0)), change_price=2.0, current=sized(1)), values="own")
    assert built.problem.utilities[0].tolist() == [-2, 5, 4]
    with pytest.raises(InputError, match="A candidate of a has no value"):
        tables(job(), values="own")
    with pytest.raises(InputError, match="Unknown values 'best'"):
        tables(job(), values="best")


@pytest.mark.parametrize(
    ("jobs", "what", "why"),
    [
        ([job(), job()], "the job", "another job has the same name"),
        ([job(), job("b", candidates=())], "the job", "has no candidates"),
        ([job("b", (64,)), job()], "the job", "needs 258 cores, and a job can use at most 64"),
        ([job("b", (1, 64))], "64 workers", "needs 258 cores"),
        ([job(candidates=(Candidate(allocation=sized(1), throughput=-2.0),))], "the job", "its throughput is 0"),
        (
            [job(candidates=(Candidate(allocation=sized(1, kind="a100"), throughput=2.0),))],
            "the job", "no GPUs of kind a100",
        ),
    ],
)  # fmt: skip
def test_unusable_candidate_or_job_is_excluded_with_its_reason(jobs: list[JobTable], what: str, why: str) -> None:
    (exclusion,) = tables(*jobs).left_out
    assert exclusion.what.startswith(what)
    assert why in exclusion.why


def test_candidate_of_negative_value_is_excluded() -> None:
    built = tables(job(candidates=candidates_of((1, -5.0), (2, 6.0))), values="own")
    assert built.problem.offered[0].tolist() == [True, True]
    assert "negative (-5)" in built.left_out[0].why


def test_quota_applies_to_each_job() -> None:
    built = tables(job(), quota=(12.0, 512 * GIB))
    assert [exclusion.why for exclusion in built.left_out] == ["it needs 18 cores, and a job can use at most 12"]


def test_current_allocation_is_a_candidate_as_fast_as_the_fastest_within_it() -> None:
    built = tables(job(current=sized(3)))
    assert built.candidates[0][-1] == Candidate(allocation=sized(3), throughput=1000.0 * 2**0.8)
    assert built.problem.current[0] == 4
    unlike = tables(job(current=sized(1, cpu=0.5, gib=1)))
    assert unlike.candidates[0][-1].throughput == 1000.0


def test_gpus_without_a_kind_become_candidates_of_every_kind() -> None:
    resources = ["gpu:a100", "gpu:v100", *CPUS]
    capacity = np.array([4.0, 4, 64, 512 * GIB])
    built = tables_of(
        [job(candidates=(Candidate(allocation=sized(2, kind="gpu"), throughput=1.0),))], resources, capacity, capacity
    )
    assert [needs_of(each.allocation, resources)[:2].tolist() for each in built.candidates[0]] == [[2, 0], [0, 2]]


def test_every_policy_solves_a_problem_without_jobs() -> None:
    for name in ALLOCATORS:
        assert len(get_allocator(name)(tables().problem).choice) == 0


HOSTS = Cluster.model_validate(
    {
        "hosts": [
            {"kind": "s", "count": 3, "cpu": 8, "memory": "64Gi"},
            {"kind": "l", "count": 1, "cpu": 24, "memory": "64Gi"},
        ]
    }
)


def of_hosts(*jobs: JobTable, cluster: Cluster = HOSTS) -> JobTables:
    capacity = servers_of(cluster).capacity.sum(axis=0)
    return tables_of(jobs, resources_of(cluster), capacity, capacity)


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_allocation_of_every_policy_fits_on_the_servers(policy: str) -> None:
    built = of_hosts(*(job(f"j{i}", (1, 2, 4, 8), 0.5 + 0.05 * i, arrived_s=float(i)) for i in range(8)))
    answer, places = allocate_capacity(built, servers_of(HOSTS), get_allocator(policy), 5.0)
    assert built.problem.fits(answer.choice)
    assert set(places) == set(np.flatnonzero(answer.choice))
    free = servers_of(HOSTS).capacity.copy()
    for number, groups in places.items():
        allocation = built.allocation(number, int(answer.choice[number]))
        assert allocation is not None
        for role, counts in groups:
            (group,) = getattr(allocation, role)
            assert sum(counts.values()) == group.replicas
            for server, count in counts.items():
                free[server] -= count * needs_of(
                    Allocation(worker=(group.model_copy(update={"replicas": 1}),), batch_size=1), CPUS
                )
    assert (free >= -1e-6).all()
    assert answer.gap is not None
    assert answer.gap >= 0
    assert all(explain(built, answer, number).endswith(".") for number in range(8))


def test_replica_larger_than_every_server_is_not_allocated() -> None:
    wide = tuple(Candidate(allocation=sized(n, cpu=c), throughput=r) for n, c, r in ((1, 4, 10.0), (1, 30, 90.0)))
    built = of_hosts(job(candidates=wide))
    assert built.problem.offered[0].all()  # 48 cores in total
    answer, places = allocate_capacity(built, servers_of(HOSTS), get_allocator("default"), 5.0)
    assert answer.choice.tolist() == [1]
    assert list(places) == [0]


def test_cluster_without_capacity_excludes_all_jobs() -> None:
    built = tables(job(), job("b"), capacity=(0.0, 0.0))
    assert [exclusion.what for exclusion in built.left_out] == ["the job", "the job"]
    assert len(built.problem.jobs) == 0
