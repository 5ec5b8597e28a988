"""A cluster in processes: jobs with real commands are measured by trial jobs, sized, started and resized."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sizewright as sw
from sizewright.datasets.trials.trial import Trial
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.trainjob import TrainJobExecutor
from sizewright.formatting import MIB
from sizewright.operator import labels
from sizewright.operator.batch_job import BatchJobs
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.trial_jobs import TrialSettings
from sizewright.operator.tuner import TuningSettings
from sizewright.profiler.measure.measure import Timing
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.resize import Resizing
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Handle, Job, Recommendation
from tests.helpers.growing_job import as_it_is, growing_job, put_suspended
from tests.helpers.process_node import ProcessNode, process_node
from tests.helpers.stand_in import StandIn

pytestmark = pytest.mark.long
ELASTIC = """
import time
from sizewright import log_samples
while True:
    log_samples(1000)
    time.sleep(0.1)
"""
EXAMPLE = Path(__file__).parents[2] / "examples/own_code/torch_ddp.py"


@pytest.fixture
def node(server: StandIn) -> Iterator[ProcessNode]:
    with process_node(server) as node:
        yield node


def take_turns(operator: Operator, until: Any, patience_s: float) -> None:
    """Let the operator take a turn each second until something holds."""
    deadline_s = time.monotonic() + patience_s
    while not until():
        assert time.monotonic() < deadline_s, "it takes too long"
        operator.turn()
        assert not operator.errors
        time.sleep(1.0)


def told(server: StandIn, name: str, reason: str) -> list[str]:
    events = [each for (kind, _, _), each in server.objects.items() if kind == "Event"]
    return [each["message"] for each in events if (each["involvedObject"]["name"], each["reason"]) == (name, reason)]


def test_job_is_tried_sized_and_trains(server: StandIn, api: KubeApi, node: ProcessNode, tmp_path: Path) -> None:
    described = {
        "name": "torch-ddp",
        "command": {
            "run": f"python {EXAMPLE} --batch-size {{batch_size}} --samples {{samples}}",
            "rendezvous": "torchrun",
        },
        "training": {"batch_size": 512, "samples": 50_000_000, "sync": "sync"},
        "bounds": {"worker": {"replicas": [1, 2], "cpu": [0.4, 0.8], "memory": ["1Gi", "2Gi"]}},
    }
    job, store = Job.model_validate(described), str(tmp_path / "trials.db")
    written = launch_plan(job, Allocation.of(1, 0, 0.4, 1.0, 512, 1024 * MIB))
    document = dict(TrainJobExecutor().document(written))
    put_suspended(server, "TrainJob", document, described, **{labels.TRIALS: "yes", labels.RECREATE: "yes"})

    def answer(job: Job) -> Recommendation:
        with sw.open_store(store, create=True):
            return sw.recommend(job, store=store)

    def record(trial: Any) -> None:
        with sw.open_store(store, create=True) as opened:
            opened.add(trial)

    settings = OperatorSettings(
        policy="trials",
        recreates=True,
        trials=TrialSettings(count=4, cores=1.6, timing=Timing(min_s=5.0, max_s=10.0, target_se=0.05)),
    )
    operator = Operator(api, answer, settings=settings, record=record)
    take_turns(operator, lambda: not server.objects["TrainJob", "default", "torch-ddp"]["spec"].get("suspend"), 900)
    trials = [trial for trial in sw.open_store(store).trials() if trial.usable]
    assert len(trials) >= 3, "of four, where other work may spoil one"
    assert len({(trial.workers, trial.worker_cpu) for trial in trials}) == len(trials)
    for trial in trials:
        assert trial.worker_cpu is not None
        assert trial.worker_cpu_used is not None
        assert 0.05 < trial.worker_cpu_used < 1.2 * trial.worker_cpu
    job_object = server.objects["TrainJob", "default", "torch-ddp"]
    assert job_object["metadata"]["annotations"][labels.OUTCOME] == "sized"
    executor, handle = TrainJobExecutor(api=api), Handle(executor="trainjob", id="default/torch-ddp", job="torch-ddp")
    (worker,) = executor.sizes_of(job_object)["worker"]
    take_turns(operator, lambda: executor.observe(handle).samples_trained > 0, 300)
    assert len(executor.observe(handle).of("worker")) == worker.replicas


def test_growing_memory_is_resized_without_a_restart(server: StandIn, api: KubeApi, node: ProcessNode) -> None:
    for name, more in (("tuned", {}), ("untuned", {labels.RESIZE: "no"})):
        put_suspended(server, "BatchJob", *growing_job(name), **more)
    tuning = TuningSettings(every_s=2.0, resizing=Resizing(watch_s=600.0))
    operator = Operator(api, as_it_is, settings=OperatorSettings(tuning=tuning, jobs_per_s=100.0))
    operator.turn()
    uids = {name: pod["metadata"]["uid"] for name, pod in server.pods.items()}

    def phases() -> dict[str, str]:
        return {name.partition("-")[0]: pod["status"]["phase"] for name, pod in server.pods.items()}

    take_turns(operator, lambda: "Running" not in phases().values(), 400)
    assert phases() == {"tuned": "Succeeded", "untuned": "Failed"}
    assert {name: pod["metadata"]["uid"] for name, pod in server.pods.items()} == uids, "no pod was replaced"
    (state,) = [
        pod["status"]["containerStatuses"][0]["state"] for name, pod in server.pods.items() if "untuned" in name
    ]
    assert state["terminated"]["reason"] == "OOMKilled", "the limit breaks a job that is not tuned"
    assert "grows by" in told(server, "tuned", "Resized")[0]


def test_elastic_job_is_scaled_while_it_trains(server: StandIn, api: KubeApi, node: ProcessNode) -> None:
    document, described = growing_job("elastic", ELASTIC)
    described["bounds"]["worker"]["replicas"], described["training"]["samples"] = [1, 3], 10**9
    document["spec"] |= {"completions": 1, "completionMode": "Indexed"}
    put_suspended(server, "BatchJob", document, described, **{labels.SCALE: "yes"})
    scaling = Scaling(warm_up_s=5.0, cooldown_s=10.0)

    def scaler(job: Job, scaling: Scaling) -> AutoScaler:
        fixed = {"worker_cpu": 0.5, "ps": 0, "batch_size": 1000, "duration_s": 60.0, "worker_memory_bytes": 50 * MIB}
        trials = [Trial(workers=count, throughput=9000.0 * count, series=f"{count}", **fixed) for count in (1, 2, 3)]
        return AutoScaler(job, trials, scaling=scaling)

    settings = OperatorSettings(tuning=TuningSettings(every_s=2.0, scaling=scaling), jobs_per_s=100.0)
    operator = Operator(api, as_it_is, settings=settings, scaler=scaler)
    operator.turn()
    (uid,) = {pod["metadata"]["uid"] for pod in server.pods.values()}
    take_turns(operator, lambda: len(server.pods) == 3, 200)
    assert uid in {pod["metadata"]["uid"] for pod in server.pods.values()}, "the first worker trains on"
    assert "Scaled to 3 workers." in told(server, "elastic", "Scaled")[0]
    executor, handle = BatchJobs(api=api), Handle(executor="job", id="default/elastic", job="elastic")

    def all_train() -> bool:
        replicas = executor.observe(handle).of("worker")
        return len(replicas) == 3 and all(each.steps > 10 for each in replicas)

    take_turns(operator, all_train, 100)
