from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.errors import JobError
from sizewright.formatting import GIB
from sizewright.spec import (
    Allocation,
    Alternative,
    Change,
    Checkpoint,
    Cluster,
    Estimate,
    Evidence,
    Failure,
    Gpu,
    Group,
    Job,
    Metrics,
    Outcome,
    Plan,
    Prediction,
    Quota,
    Recommendation,
    Remedy,
    ReplicaMetrics,
)

TARGET = Allocation.of(3, 2, 0.5, 1.0, 256, GIB, 2 * GIB)
ESTIMATE = Estimate(value=2.0, lower=1.0, upper=3.0)
ANSWER = Recommendation(
    status="ok",
    job="ctr",
    target=TARGET,
    lower=TARGET,
    upper=TARGET,
    uncapped=TARGET,
    predicted=Prediction(
        throughput=ESTIMATE,
        completion_time_s=ESTIMATE,
        cost=ESTIMATE,
        worker_memory_bytes=1,
        ps_memory_bytes=2,
        worker_utilization=0.5,
        ps_utilization=0.25,
    ),
    alternatives=(Alternative(allocation=TARGET, throughput=ESTIMATE, completion_time_s=1.0, cost=2.0, chosen=True),),
    evidence=Evidence(trials=9, model="dlrover", limited_by=("cgroup",), host=("here",)),
    reasons=("It is best.",),
)


def test_recommendation_has_the_published_keys() -> None:
    document = json.loads(ANSWER.to_json())
    contract = {
        "schema", "status", "job", "target", "lower", "upper", "uncapped", "predicted", "alternatives", "evidence",
        "reasons",
    }  # fmt: skip
    assert contract <= document.keys()
    assert (document["schema"], document["status"], document["job"]) == ("sizewright/recommendation/v1", "ok", "ctr")
    for name in ("target", "lower", "upper", "uncapped"):
        assert document[name] == {
            "worker": [{"replicas": 3, "cpu": 0.5, "memory_bytes": GIB, "gpu": None}],
            "ps": [{"replicas": 2, "cpu": 1.0, "memory_bytes": 2 * GIB, "gpu": None}],
            "batch_size": 256,
        }
    for name in ("throughput", "completion_time_s", "cost"):
        assert document["predicted"][name] == {"value": 2.0, "lower": 1.0, "upper": 3.0}
    assert document["predicted"]["worker_memory_bytes"] == 1
    assert document["predicted"]["ps_memory_bytes"] == 2
    assert {"trials", "stage", "model", "limited_by", "host", "extrapolated"} <= document["evidence"].keys()
    assert document["evidence"]["stage"] == "pre_submission"
    assert document["evidence"]["extrapolated"] is False
    assert document["alternatives"][0].keys() >= {"allocation", "throughput", "completion_time_s", "cost"}


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER,
        Recommendation(
            status="infeasible", job="x", evidence=Evidence(trials=0), remedies=(Remedy(number=1, text="Do."),)
        ),
    ],
)
def test_a_recommendation_comes_back_equal(answer: Recommendation) -> None:
    assert Recommendation.model_validate_json(answer.to_json()) == answer


GROUPS = st.builds(
    Group,
    replicas=st.integers(0, 9),
    cpu=st.floats(0.01, 1e3),
    memory_bytes=st.integers(0, 2**50),
    gpu=st.none() | st.builds(Gpu, kind=st.sampled_from(["a100", "gpu"]), count=st.integers(1, 8)),
)
ALLOCATIONS = st.builds(
    Allocation,
    worker=st.lists(GROUPS, min_size=1, max_size=2).map(tuple),
    ps=st.lists(GROUPS, max_size=2).map(tuple),
    chief=st.lists(GROUPS, max_size=1).map(tuple),
    evaluator=st.lists(GROUPS, max_size=1).map(tuple),
    batch_size=st.integers(1, 10**6),
)


@given(ALLOCATIONS)
def test_any_allocation_comes_back_equal_and_adds_up(allocation: Allocation) -> None:
    document = json.loads(allocation.model_dump_json())
    assert Allocation.model_validate(document) == allocation
    assert ("chief" in document) == bool(allocation.chief)
    groups = list(allocation.groups)
    assert allocation.cores() == pytest.approx(sum(g.replicas * g.cpu for _, g in groups))
    assert allocation.memory_bytes() == sum(g.replicas * g.memory_bytes for _, g in groups)
    assert allocation.gpus() == sum(g.replicas * g.gpu.count for _, g in groups if g.gpu)
    for role in ("worker", "ps", "chief", "evaluator"):
        assert len(list(allocation.each(role))) == allocation.replicas(role)
        assert allocation.cores(role) == pytest.approx(sum(r.cpu for r in allocation.each(role)))


def test_allocation_is_described_in_words() -> None:
    assert TARGET.describe() == "3 workers × 0.5 cores and 1.0 GiB, 2 PS × 1 core and 2.0 GiB, batch 256"


@given(ALLOCATIONS, st.sampled_from(["launch", "adjust", "keep"]))
def test_any_plan_comes_back_equal_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, allocation: Allocation, kind: str
) -> None:
    plan = Plan(id="a-1", kind=kind, job=Job(), target=allocation, current=allocation, reason="r")  # type: ignore[arg-type]
    path = tmp_path_factory.getbasetemp() / "plan.json"
    path.write_text(plan.model_dump_json(), encoding="utf-8")
    assert json.loads(path.read_text())["schema"] == "sizewright/plan/v1"
    assert Plan.load(path) == plan


def test_plan_file_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("kind: launch\nscheme: 1\n")
    with pytest.raises(JobError, match=r"unknown key 'scheme' \(did you mean 'schema'\?\)"):
        Plan.load(path)


def test_cluster_limits_are_the_smaller_of_hosts_and_quota(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("hosts:\n- {kind: big, count: 2, cpu: 16, memory: 64Gi}\n- {kind: wide, cpu: 32, memory: 32Gi}\n")
    cluster = Cluster.load(path)
    assert (cluster.cpu_limit, cluster.memory_limit_bytes) == (64, 160 * GIB)
    assert cluster.largest_memory_bytes == 64 * GIB
    tight = cluster.model_copy(update={"quota": Quota(cpu=8, memory=4 * GIB)})
    assert (tight.cpu_limit, tight.memory_limit_bytes) == (8, 4 * GIB)
    loose = cluster.model_copy(update={"quota": Quota(cpu=800, memory=4000 * GIB)})
    assert (loose.cpu_limit, loose.memory_limit_bytes) == (64, 160 * GIB)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts: []", "'hosts'"),
        ("name: x", "'hosts' is missing"),
        ("hosts: [{kind: a, cpu: 4, memory: 8Gi, cores: 2}]", "unknown key 'hosts[0].cores'"),
        ("hosts: [{kind: a, cpu: 4, memroy: 8Gi}]", "did you mean 'memory'?"),
        ("hosts: [{kind: a, cpu: .inf, memory: 8Gi}]", "inf is not a number of cores"),
        ("hosts: [{kind: a, cpu: 4, memory: .nan}]", "nan is not an amount of memory"),
        ("hosts: [{kind: a, cpu: 4, memory: 8Gi, price_hour: -1}]", "'hosts[0].price_hour' must be at least 0, got -1"),
        (
            "hosts: [{kind: a, cpu: 4, memory: 8Gi, spot_price_hour: -1}]",
            "'hosts[0].spot_price_hour' must be at",
        ),
        ("hosts: [{kind: a, cpu: 4, memory: 8Gi, interruptions_hour: -2}]", "'hosts[0].interruptions_hour' must be at"),
        ("hosts: [{kind: a, cpu: 4, memory: 8Gi, gpu_memory: 40Gi}]", "these hosts have no gpu"),
        ("hosts: [{kind: a, cpu: 4, memory: 0}]", "'hosts[0].memory'"),
        ("hosts: [{kind: a, cpu: 4, memory: 1Gi, network_gbps: .inf}]", "finite"),
        ("hosts: [{kind: a, cpu: 4, memory: 1Gi, count: -1}]", "'hosts[0].count'"),
        ("hosts: [{kind: a, cpu: 4, memory: 1Gi}]\nquota: {cpu: -1}", "'quota.cpu'"),
    ],
)
def test_invalid_cluster_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(JobError) as caught:
        Cluster.load(path)
    assert message in caught.value.message
    assert "\n" not in str(caught.value)


def test_metrics_are_selected_by_role() -> None:
    replicas = [
        ReplicaMetrics(role=role, index=i, at_s=0, cpu_s=0, throttled_s=0, memory_peak_bytes=0)  # type: ignore[arg-type]
        for i, role in enumerate(("ps", "worker", "ps"))
    ]
    assert [r.index for r in Metrics(replicas=tuple(replicas)).of("ps")] == [0, 2]


def test_network_bytes_are_the_sum_of_both_directions_and_not_stored() -> None:
    about = {"role": "ps", "index": 4, "at_s": 0, "cpu_s": 0, "throttled_s": 0, "memory_peak_bytes": 0}
    replica = ReplicaMetrics.model_validate(about | {"bytes_sent": 3, "bytes_received": 40})
    assert (replica.network_bytes, replica.name) == (43, "ps-4")
    assert "network_bytes" not in replica.model_dump()
    assert ReplicaMetrics.model_validate(replica.model_dump()) == replica


def test_plans_and_outcomes_convert_to_frames() -> None:
    target, current = Allocation.of(2, 1, 0.5, 0.25, 512, 1 << 30), Allocation.of(1, 1, 0.5, 0.25, 512)
    plan = Plan(id="p-1", kind="adjust", job=Job(name="ctr"), target=target, current=current, reason="faster")
    frame = plan.to_frame()
    assert frame.of.tolist() == ["target", "current"]
    assert frame.workers.tolist() == [2, 1]
    failure, change = Failure(at_s=9.0, replica="ps-1", cause="oom"), Change(at_s=3.0, kind="scale", seconds=1.0)
    outcome = Outcome(status="finished", failures=(failure,), changes=(change,))
    assert outcome.to_frame().what.tolist() == ["change", "failure"]
    assert list(Outcome(status="finished").to_frame().columns) == ["what", "at_s"]


def test_gpus_are_described_by_their_kind() -> None:
    assert [Gpu(count=1).describe(), Gpu(count=2).describe(), Gpu(kind="a100", count=2).describe()] == [
        "1 GPU", "2 GPUs", "2 a100"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("0s", "must be above 0"),
        ("{pause: 5s}", "'training.checkpoint.every' is missing"),
        ("{every: 60s, pause: 1m}", "pause (60 s) must be shorter than every (60 s)"),
        ("{every: 60s, restart: -1}", "'training.checkpoint.restart' must be at least 0"),
    ],
)
def test_checkpoints_that_make_no_sense_are_refused(tmp_path: Path, checkpoint: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"training: {{checkpoint: {checkpoint}}}\n")
    with pytest.raises(JobError, match=re.escape(message)):
        Job.load(path)


def test_checkpoint_is_an_interval_or_has_a_pause_and_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("training: {checkpoint: 30m}\n")
    short = Job.load(path).training.checkpoint
    assert short == Checkpoint(every=1800)
    assert short.time_factor == 1
    assert Checkpoint(every="10m", pause="1m").time_factor == pytest.approx(10 / 9)
    assert Job.load(path).hash == Job().hash, "trials do not depend on it"
    assert Job.model_validate_json(Job.load(path).model_dump_json()) == Job.load(path)
