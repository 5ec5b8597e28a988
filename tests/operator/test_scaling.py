"""The number of workers of running jobs changes where the platform restarts no other worker for that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import QUEUE_LABEL
from sizewright.executors.kubernetes.live_object import RESIZED
from sizewright.executors.plan_annotations import read_plan
from sizewright.formatting import GIB, MIB
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.job_kinds import job_kinds
from sizewright.operator.metrics import OperatorMetrics
from sizewright.operator.scaling import scalable_job
from sizewright.operator.tuner import OPERATOR_SCALING, TuningSettings
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.resize import Resizing
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.spec import Allocation, Job, Quota, Rails
from sizewright.spec.rails import RoleRails
from tests.helpers.stand_in import StandIn
from tests.helpers.suspended_jobs import JOB_FILE, suspended
from tests.operator.test_controller import Clock, events, now, put, sized_answer
from tests.operator.test_manifests import allowed, calls, objects
from tests.operator.test_tuner import Pods, told, turns

LIMITS = {"minReplicas": 1, "maxReplicas": 8}
"""Workers of an elastic PyTorchJob, its Master among them."""
LONG = 200  # turns: half an hour
ANNOTATIONS = {labels.RECREATE: "yes", labels.SCALE: "yes"}
KUEUE_ELASTIC = "kueue.x-k8s.io/elastic-job"


def scaler(job: Job, scaling: Scaling) -> AutoScaler:
    """Return a scaler that has measured 1,000 samples/s of each worker, as the pods report."""
    fixed = {
        "job_hash": job.hash,
        "worker_cpu": 3.0,
        "ps": 0,
        "batch_size": job.training.batch_size,
        "duration_s": 60.0,
    }
    fixed |= {"worker_memory_bytes": GIB, "worker_cpu_used": 2.9, "host": "h1", "limited_by": "cgroup"}
    trials = [Trial(**fixed, workers=count, throughput=1000.0 * count, series=f"s{count}") for count in (1, 2, 4, 8)]
    return AutoScaler(job, trials, scaling=scaling)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> OperatorMetrics:
    return OperatorMetrics(clock)


@pytest.fixture
def operator(api: KubeApi, clock: Clock, metrics: OperatorMetrics) -> Callable[..., Operator]:
    def make(**settings: Any) -> Operator:
        tuning = TuningSettings(every_s=10.0, scaling=OPERATOR_SCALING)
        how = OperatorSettings(**{"tuning": tuning, "recreates": True, **settings})
        times = {"clock": clock, "now": clock.time_of_day, "sleep": clock.sleep}
        return Operator(api, sized_answer, list, how, metrics, scaler=scaler, **times)  # type: ignore[arg-type]

    return make


@pytest.fixture(autouse=True)
def pods(server: StandIn, clock: Clock) -> Pods:
    return Pods(server, clock)


def start(server: StandIn, running: Operator, executor: str = "job") -> None:
    """Let the operator start a job with four workers; its annotation allows scaling."""
    described = {**JOB_FILE, "training": {"samples": 10**9}}
    document = suspended(executor, **{labels.JOB: yaml.safe_dump(described), **ANNOTATIONS})
    if executor == "pytorchjob":
        document["spec"]["elasticPolicy"] = dict(LIMITS)
        for spec in document["spec"]["pytorchReplicaSpecs"].values():  # as users write it
            spec["template"]["spec"]["containers"][0]["env"] = [{"name": "SIZEWRIGHT_PROGRESS", "value": "stdout"}]
    put(server, executor, document)
    running.turn()
    assert workers(server) == 4


def workers(server: StandIn) -> int:
    return len([name for name in server.pods if "worker" in name or "master" in name or "node" in name])


@pytest.mark.parametrize(("executor", "first_step", "at_last"), [("job", 12, 16), ("pytorchjob", 8, 8)])
def test_elastic_job_gets_more_workers_without_a_restart(
    executor: str,
    first_step: int,
    at_last: int,
    server: StandIn,
    operator: Callable[..., Operator],
    clock: Clock,
    metrics: OperatorMetrics,
) -> None:
    running = operator()
    start(server, running, executor)
    uid, first = now(server, executor)["metadata"]["uid"], {each["metadata"]["uid"] for each in server.pods.values()}
    turns(running, clock, 50)
    assert workers(server) == first_step, "at most eight more at a time"
    assert first <= {each["metadata"]["uid"] for each in server.pods.values()}, "no worker was replaced"
    assert now(server, executor)["metadata"]["uid"] == uid
    (message,) = told(server, "Scaled")
    assert message.startswith(f"Scaled to {first_step} workers.")
    values = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    assert values["sizewright_operator_scalings_total"] == 1
    turns(running, clock, LONG)
    assert workers(server) == at_last, "the bounds, or the limits of the elastic policy"


def test_guardrails_hold(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator(rails=Rails(worker=RoleRails(replicas=(1, 6))))
    start(server, running)
    turns(running, clock, LONG)
    assert workers(server) == 6


def test_dry_run_tells_once_and_changes_nothing(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    start(server, operator())
    turns(operator(dry_run=True), clock, LONG)
    assert workers(server) == 4
    (message,) = told(server, "WouldScale")
    assert message.startswith("Nothing is changed. Scaled to 12 workers.")


def test_job_without_the_annotation_keeps_its_workers(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    running = operator()
    start(server, running)
    del now(server, "job")["metadata"]["annotations"][labels.SCALE]
    turns(running, clock, LONG)
    assert workers(server) == 4
    assert {reason for reason, _ in events(server)} == {"Sized"}


def test_kind_that_would_restart_is_told_once(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator()
    start(server, running, "jobset")
    turns(running, clock, LONG)
    assert workers(server) == 4
    (message,) = told(server, "CannotScale")
    assert message.startswith("The number of workers of a JobSet cannot change while it runs.")


def test_server_that_refuses_is_told_and_tried_again(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    running = operator()
    start(server, running)
    server.fail("PATCH", "/jobs/ctr", 403, message="jobs is forbidden")
    turns(running, clock, 50)
    (message,) = told(server, "CannotScale")
    assert "forbidden" in message
    turns(running, clock, LONG)
    assert workers(server) > 4


def test_permissions_are_enough(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator()
    start(server, running)
    server.asked.clear()
    turns(running, clock, 50)
    assert told(server, "Scaled")
    assert calls(server) <= allowed(objects(scales=True))


class TestScalableJob:
    @pytest.fixture
    def document(self) -> dict[str, Any]:
        return suspended("job")

    def narrowed(self, api: KubeApi, document: dict[str, Any], rails: Rails = Rails()) -> Job:  # noqa: B008
        (kind,) = [kind for kind in job_kinds(api) if kind.executor.name == "job"]
        described = {**JOB_FILE, "bounds": {"worker": {"replicas": [1, 16]}}}
        current = Allocation.of(4, 0, 3.0, 1.0, 512, 2**31)
        return scalable_job(Job.model_validate(described), kind.executor, document, current, rails)

    def test_sizes_stay_as_they_are(self, api: KubeApi, document: dict[str, Any]) -> None:
        job = self.narrowed(api, document)
        assert job.bounds.worker.replicas == (1, 16)
        assert job.bounds.worker.cpu == (3.0, 3.0)
        assert job.bounds.worker.memory_bytes == (2**31, 2**31)
        assert job.training.batch_size == 512

    def test_kueue_has_to_allow_it(self, api: KubeApi, document: dict[str, Any]) -> None:
        document["metadata"]["labels"][QUEUE_LABEL] = "ours"
        with pytest.raises(InputError, match="Kueue would stop"):
            self.narrowed(api, document)
        document["metadata"]["annotations"][KUEUE_ELASTIC] = "true"
        assert self.narrowed(api, document)

    def test_resized_pods_have_no_equals(self, api: KubeApi, document: dict[str, Any]) -> None:
        document["metadata"]["annotations"][RESIZED] = "{}"
        with pytest.raises(InputError, match="earlier size"):
            self.narrowed(api, document)

    def test_work_items_fix_the_number(self, api: KubeApi, document: dict[str, Any]) -> None:
        document["spec"]["completions"] = 7
        with pytest.raises(InputError, match="cannot change"):
            self.narrowed(api, document)

    def test_bounds_that_nothing_satisfies_are_refused(self, api: KubeApi) -> None:
        (kind,) = [kind for kind in job_kinds(api) if kind.executor.name == "pytorchjob"]
        elastic = suspended("pytorchjob")
        job, current = Job.model_validate(JOB_FILE), Allocation.of(4, 0, 3.0, 1.0, 512)
        elastic["spec"]["elasticPolicy"] = {"minReplicas": 20, "maxReplicas": 30}
        with pytest.raises(InputError, match="Write bounds that overlap"):
            scalable_job(job, kind.executor, elastic, current, Rails())
        elastic["spec"]["elasticPolicy"]["metrics"] = [{"type": "Resource"}]
        with pytest.raises(InputError, match="HorizontalPodAutoscaler"):
            scalable_job(job, kind.executor, elastic, current, Rails())
        del elastic["spec"]["elasticPolicy"]["minReplicas"]
        with pytest.raises(InputError, match="minReplicas and maxReplicas"):
            scalable_job(job, kind.executor, elastic, current, Rails())

    def test_pytorchjobs_are_not_scaled_in_a_queue(self, api: KubeApi) -> None:
        (kind,) = [kind for kind in job_kinds(api) if kind.executor.name == "pytorchjob"]
        elastic = suspended("pytorchjob", labels={QUEUE_LABEL: "ours"}, **{KUEUE_ELASTIC: "true"})
        elastic["spec"]["elasticPolicy"] = dict(LIMITS)
        with pytest.raises(InputError, match="Kueue would stop this PyTorchJob"):
            scalable_job(
                Job.model_validate(JOB_FILE), kind.executor, elastic, Allocation.of(4, 0, 3.0, 1.0, 512), Rails()
            )

    @pytest.mark.parametrize("quota", [None, 20.0, 12.0])
    def test_guardrails_narrow_the_numbers(self, api: KubeApi, document: dict[str, Any], quota: float | None) -> None:
        rails = Rails(quota=Quota(cpu=quota), worker=RoleRails(step=2))
        assert self.narrowed(api, document, rails).bounds.worker.replicas == (1, 16 if quota is None else quota // 3)

    def test_paused_guardrails_are_told(self, api: KubeApi, document: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="pause all plans"):
            self.narrowed(api, document, Rails(paused=True))


def test_a_step_of_the_guardrails_bounds_each_change(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    running = operator(rails=Rails(worker=RoleRails(step=2)))
    start(server, running)
    turns(running, clock, 50)
    assert workers(server) == 6
    assert not told(server, "CannotScale")


def test_pods_that_do_not_start_are_given_up(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator()
    start(server, running)
    first = set(server.pods)
    for _ in range(LONG):
        turns(running, clock, 1)
        for name in server.pods.keys() - first:
            server.pods[name]["status"]["phase"] = "Pending"
    assert len(told(server, "WorkersMissing")) >= 1
    assert "4 of 12 workers run." in told(server, "WorkersMissing")
    assert any(
        message.startswith("Scaled to 4 workers. The others did not start") for message in told(server, "Scaled")
    )
    tries = len([message for message in told(server, "Scaled") if message.startswith("Scaled to 12")])
    assert tries <= 3, "ten minutes apart"


def test_description_and_its_bounds_stay_in_the_object(
    server: StandIn, operator: Callable[..., Operator], clock: Clock, pods: Pods
) -> None:
    running = operator()
    start(server, running)
    turns(running, clock, 50)
    document = now(server, "job")
    assert read_plan(document).job.bounds == Job.model_validate(JOB_FILE).bounds
    annotations = document["metadata"]["annotations"]
    assert annotations[labels.TARGET].startswith("12 workers")
    assert labels.INTERVAL not in annotations, "that of four workers is not one of twelve"
    assert annotations[labels.SCALINGS] == "1"
    other = operator(tuning=TuningSettings(every_s=10.0, resizing=Resizing(), scaling=OPERATOR_SCALING))
    pods.growth_bytes = 5 * MIB
    turns(other, clock, 40)
    assert told(server, "Resized"), "another operator enlarges its memory"


def test_memory_is_enlarged_soon_after_a_scale(
    server: StandIn, operator: Callable[..., Operator], clock: Clock, pods: Pods
) -> None:
    running = operator(tuning=TuningSettings(every_s=10.0, resizing=Resizing(), scaling=OPERATOR_SCALING))
    start(server, running)
    turns(running, clock, 15)
    assert told(server, "Scaled")
    pods.growth_bytes = 2 * MIB
    turns(running, clock, 25)
    assert told(server, "Resized"), "the cool-down is that of scaling"


def test_cool_down_outlasts_the_operator(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator()
    start(server, running)
    turns(running, clock, 50)
    (first,) = told(server, "Scaled")
    turns(operator(), clock, 20)
    assert told(server, "Scaled") == [first]


def test_change_between_two_reads_is_not_undone(
    server: StandIn, operator: Callable[..., Operator], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = operator()
    start(server, running)
    merge = server.merge

    def merge_after_another(kind: str, namespace: str, name: str, body: dict[str, Any], *rest: Any) -> Any:
        if "parallelism" in body.get("spec", {}):
            document = now(server, "job")
            document["metadata"]["resourceVersion"] = str(int(document["metadata"]["resourceVersion"]) + 1)
            document["spec"]["suspend"] = True
        return merge(kind, namespace, name, body, *rest)

    monkeypatch.setattr(server, "merge", merge_after_another)
    turns(running, clock, 50)
    assert now(server, "job")["spec"]["suspend"] is True
    assert now(server, "job")["spec"]["parallelism"] == 4
    assert not told(server, "Scaled")


def test_job_of_the_same_name_is_left_alone(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator()
    start(server, running)
    turns(running, clock, 50)
    listed = running._api.list  # type: ignore[attr-defined]
    old = [dict(each) for each in listed("batch/v1", "Job", "", labels.SIZE)]
    del server.objects["BatchJob", "default", "ctr"]
    put(server, "job", suspended("job"))
    now(server, "job")["metadata"]["labels"] = {}
    now(server, "job")["spec"] |= {"suspend": False, "parallelism": 4, "completions": 4}
    running._api.list = lambda *a, **k: old if a[1] == "Job" else []  # type: ignore[attr-defined]
    turns(running, clock, LONG)
    assert now(server, "job")["spec"]["parallelism"] == 4


def test_annotation_counts_at_each_look(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    running = operator(tuning=TuningSettings(every_s=10.0, resizing=Resizing(), scaling=OPERATOR_SCALING))
    start(server, running)
    turns(running, clock, 3)
    now(server, "job")["metadata"]["annotations"][labels.SCALE] = "no"
    turns(running, clock, LONG)
    assert workers(server) == 4


@pytest.mark.parametrize(("name", "value"), [(labels.SCALE, "Yes"), (labels.RESIZE, "No")])
def test_annotation_that_means_nothing_is_told_once(
    name: str, value: str, server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    running = operator(tuning=TuningSettings(every_s=10.0, resizing=Resizing(), scaling=OPERATOR_SCALING))
    start(server, running)
    now(server, "job")["metadata"]["annotations"][name] = value
    turns(running, clock, 50)
    assert told(server, "AnnotationIgnored") == [f"Its annotation {name} is '{value}'. Write yes or no."]


def test_operator_learns_how_long_new_workers_take(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    running = operator()
    start(server, running)
    turns(running, clock, 90)
    first, second = told(server, "Scaled")
    assert "including 90.0 s for the change" in first, "the prior of pods"
    assert "including 90.0 s for the change" not in second
    assert re.search(r"including [\d.]+ s for the change", second)


def test_container_that_repeats_the_number_is_told_once(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    running = operator()
    start(server, running)
    container = now(server, "job")["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "SIZEWRIGHT_WORKERS", "value": "4"}]
    turns(operator(dry_run=True), clock, 60)
    turns(running, clock, LONG)
    assert workers(server) == 4
    assert not told(server, "WouldScale"), "a dry run promises nothing else"
    dry, real = told(server, "CannotScale")
    assert dry == real
    assert "repeats the number of workers" in real


def test_scaling_that_fails_does_not_keep_memory_from_growing(
    server: StandIn, operator: Callable[..., Operator], clock: Clock, pods: Pods
) -> None:
    running = operator(tuning=TuningSettings(every_s=10.0, resizing=Resizing(), scaling=OPERATOR_SCALING))
    start(server, running, "jobset")
    pods.growth_bytes = 5 * MIB
    turns(running, clock, 40)
    assert told(server, "Resized")
    assert len(told(server, "CannotScale")) <= 2


def test_cluster_that_writes_other_numbers_is_told_once(
    server: StandIn, operator: Callable[..., Operator], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = operator()
    start(server, running)
    merge = server.merge

    def rewritten(kind: str, namespace: str, name: str, body: dict[str, Any], *rest: Any) -> Any:
        spec = body.get("spec", {})
        spec |= dict.fromkeys(spec.keys() & {"parallelism", "completions"}, 4)
        return merge(kind, namespace, name, body, *rest)

    monkeypatch.setattr(server, "merge", rewritten)
    turns(running, clock, LONG)
    assert len(told(server, "SizesRewritten")) == 1
    assert not told(server, "Scaled")
