"""Tests of `allocate`: its answer, its files and its errors."""

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
    """Return a folder with a cluster of 64 cores and three jobs; the first of them runs."""
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


def queue(fields: list[dict[str, Any]]) -> None:
    jobs = [{"job": f"{name}.yaml", "table": f"{name}.csv"} | extra for name, extra in zip("abc", fields, strict=False)]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))


def allocate(call: Callable[..., Any], *options: str) -> ClusterAllocation:
    result = call("allocate", "cluster.yaml", "jobs.yaml", "-o", "json", *options)
    assert result.code == 0, result.err
    return ClusterAllocation.model_validate(json.loads(result.out))


def test_each_job_gets_a_plan_and_a_reason(folder: Path, call: Callable[..., Any]) -> None:
    cluster_allocation = allocate(call, "--out", "plans")
    assert [share.job for share in cluster_allocation.shares] == ["ctr-a", "ctr-b", "ctr-c"]
    assert cluster_allocation.gap is not None
    assert cluster_allocation.gap <= 1e-3
    cpu = next(each for each in cluster_allocation.resources if each.resource == "cpu")
    assert (cpu.capacity, cpu.used <= 64) == (64, True)
    assert cpu.next_unit
    for share in cluster_allocation.shares:
        assert share.why.endswith(".")
        assert share.plan is not None
        assert share.plan.target == share.allocation
        assert sum(groups.get("worker", 0) for groups in share.servers.values()) == share.allocation.replicas("worker")
    assert cluster_allocation.shares[0].decision in ("adjust", "keep")
    paths = sorted(Path("plans").glob("*.yaml"))
    assert [Plan.load(path).job.name for path in paths] == [
        share.job for share in cluster_allocation.shares if share.decision != "keep"
    ]


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_every_policy_allocates_within_the_capacity(folder: Path, call: Callable[..., Any], policy: str) -> None:
    cluster_allocation = allocate(call, "--policy", policy)
    assert all(each.used <= each.capacity * (1 + 1e-9) for each in cluster_allocation.resources)
    assert cluster_allocation.policy == policy


def test_dynamic_policy_with_two_scarce_resources_reports_that_it_uses_prices(
    folder: Path, call: Callable[..., Any]
) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 4, cpu: 16, memory: 20Gi}]")
    result = call("allocate", "cluster.yaml", "jobs.yaml", "--policy", "dynamic")
    assert result.code == 0
    assert "solved by prices instead of a dynamic programme: 2 resources can run short" in result.out


def test_running_job_without_trials_keeps_its_allocation(folder: Path, call: Callable[..., Any]) -> None:
    Path("jobs.yaml").write_text(
        yaml.safe_dump({"jobs": [{"job": "a.yaml", "current": allocation(8)}, {"job": "b.yaml", "table": "b.csv"}]})
    )
    running, other = allocate(call).shares
    assert (running.job, running.decision, running.throughput) == ("ctr-a", "keep", None)
    assert "keeps its current allocation" in running.why
    assert other.allocation.cores() <= 64 - 34
    assert "–" in call("allocate", "cluster.yaml", "jobs.yaml").out


def test_jobs_that_may_not_wait_are_placed_first_by_every_policy(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 2, cpu: 4, memory: 32Gi}]")
    small = {"worker": [{"replicas": 1, "cpu": 2, "memory_bytes": 2**30}], "batch_size": 512}
    large = {"worker": [{"replicas": 1, "cpu": 3, "memory_bytes": 2**30}], "batch_size": 512}
    jobs = [
        {"job": "a.yaml", "current": small, "may_wait": False, "candidates": [{"allocation": small, "throughput": 5}]},
        *({"job": f"{n}.yaml", "candidates": [{"allocation": large, "throughput": 5000}]} for n in "bc"),
    ]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))
    for policy in ("default", "mip", "slope", "sjf", "fifo", "hull", "sia", "aryl"):
        cluster_allocation = allocate(call, "--policy", policy)
        assert sorted(share.decision for share in cluster_allocation.shares) == ["keep", "launch", "wait"]
        assert cluster_allocation.shares[0].decision == "keep"
        assert np.isfinite(cluster_allocation.value)


def test_job_that_must_be_stopped_first_is_named(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 1, cpu: 12, memory: 64Gi}]")
    queue([{"current": allocation(2)}, {}])
    Path("a.yaml").write_text("name: ctr-a\ntraining: {samples: 1000000000000}\n")
    result = call("allocate", "cluster.yaml", "jobs.yaml", "--policy", "sjf", "--out", "plans")
    assert "suspend" in result.out
    assert "Stop these jobs first, by hand: ctr-a" in result.err


def test_replicas_of_running_job_stay_on_their_servers(folder: Path, call: Callable[..., Any]) -> None:
    servers = {"s-3": {"worker": 2, "ps": 1}, "s-1": {"worker": 2}}
    queue([{"current": allocation(4), "servers": servers, "may_wait": False}, {}, {}])
    share = allocate(call).shares[0]
    stays = {
        server: min(share.servers.get(server, {}).get("worker", 0), groups["worker"])
        for server, groups in servers.items()
    }
    assert sum(stays.values()) == min(4, share.allocation.replicas("worker"))
    queue([{"current": allocation(4), "servers": {"x-1": {"worker": 4}}}, {}, {}])
    result = call("allocate", "cluster.yaml", "jobs.yaml")
    assert result.code == 1
    assert "which the cluster does not have" in result.err


def test_fifo_policy_uses_the_arrival_times_of_the_file(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, count: 1, cpu: 6, memory: 64Gi}]")
    queue([{"arrived": 1}, {"arrived": 1.5}, {"arrived": 0}])
    assert [share.decision for share in allocate(call, "--policy", "fifo").shares] == ["wait", "wait", "launch"]


def test_table_shows_allocations_and_reasons(folder: Path, call: Callable[..., Any]) -> None:
    result = call("allocate", "cluster.yaml", "jobs.yaml")
    for text in ("Who gets what", "ctr-b", "gain of next unit", "• ctr-c: ", "utility: default", "cores"):
        assert text in result.out


def test_values_of_the_user_decide_the_allocation(folder: Path, call: Callable[..., Any]) -> None:
    cluster_allocation = allocate(call, "--value", "own")
    assert cluster_allocation.valued_by == "own"
    assert cluster_allocation.shares[2].allocation.replicas("worker") == 8
    assert cluster_allocation.value == pytest.approx(8 * 3 + 4 * 2 + 2 * 1)


def test_executor_option_writes_manifests_of_the_platform(folder: Path, call: Callable[..., Any]) -> None:
    result = call("allocate", "cluster.yaml", "jobs.yaml", "--out", "plans", "--executor", "volcano")
    assert result.code == 0
    assert "volcano plans in plans" in result.err
    assert yaml.safe_load(Path("plans/ctr-b.yaml").read_text())["kind"] == "Job"


def test_recommendation_and_plan_files_are_read(
    folder: Path, call: Callable[..., Any], example: Path, store: Path
) -> None:
    text = call("recommend", example, "--store", store, "-o", "json").out
    answer = Recommendation.model_validate_json(text)
    Path("answer.json").write_text(text)
    Path("job.yaml").write_text(example.read_text())
    Path("jobs.yaml").write_text("jobs: [{job: job.yaml, recommendation: answer.json}]")
    cluster_allocation = allocate(call)
    (share,) = cluster_allocation.shares
    assert share.candidates == len(answer.alternatives)
    assert share.plan.expected.lower < share.plan.expected.value
    Path("plan.yaml").write_text(yaml.safe_dump(json.loads(share.plan.model_dump_json())))
    Path("jobs.yaml").write_text("jobs: [{job: job.yaml, recommendation: answer.json, current: plan.yaml}]")
    assert allocate(call).shares[0].decision == "keep"


def test_job_without_trials_is_left_out_and_others_are_allocated(folder: Path, call: Callable[..., Any]) -> None:
    Path("jobs.yaml").write_text("jobs: [{job: a.yaml}, {job: b.yaml, table: b.csv}]")
    cluster_allocation = allocate(call)
    assert [(omission.job, omission.what) for omission in cluster_allocation.left_out] == [("ctr-a", "the job")]
    assert "its speed is unknown" in cluster_allocation.left_out[0].why
    assert [share.decision for share in cluster_allocation.shares] == ["launch"]
    assert "left out: ctr-a" in call("allocate", "cluster.yaml", "jobs.yaml").out


def test_duplicate_and_unusable_jobs_are_left_out_with_reasons(folder: Path, call: Callable[..., Any]) -> None:
    Path("b.csv").write_text(HEADER + "64,4,4Gi,1,2,8Gi,9000,1\n")
    Path("c.csv").write_text(HEADER + "1,4,4Gi,1,2,8Gi,-5,1\n2,4,4Gi,1,2,8Gi,500,1\n")
    jobs = [{"job": f"{name}.yaml", "table": f"{name}.csv"} for name in "aabc"]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))
    omissions = {(omission.job, omission.why.split(":")[0]) for omission in allocate(call).left_out}
    assert omissions == {
        ("ctr-a", "another job has the same name"), ("ctr-b", "none of its 1 candidate can be used"),
        ("ctr-c", "its throughput is 0"),
    }  # fmt: skip


def test_running_job_without_usable_candidates_keeps_its_capacity(folder: Path, call: Callable[..., Any]) -> None:
    candidate = {"allocation": allocation(8), "throughput": 0}
    servers = {"s-0": {"worker": 4}, "s-1": {"worker": 4}, "s-2": {"ps": 1}}
    jobs = [
        {"job": "b.yaml", "table": "b.csv"},
        {"job": "a.yaml", "table": "a.csv"},
        {"job": "a.yaml", "candidates": [candidate], "current": allocation(8), "servers": servers},
    ]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": jobs}))
    cluster_allocation = allocate(call)
    other, running = cluster_allocation.shares
    assert (running.job, running.decision, running.servers) == ("ctr-a", "keep", servers)
    assert "its throughput is 0" in running.why
    assert set(other.servers) <= {"s-2", "s-3"}
    assert [(omission.job, omission.why) for omission in cluster_allocation.left_out if omission.what == "the job"] == [
        ("ctr-a", "another job has the same name")
    ]


def test_empty_cluster_leaves_out_all_jobs(folder: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump({"hosts": [{"kind": "s", "count": 0, "cpu": 1, "memory": "1Gi"}]}))
    cluster_allocation = allocate(call)
    assert cluster_allocation.shares == ()
    assert {omission.job for omission in cluster_allocation.left_out} == {"ctr-a", "ctr-b", "ctr-c"}
    assert "a job can use at most 0" in cluster_allocation.left_out[0].why


def test_time_limit_of_ten_milliseconds_gives_an_answer(folder: Path, call: Callable[..., Any]) -> None:
    assert len(allocate(call, "--time-limit", "0.01").plans) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "best"), "There is no policy 'best'"),
        (("--policy", "aryl", "--value", "own"), "The policy aryl defines its own values"),
        (("--value", "best"), "Unknown values 'best'"),
        (("--executor", "kubeflow"), "--out plans"),
        (("--time-limit", "0"), "time limit above 0"),
    ],
)
def test_invalid_option_is_refused(
    folder: Path, call: Callable[..., Any], options: tuple[str, ...], message: str
) -> None:
    result = call("allocate", "cluster.yaml", "jobs.yaml", *options)
    assert result.code == 1
    assert message in result.err


@pytest.mark.parametrize(
    ("jobs", "message"),
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
def test_invalid_jobs_file_is_refused_without_traceback(
    folder: Path, call: Callable[..., Any], jobs: str, message: str
) -> None:
    Path("jobs.yaml").write_text(jobs)
    result = call("allocate", "cluster.yaml", "jobs.yaml")
    assert result.code == 1
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("current", [None, allocation(8)])
def test_job_without_number_of_samples_is_left_out_or_keeps_running(
    folder: Path, call: Callable[..., Any], current: object
) -> None:
    Path("a.yaml").write_text("name: own\ncommand: {run: python train.py}\n")
    job_a = {"job": "a.yaml", "table": "b.csv"} | ({"current": current} if current else {})
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": [job_a, {"job": "b.yaml", "table": "b.csv"}]}))
    cluster_allocation = allocate(call)
    reasons = (
        [share.why for share in cluster_allocation.shares]
        if current
        else [omission.why for omission in cluster_allocation.left_out]
    )
    assert "how many samples it trains" in reasons[0]
    Path("jobs.yaml").write_text(yaml.safe_dump({"jobs": [job_a | {"samples_left": 1e6}]}))
    (share,) = allocate(call).shares
    assert share.throughput
