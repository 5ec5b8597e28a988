"""Candidates of jobs as the plain arrays of the problem, and what is left out of them."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.cluster.allocate import allocate_capacity, resources_of, servers_of
from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator
from sizewright.cluster.explain import explain
from sizewright.cluster.problem.candidates import JobTable, needs_of
from sizewright.cluster.problem.tables import JobTables, tables_of
from sizewright.errors import InputError
from sizewright.spec import Allocation, Candidate, Cluster, Gpu, Group
from sizewright.spec.units import GIB

CPUS = ["cpu", "memory_bytes"]


def sized(workers: int, cpu: float = 4, gib: int = 4, ps: int = 1, kind: str = "") -> Allocation:
    gpu = Gpu(kind=kind, count=1) if kind else None
    return Allocation(
        worker=(Group(replicas=workers, cpu=cpu, memory_bytes=gib * GIB, gpu=gpu),),
        ps=(Group(replicas=ps, cpu=2, memory_bytes=8 * GIB),) if ps else (), batch_size=512,
    )  # fmt: skip


def job(name: str = "a", counts: object = (1, 2, 4), power: float = 0.8, **told: object) -> JobTable:
    candidates = tuple(
        Candidate(allocation=sized(n), throughput=1000.0 * n**power)
        for n in counts  # type: ignore[attr-defined]
    )
    return JobTable(name, told.pop("candidates", candidates), **({"samples_left": 1e6, "samples": 1e6} | told))  # type: ignore[arg-type]


def tables(*jobs: JobTable, capacity: object = (64.0, 512 * GIB), most: object = None, **told: object) -> JobTables:
    there = np.array(capacity, float)
    return tables_of(jobs, CPUS, there, there if most is None else np.array(most, float), **told)  # type: ignore[arg-type]


def test_a_column_is_what_all_roles_need_together() -> None:
    made = tables(job())
    assert made.problem.needs[0].tolist() == [
        [0, 0], [6, 12 * GIB], [10, 16 * GIB], [18, 24 * GIB],
    ]  # fmt: skip
    assert made.allocation(0, 2) == sized(2)
    assert made.allocation(0, 0) is None


def test_values_of_progress_count_restarts_and_those_of_time_saved_begin_at_the_least() -> None:
    running = job(current=sized(2), restart_s=90.0, samples=1e7, samples_left=1e7)
    progress = tables(running, values="progress", window_s=900.0).problem.worth[0]
    assert progress[2] == pytest.approx(1000 * 2**0.8 * 900 / 1e7)
    assert progress[3] == pytest.approx(1000 * 4**0.8 * 810 / 1e7)
    saved = tables(running, values="completion").problem.worth[0]
    assert saved[2] == pytest.approx(900 + 10000 - 10000 / 2**0.8)
    assert saved[3] == pytest.approx(900 + 10000 - 10000 / 4**0.8 - 90)


def test_time_saved_is_counted_against_waiting_too() -> None:
    saved = tables(job(counts=(2,)), values="completion", window_s=600.0).problem.worth[0]
    assert saved.tolist() == [0.0, 600.0]


def test_what_a_job_has_had_is_told_by_what_it_has_done() -> None:
    running = job(current=sized(2), samples=1e7, samples_left=4e6, arrived_s=50.0)
    waiting = job("b", arrived_s=80.0)
    facts = tables(running, waiting, job("c", current=sized(1), ran_s=30.0)).problem.facts
    assert facts is not None
    ran_s = 6e6 / (1000 * 2**0.8)
    assert facts.now_s - facts.started_s[0] == pytest.approx(ran_s)
    assert facts.attained[:2] == pytest.approx([ran_s * 10, 0.0])
    assert np.isnan(facts.started_s[1])
    assert facts.now_s - facts.started_s[2] == 30.0


def test_a_replica_that_no_server_has_room_for_is_named() -> None:
    made = tables(job(), servers=np.array([[3.0, 512 * GIB]]))
    assert not made.problem.jobs
    assert "no server has room for one of its replicas of 4 cores" in made.left_out[0].why


def test_a_job_that_nothing_is_told_of_goes_on_with_what_it_has() -> None:
    lost = JobTable("lost", (Candidate(allocation=sized(4), throughput=1e-9),), 1e6, 1e6, current=sized(4), fixed="why")
    made = tables(lost, job())
    assert made.fixed == ("why", "")
    assert not made.problem.offered[0, 0]


def own(*told: tuple[int, float]) -> tuple[Candidate, ...]:
    return tuple(Candidate(allocation=sized(n), throughput=1.0, value=value) for n, value in told)


@pytest.mark.parametrize(
    ("candidates", "values", "why"),
    [
        ((), "progress", "It has no candidates"),
        ((Candidate(allocation=sized(4), throughput=0.0),), "progress", "its throughput is 0"),
        (own((4, -1.0), (2, -2.0)), "own", "its value is negative"),
    ],
)
def test_a_running_job_of_which_nothing_can_be_considered_keeps_what_it_has(
    candidates: tuple[Candidate, ...], values: str, why: str
) -> None:
    (rival,) = own((8, 5.0))
    made = tables(
        job("runs", candidates=candidates, current=sized(4)), job("b", candidates=(rival,)), values=values,
        capacity=(40.0, 512 * GIB),
    )  # fmt: skip
    assert made.problem.jobs == ["runs", "b"]
    assert why in made.fixed[0]
    assert made.fixed[0].endswith("it keeps its current allocation.")
    answer = get_allocator("default")(made.problem)
    assert answer.choice.tolist() == [1, 0]  # 18 of 40 cores are held, and the other would take 34
    assert made.allocation(0, 1) == sized(4)


def test_a_running_job_that_cannot_go_on_as_it_is_changes_or_stops() -> None:
    made = tables(job(candidates=own((4, -1.0), (2, 3.0)), current=sized(4)), values="own")
    column = int(made.problem.current[0])
    assert made.allocation(0, column) == sized(4)
    assert made.problem.offered[0].tolist() == [True, True, False]
    assert made.fixed == ("",)
    gone = tables(job(counts=(8,), current=sized(8)), capacity=(20.0, 512 * GIB))  # it cannot be there
    assert [left.what for left in gone.left_out] == ["the job"]


def test_of_jobs_of_one_name_the_one_that_runs_is_kept() -> None:
    for jobs in ([job(), job(current=sized(2))], [job(current=sized(2)), job()]):
        made = tables(*jobs)
        assert made.problem.current.tolist() == [2]
        assert [left.why for left in made.left_out] == ["another job has the same name"]
    with pytest.raises(InputError, match="Two running jobs have the name a"):
        tables(job(current=sized(2)), job(current=sized(1)))


def test_what_runs_on_gpus_of_no_kind_runs_on_those_that_are_there() -> None:
    any_kind = sized(2, kind="gpu")
    there = np.array([4.0, 64, 512 * GIB])
    made = tables_of(
        [job(candidates=(Candidate(allocation=any_kind, throughput=1.0),), current=any_kind)], ["gpu:a100", *CPUS],
        there, there,
    )  # fmt: skip
    assert made.problem.current.tolist() == [1]


def test_values_of_your_own_are_taken_as_they_are() -> None:
    made = tables(job(candidates=own((1, 5.0), (2, 6.0)), change_price=2.0, current=sized(1)), values="own")
    assert made.problem.worth[0].tolist() == [-2, 5, 4]
    with pytest.raises(InputError, match="A candidate of a has no value"):
        tables(job(), values="own")
    with pytest.raises(InputError, match="Unknown values 'best'"):
        tables(job(), values="best")


@pytest.mark.parametrize(
    ("made", "what", "why"),
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
def test_what_cannot_be_considered_is_left_out_and_told(made: list[JobTable], what: str, why: str) -> None:
    (left,) = tables(*made).left_out
    assert left.what.startswith(what)
    assert why in left.why


def test_negative_values_are_left_out() -> None:
    made = tables(job(candidates=own((1, -5.0), (2, 6.0))), values="own")
    assert made.problem.offered[0].tolist() == [True, True]
    assert "negative (-5)" in made.left_out[0].why


def test_a_quota_is_of_one_job() -> None:
    made = tables(job(), most=(12.0, 512 * GIB))
    assert [left.why for left in made.left_out] == ["it needs 18 cores, and a job can use at most 12"]


def test_what_a_job_has_is_a_candidate_as_fast_as_the_fastest_that_needs_no_more() -> None:
    made = tables(job(current=sized(3)))
    assert made.candidates[0][-1] == Candidate(allocation=sized(3), throughput=1000.0 * 2**0.8)
    assert made.problem.current[0] == 4
    unlike = tables(job(current=sized(1, cpu=0.5, gib=1)))
    assert unlike.candidates[0][-1].throughput == 1000.0


def test_gpus_of_no_kind_are_had_of_any() -> None:
    resources = ["gpu:a100", "gpu:v100", *CPUS]
    there = np.array([4.0, 4, 64, 512 * GIB])
    made = tables_of(
        [job(candidates=(Candidate(allocation=sized(2, kind="gpu"), throughput=1.0),))], resources, there, there
    )
    assert [needs_of(each.allocation, resources)[:2].tolist() for each in made.candidates[0]] == [[2, 0], [0, 2]]


def test_no_jobs_are_a_problem_that_every_policy_answers() -> None:
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
    there = servers_of(cluster).capacity.sum(axis=0)
    return tables_of(jobs, resources_of(cluster), there, there)


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_what_is_given_fits_on_the_servers(policy: str) -> None:
    made = of_hosts(*(job(f"j{i}", (1, 2, 4, 8), 0.5 + 0.05 * i, arrived_s=float(i)) for i in range(8)))
    answer, places = allocate_capacity(made, servers_of(HOSTS), get_allocator(policy), 5.0)
    assert made.problem.fits(answer.choice)
    assert set(places) == set(np.flatnonzero(answer.choice))
    free = servers_of(HOSTS).capacity.copy()
    for number, held in places.items():
        allocation = made.allocation(number, int(answer.choice[number]))
        assert allocation is not None
        for role, where in held:
            (group,) = getattr(allocation, role)
            assert sum(where.values()) == group.replicas
            for server, count in where.items():
                free[server] -= count * needs_of(
                    Allocation(worker=(group.model_copy(update={"replicas": 1}),), batch_size=1), CPUS
                )
    assert (free >= -1e-6).all()
    assert answer.gap is not None
    assert answer.gap >= 0
    assert all(explain(made, answer, number).endswith(".") for number in range(8))


def test_replicas_that_no_server_holds_are_not_given() -> None:
    wide = tuple(Candidate(allocation=sized(n, cpu=c), throughput=r) for n, c, r in ((1, 4, 10.0), (1, 30, 90.0)))
    made = of_hosts(job(candidates=wide))
    assert made.problem.offered[0].all()  # 48 cores are there in sum
    answer, places = allocate_capacity(made, servers_of(HOSTS), get_allocator("default"), 5.0)
    assert answer.choice.tolist() == [1]
    assert list(places) == [0]


def test_a_cluster_of_nothing_gives_nothing() -> None:
    made = tables(job(), job("b"), capacity=(0.0, 0.0))
    assert [left.what for left in made.left_out] == ["the job", "the job"]
    assert len(made.problem.jobs) == 0
