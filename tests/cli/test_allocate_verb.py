"""What `allocate` answers, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sizewright.cluster.allocators.registry import ALLOCATORS
from sizewright.spec import ClusterAllocation, Plan, Recommendation

CLUSTER = {"hosts": [{"kind": "s", "count": 4, "cpu": 16, "memory": "64Gi"}]}
HEADER = "workers,worker_cpu,worker_memory,ps,ps_cpu,ps_memory,throughput,value\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster of 64 cores and three jobs; the first of them runs."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    for number, name in enumerate("abc", 1):
        Path(f"{name}.yaml").write_text(f"name: ctr-{name}\ntraining: {{samples: {10**8 * number}}}\n")
        rows = [f"{w},4,4Gi,1,2,8Gi,{1000 * w**0.7:.1f},{w * number}\n" for w in (1, 2, 4, 8)]
        Path(f"{name}.csv").write_text(HEADER + "".join(rows))
    queue([{"current": allocation(4)}, {}, {}])
    return tmp_path


def allocation(workers: int) -> dict[str, Any]:
    worker, ps = ({"replicas": n, "cpu": c, "memory": m} for n, c, m in ((workers, 4, "4Gi"), (1, 2, "8Gi")))
    for group in (worker, ps):
        group["memory_bytes"] = group.pop("memory")
    return {"worker": [worker], "ps": [ps], "batch_size": 512}


def queue(told: list[dict[str, Any]]) -> None:
    jobs = [{"job": f"{name}.yaml", "table": f"{name}.csv"} | more for name, more in zip("abc", told, strict=False)]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))


def divided(call: Callable[..., Any], *options: str) -> ClusterAllocation:
    told = call("allocate", "cluster.yaml", "jobs.yaml", "-o", "json", *options)
    assert told.code == 0, told.err
    return ClusterAllocation.model_validate(json.loads(told.out))


def test_each_job_gets_a_plan_and_a_reason(folder: Path, call: Callable[..., Any]) -> None:
    division = divided(call, "--out", "plans")
    assert [share.job for share in division.shares] == ["ctr-a", "ctr-b", "ctr-c"]
    assert division.gap is not None
    assert division.gap <= 1e-3
    cpu = next(each for each in division.resources if each.resource == "cpu")
    assert (cpu.capacity, cpu.used <= 64) == (64, True)
    assert cpu.next_unit
    for share in division.shares:
        assert share.why.endswith(".")
        assert share.plan is not None
        assert share.plan.target == share.allocation
        assert sum(held.get("worker", 0) for held in share.servers.values()) == share.allocation.replicas("worker")
    assert division.shares[0].decision in ("adjust", "keep")
    written = sorted(Path("plans").glob("*.yaml"))
    assert [Plan.load(path).job.name for path in written] == [
        share.job for share in division.shares if share.decision != "keep"
    ]


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_every_policy_divides_it(folder: Path, call: Callable[..., Any], policy: str) -> None:
    division = divided(call, "--policy", policy)
    assert all(each.used <= each.capacity * (1 + 1e-9) for each in division.resources)
    assert division.policy == policy


def test_where_two_resources_bind_the_dynamic_programme_says_that_prices_answer(
    folder: Path, call: Callable[..., Any]
) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 4, cpu: 16, memory: 20Gi}]")
    told = call("allocate", "cluster.yaml", "jobs.yaml", "--policy", "dynamic")
    assert told.code == 0
    assert "solved by prices instead of a dynamic programme: 2 resources can run short" in told.out


def test_a_running_job_without_trials_keeps_what_it_has(folder: Path, call: Callable[..., Any]) -> None:
    Path("jobs.yaml").write_text(
        yaml.safe_dump({"jobs": [{"job": "a.yaml", "current": allocation(8)}, {"job": "b.yaml", "table": "b.csv"}]})
    )
    kept, other = divided(call).shares
    assert (kept.job, kept.decision, kept.throughput) == ("ctr-a", "keep", None)
    assert "keeps its current allocation" in kept.why
    assert other.allocation.cores() <= 64 - 34
    assert "–" in call("allocate", "cluster.yaml", "jobs.yaml").out


def test_jobs_that_may_not_wait_are_placed_first(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 2, cpu: 4, memory: 32Gi}]")
    small = {"worker": [{"replicas": 1, "cpu": 2, "memory_bytes": 2**30}], "batch_size": 512}
    large = {"worker": [{"replicas": 1, "cpu": 3, "memory_bytes": 2**30}], "batch_size": 512}
    jobs = [
        {"job": "a.yaml", "current": small, "may_wait": False, "candidates": [{"allocation": small, "throughput": 5}]},
        *({"job": f"{n}.yaml", "candidates": [{"allocation": large, "throughput": 5000}]} for n in "bc"),
    ]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))
    for policy in ("default", "mip", "slope", "sjf", "fifo", "hull", "sia", "aryl"):
        division = divided(call, "--policy", policy)
        assert sorted(share.decision for share in division.shares) == ["keep", "launch", "wait"]
        assert division.shares[0].decision == "keep"
        assert np.isfinite(division.value)


def test_a_job_that_has_to_be_stopped_first_is_named(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 1, cpu: 12, memory: 64Gi}]")
    queue([{"current": allocation(2)}, {}])
    Path("a.yaml").write_text("name: ctr-a\ntraining: {samples: 1000000000000}\n")
    told = call("allocate", "cluster.yaml", "jobs.yaml", "--policy", "sjf", "--out", "plans")
    assert "suspend" in told.out
    assert "Stop these jobs first, by hand: ctr-a" in told.err


def test_replicas_stay_on_the_servers_that_they_are_on(folder: Path, call: Callable[..., Any]) -> None:
    where = {"s-3": {"worker": 2, "ps": 1}, "s-1": {"worker": 2}}
    queue([{"current": allocation(4), "servers": where, "may_wait": False}, {}, {}])
    share = divided(call).shares[0]
    stays = {server: min(share.servers.get(server, {}).get("worker", 0), n["worker"]) for server, n in where.items()}
    assert sum(stays.values()) == min(4, share.allocation.replicas("worker"))
    queue([{"current": allocation(4), "servers": {"x-1": {"worker": 4}}}, {}, {}])
    told = call("allocate", "cluster.yaml", "jobs.yaml")
    assert told.code == 1
    assert "which the cluster does not have" in told.err


def test_who_came_first_is_as_it_is_told(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 1, cpu: 6, memory: 64Gi}]")
    queue([{"arrived": 1}, {"arrived": 1.5}, {"arrived": 0}])
    assert [share.decision for share in divided(call, "--policy", "fifo").shares] == ["wait", "wait", "launch"]


def test_the_table_says_who_gets_what_and_why(folder: Path, call: Callable[..., Any]) -> None:
    told = call("allocate", "cluster.yaml", "jobs.yaml")
    for text in ("Who gets what", "ctr-b", "gain of next unit", "• ctr-c: ", "utility: default", "cores"):
        assert text in told.out


def test_your_own_values_decide(folder: Path, call: Callable[..., Any]) -> None:
    division = divided(call, "--value", "own")
    assert division.valued_by == "own"
    assert division.shares[2].allocation.replicas("worker") == 8
    assert division.value == pytest.approx(8 * 3 + 4 * 2 + 2 * 1)


def test_manifests_for_a_platform(folder: Path, call: Callable[..., Any]) -> None:
    told = call("allocate", "cluster.yaml", "jobs.yaml", "--out", "plans", "--executor", "volcano")
    assert told.code == 0
    assert "volcano plans in plans" in told.err
    assert yaml.safe_load(Path("plans/ctr-b.yaml").read_text())["kind"] == "Job"


def test_recommendations_and_plans_are_read(folder: Path, call: Callable[..., Any], example: Path, store: Path) -> None:
    text = call("recommend", example, "--store", store, "-o", "json").out
    answer = Recommendation.model_validate_json(text)
    Path("answer.json").write_text(text)
    Path("job.yaml").write_text(example.read_text())
    Path("jobs.yaml").write_text("jobs: [{job: job.yaml, recommendation: answer.json}]")
    division = divided(call)
    (share,) = division.shares
    assert share.candidates == len(answer.alternatives)
    assert share.plan.expected.lower < share.plan.expected.value
    Path("plan.yaml").write_text(yaml.safe_dump(json.loads(share.plan.model_dump_json())))
    Path("jobs.yaml").write_text("jobs: [{job: job.yaml, recommendation: answer.json, current: plan.yaml}]")
    assert divided(call).shares[0].decision == "keep"


def test_a_job_without_trials_is_left_out_and_the_others_are_not(folder: Path, call: Callable[..., Any]) -> None:
    Path("jobs.yaml").write_text("jobs: [{job: a.yaml}, {job: b.yaml, table: b.csv}]")
    division = divided(call)
    assert [(left.job, left.what) for left in division.left_out] == [("ctr-a", "the job")]
    assert "its speed is unknown" in division.left_out[0].why
    assert [share.decision for share in division.shares] == ["launch"]
    assert "left out: ctr-a" in call("allocate", "cluster.yaml", "jobs.yaml").out


def test_what_does_not_fit_or_is_there_twice_is_told(folder: Path, call: Callable[..., Any]) -> None:
    Path("b.csv").write_text(HEADER + "64,4,4Gi,1,2,8Gi,9000,1\n")
    Path("c.csv").write_text(HEADER + "1,4,4Gi,1,2,8Gi,-5,1\n2,4,4Gi,1,2,8Gi,500,1\n")
    jobs = [{"job": f"{name}.yaml", "table": f"{name}.csv"} for name in "aabc"]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))
    told = {(left.job, left.why.split(":")[0]) for left in divided(call).left_out}
    assert told == {
        ("ctr-a", "another job has the same name"), ("ctr-b", "none of its 1 candidate can be used"),
        ("ctr-c", "its throughput is 0"),
    }  # fmt: skip


def test_a_running_job_that_is_left_with_nothing_keeps_its_capacity(folder: Path, call: Callable[..., Any]) -> None:
    held = {"allocation": allocation(8), "throughput": 0}
    where = {"s-0": {"worker": 4}, "s-1": {"worker": 4}, "s-2": {"ps": 1}}
    jobs = [
        {"job": "b.yaml", "table": "b.csv"},
        {"job": "a.yaml", "table": "a.csv"},
        {"job": "a.yaml", "candidates": [held], "current": allocation(8), "servers": where},
    ]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))
    division = divided(call)
    other, kept = division.shares
    assert (kept.job, kept.decision, kept.servers) == ("ctr-a", "keep", where)
    assert "its throughput is 0" in kept.why
    assert set(other.servers) <= {"s-2", "s-3"}
    assert [(left.job, left.why) for left in division.left_out if left.what == "the job"] == [
        ("ctr-a", "another job has the same name")
    ]


def test_a_cluster_of_nothing_leaves_all_out(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump({"hosts": [{"kind": "s", "count": 0, "cpu": 1, "memory": "1Gi"}]}))
    division = divided(call)
    assert division.shares == ()
    assert {left.job for left in division.left_out} == {"ctr-a", "ctr-b", "ctr-c"}
    assert "a job can use at most 0" in division.left_out[0].why


def test_ten_milliseconds_are_enough_for_an_answer(folder: Path, call: Callable[..., Any]) -> None:
    assert len(divided(call, "--time-limit", "0.01").plans) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--policy", "best"), "There is no policy 'best'"),
        (("--policy", "aryl", "--value", "own"), "The policy aryl defines its own values"),
        (("--value", "best"), "Unknown values 'best'"),
        (("--executor", "kubeflow"), "--out plans"),
        (("--time-limit", "0"), "time limit above 0"),
    ],
)
def test_options_that_cannot_be(folder: Path, call: Callable[..., Any], options: tuple[str, ...], told: str) -> None:
    result = call("allocate", "cluster.yaml", "jobs.yaml", *options)
    assert result.code == 1
    assert told in result.err


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ("jobs: []", "at least 1 value"),
        ("jobs: [{job: none.yaml}]", "No job file at"),
        ("jobs: [{job: a.yaml, table: none.csv}]", "No table at"),
        ("jobs: [{job: a.yaml, table: a.csv, recommendation: r.json}]", "has recommendation and table"),
        ("jobs: [{job: a.yaml, recommendation: none.json}]", "No recommendation file"),
        ("jobs: [{job: a.yaml, tabel: a.csv}]", "did you mean 'table'"),
        ("jobs: [{job: a.yaml, table: cluster.yaml}]", "neither .csv nor .parquet"),
        ("jobs: [{job: a.yaml, table: a.csv, current: b.yaml}]", "b.yaml"),
        ("jobs: [{job: a.yaml, table: a.csv, samples_left: -1}]", "samples_left"),
    ],
)
def test_jobs_files_that_cannot_be(folder: Path, call: Callable[..., Any], jobs: str, told: str) -> None:
    Path("jobs.yaml").write_text(jobs)
    result = call("allocate", "cluster.yaml", "jobs.yaml")
    assert result.code == 1
    assert told in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("current", [None, allocation(8)])
def test_a_job_whose_samples_nobody_tells_is_left_out_or_goes_on(
    folder: Path, call: Callable[..., Any], current: object
) -> None:
    Path("a.yaml").write_text("name: own\ncommand: {run: python train.py}\n")
    of_a = {"job": "a.yaml", "table": "b.csv"} | ({"current": current} if current else {})
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": [of_a, {"job": "b.yaml", "table": "b.csv"}]}))
    division = divided(call)
    why = [share.why for share in division.shares] if current else [each.why for each in division.left_out]
    assert "how many samples it trains" in why[0]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": [of_a | {"samples_left": 1e6}]}))
    (share,) = divided(call).shares
    assert share.throughput
