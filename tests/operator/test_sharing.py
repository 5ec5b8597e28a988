"""The jobs of the operator share the capacity of one cluster: they wait for it, follow their shares, and give back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import QUEUE_LABEL
from sizewright.formatting import GIB
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.sharing import Sharing
from sizewright.operator.tuner import OPERATOR_SCALING, TuningSettings
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.spec import Allocation, Cluster, Gpu, Group, HostKind, Job, Recommendation
from sizewright.spec.recommendation import Alternative, Estimate, Evidence, Prediction
from tests.helpers.stand_in import StandIn
from tests.helpers.suspended_jobs import JOB_FILE, suspended
from tests.operator.test_controller import Clock, events, is_suspended, no_answer, now, put
from tests.operator.test_manifests import allowed, calls, objects
from tests.operator.test_tuner import Pods, told, turns

CORES = 3.0
"""Of each worker."""


def at(workers: int, batch_size: int) -> Allocation:
    return Allocation(worker=(Group(replicas=workers, cpu=CORES, memory_bytes=2 * GIB),), batch_size=batch_size)


def rate(workers: int) -> float:
    return float(1000.0 * workers**0.5)


def scaler(job: Job, scaling: Scaling) -> AutoScaler:
    """Return a scaler that has measured these rates."""
    rng = np.random.default_rng(0)
    fixed: dict[str, Any] = {"worker_cpu": CORES, "ps": 0, "batch_size": job.training.batch_size, "job_hash": job.hash}
    trials = [
        Trial(workers=n, throughput=rate(n) * float(np.exp(0.01 * rng.standard_normal())), **fixed)
        for n in (1, 2, 4, 6, 8)
    ]
    return AutoScaler(job, trials, scaling=scaling)


def answer(job: Job) -> Recommendation:
    """Return four workers, with one to eight as the alternatives."""
    rows = [
        Alternative(
            allocation=at(n, job.training.batch_size),
            throughput=Estimate(value=rate(n), lower=0.9 * rate(n), upper=1.1 * rate(n)),
        )
        for n in (1, 2, 4, 8)
    ]
    return Recommendation(
        status="ok",
        job=job.name,
        target=rows[2].allocation,
        predicted=Prediction(throughput=rows[2].throughput),
        alternatives=tuple(rows),
        evidence=Evidence(trials=3, model="default"),
        reasons=("The cheapest.",),
    )


def cluster(workers: int) -> Cluster:
    """Return a cluster with the cores of some workers."""
    return Cluster(hosts=(HostKind(kind="host", cpu=CORES * workers, memory_bytes=1024 * GIB),))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def pods(server: StandIn, clock: Clock) -> Pods:
    return Pods(server, clock)


@pytest.fixture
def operator(api: KubeApi, clock: Clock) -> Callable[..., Operator]:
    def make(workers: int, answer: Callable[[Job], Recommendation] = answer, **settings: Any) -> Operator:
        tuning = TuningSettings(every_s=10.0, scaling=OPERATOR_SCALING)
        how = OperatorSettings(**{"tuning": tuning, "shared": cluster(workers), "jobs_per_s": 100.0, **settings})
        times = {"clock": clock, "now": clock.time_of_day, "sleep": clock.sleep}
        return Operator(api, answer, list, how, scaler=scaler, **times)  # type: ignore[arg-type]

    return make


def submit(server: StandIn, *names: str, label: str = "start", **annotations: str) -> None:
    for name in names:
        described = yaml.safe_dump({**JOB_FILE, "name": name, "training": {"samples": 10**9}})
        put(server, "job", suspended("job", name, {labels.SIZE: label}, **{labels.JOB: described, **annotations}))


def running(server: StandIn) -> dict[str, int]:
    """Return the number of workers of each job that is not suspended and has not ended."""
    jobs = [each for (kind, _, _), each in server.objects.items() if kind == "BatchJob"]
    return {each["metadata"]["name"]: each["spec"]["parallelism"] for each in jobs if not is_suspended(each)}


def annotations(server: StandIn, name: str) -> dict[str, str]:
    return dict(now(server, "job", name)["metadata"]["annotations"])


def end(server: StandIn, name: str) -> None:
    server.delete("BatchJob", "default", name)


def test_one_job_gets_no_more_than_there_is(server: StandIn, operator: Callable[..., Operator]) -> None:
    submit(server, "a")
    operator(2).turn()
    assert running(server) == {"a": 2}
    (message,) = told(server, "Sized")
    assert message.startswith("Sized to 2 workers × 3 cores and 2.0 GiB, batch 512, 1,414 (1,273 to 1,556) samples/s")
    assert "This is its share of the cluster; 4 workers" in message
    of_a = annotations(server, "a")
    assert of_a[labels.TARGET] == at(2, 512).describe()
    assert of_a["sizewright/reason"] == message.partition("expected. ")[2]


def test_jobs_for_which_there_is_no_room_wait_and_are_told_once(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "a", "b", "c")
    sharing = operator(2, limit_s=600.0)
    turns(sharing, clock, 90)
    assert [*running(server).values()] == [1, 1]
    (waiting,) = {"a", "b", "c"} - running(server).keys()
    (message,) = told(server, "WaitsForCapacity")
    assert message.startswith("It waits for capacity of the cluster. Its smallest candidate is 1 worker")
    of_waiting = annotations(server, waiting)
    assert of_waiting[labels.WAITS] == message
    assert not of_waiting.keys() & {labels.SIZED, labels.FAILING_SINCE}, "the limit is for others"


def test_end_lets_the_next_job_start(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    submit(server, "a", "b", "c")
    sharing = operator(2)
    turns(sharing, clock, 2)
    ended = next(iter(running(server)))
    end(server, ended)
    sharing.turn()
    others = {"a", "b", "c"} - {ended}
    assert running(server) == dict.fromkeys(others, 1)
    assert not any(labels.WAITS in annotations(server, name) for name in others)


def test_elastic_job_gives_back_for_an_arrival(
    server: StandIn, operator: Callable[..., Operator], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(server, "first", **{labels.SCALE: "yes"})
    sharing = operator(8)
    turns(sharing, clock, 15)
    assert running(server) == {"first": 8}
    submit(server, "second")
    merge, after_changes = server.merge, list[int]()

    def counted(*words: Any) -> Any:
        written = merge(*words)
        after_changes.append(sum(running(server).values()))
        return written

    monkeypatch.setattr(server, "merge", counted)
    turns(sharing, clock, 5)
    assert running(server).keys() == {"first", "second"}
    assert running(server)["first"] < 8
    assert max(after_changes) <= 8, "the second starts after the first has given back"
    assert "is the share of the job" in told(server, "Scaled")[0]


def test_end_lets_an_elastic_job_grow(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    submit(server, "short", "long", **{labels.SCALE: "yes"})
    sharing = operator(8, share_every_s=60.0)
    turns(sharing, clock, 2)
    before = running(server)["long"]
    end(server, "short")
    turns(sharing, clock, 20)
    assert running(server)["long"] > before


def test_job_without_the_annotation_keeps_its_workers(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "first")
    sharing = operator(8)
    turns(sharing, clock, 2)
    submit(server, "second")
    turns(sharing, clock, 15)
    assert running(server) == {"first": 8}


def test_next_operator_goes_on(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    submit(server, "a", "b", "c")
    turns(operator(2), clock, 2)
    before = running(server)
    turns(operator(2), clock, 2)
    assert running(server) == before
    assert len(before) == 2
    assert len(told(server, "WaitsForCapacity")) == 1
    end(server, next(iter(before)))
    operator(2).turn()
    assert len(running(server)) == 2


def test_dry_run_only_tells(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    submit(server, "a", "b", "c")
    before = {key: each["metadata"]["resourceVersion"] for key, each in server.objects.items()}
    turns(operator(2, dry_run=True), clock, 40)
    assert {key: server.objects[key]["metadata"]["resourceVersion"] for key in before} == before
    assert sorted(reason for reason, _ in events(server)) == ["WouldSize", "WouldSize", "WouldWait"]


def test_job_without_data_waits_for_its_own_sizes(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "a", "b")  # two cores each
    turns(operator(1, no_answer), clock, 5)
    ((name, workers),) = running(server).items()
    assert (workers, annotations(server, name)[labels.OUTCOME]) == (2, "left")
    (waiting,) = {"a", "b"} - {name}
    assert labels.WAITS in annotations(server, waiting)


def test_job_that_never_fits_is_one_that_cannot_be_sized(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "a")
    small = Cluster(hosts=(HostKind(kind="host", cpu=1.0, memory_bytes=GIB),))
    sharing = operator(1, no_answer, shared=small, limit_s=600.0)
    turns(sharing, clock, 30)
    (message,) = told(server, "CannotSize")
    assert message.startswith(
        "It can get no share of the cluster: none of its 1 candidate can be used: it needs 2 cores"
    )
    turns(sharing, clock, 40)
    assert running(server) == {"a": 2}, "after the limit it is resumed as it is"


@pytest.mark.parametrize("how", ["hold", "queue"])
def test_jobs_that_others_start_count_once_they_run(
    how: str, server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    if how == "hold":
        submit(server, "other", label="hold")
    else:
        submit(server, "other", **{labels.QUEUE: "ads"})
    sharing = operator(5)
    sharing.turn()
    other = now(server, "job", "other")
    assert other["metadata"]["annotations"][labels.OUTCOME] == "sized"
    assert (QUEUE_LABEL in other["metadata"]["labels"]) == (how == "queue")
    server.merge("BatchJob", "default", "other", {"metadata": {}, "spec": {"suspend": False}}, "somebody", False)
    submit(server, "a")
    sharing.turn()
    assert running(server) == {"other": 4, "a": 1}


def test_changed_description_is_sized_anew(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    submit(server, "a", "b")
    sharing = operator(1)
    turns(sharing, clock, 2)
    (waiting,) = {"a", "b"} - running(server).keys()
    end(server, next(iter(running(server))))
    patch = {"metadata": {"annotations": {labels.JOB: "name: ["}}}
    server.merge("BatchJob", "default", waiting, patch, "somebody", False)
    sharing.turn()
    assert running(server) == {}
    assert len(told(server, "CannotSize")) == 1
    assert labels.FAILING_SINCE in annotations(server, waiting)


def test_refused_change_is_made_later_with_a_new_share(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "a")
    server.fail("PATCH", "/jobs/a", 403)
    sharing = operator(8)
    sharing.turn()
    assert running(server) == {}
    assert len(told(server, "CannotSize")) == 1
    clock.sleep(11)
    server.objects["BatchJob", "default", "a"]["metadata"]["annotations"][labels.JOB] = yaml.safe_dump(
        {**JOB_FILE, "name": "a", "training": {"samples": 10**6, "batch_size": 256}}
    )
    sharing.turn()
    assert running(server) == {"a": 8}
    assert annotations(server, "a")[labels.TARGET] == at(8, 256).describe()


def test_number_that_somebody_else_writes_stays(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "a", **{labels.SCALE: "yes"})
    sharing = operator(8)
    turns(sharing, clock, 2)
    patch = {"metadata": {}, "spec": {"parallelism": 3, "completions": 3}}
    server.merge("BatchJob", "default", "a", patch, "somebody", False)
    turns(sharing, clock, 5)
    assert running(server) == {"a": 3}, "until the next round"


def test_nobody_starts_while_a_kind_cannot_be_listed(server: StandIn, operator: Callable[..., Operator]) -> None:
    submit(server, "a")
    server.fail("GET", "/jobsets", 403, times=2)
    sharing = operator(8)
    sharing.turn()
    assert running(server) == {}
    assert sharing.errors
    sharing.turn()
    assert running(server) == {"a": 8}


def test_job_that_is_being_deleted_does_not_start(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "a", "b")
    sharing = operator(1)
    turns(sharing, clock, 2)
    (waiting,) = {"a", "b"} - running(server).keys()
    now(server, "job", waiting)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    end(server, next(iter(running(server))))
    turns(sharing, clock, 2)
    assert running(server) == {}


def test_running_job_whose_sizes_are_unknown_is_told_once(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    submit(server, "odd", label="hold")
    spec = now(server, "job", "odd")["spec"]
    spec["suspend"] = False
    spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    submit(server, "a")
    turns(operator(8), clock, 3)
    (message,) = told(server, "NotCounted")
    assert message.startswith("What it uses of the cluster is not counted. ")
    assert running(server)["a"] == 8


class TestGpus:
    ANY = Allocation.of(2, 0, 1.0, 1.0, 512, worker_gpu=1)

    def sharing(self, *kinds: str) -> Sharing:
        hosts = tuple(HostKind(kind=kind, cpu=8.0, memory_bytes=GIB, gpu=Gpu(kind=kind, count=4)) for kind in kinds)
        return Sharing(Cluster(hosts=hosts), 300.0, Clock(), dry_run=False)

    def test_those_of_no_kind_are_of_the_only_kind(self) -> None:
        counted = self.sharing("a100").counted(self.ANY, Job())
        assert counted == Allocation.of(2, 0, 1.0, 1.0, 512, worker_gpu=1, gpu_kind="a100")

    def test_bounds_name_the_kind(self) -> None:
        job = Job.model_validate({"training": {"device": "cuda"}, "bounds": {"worker": {"gpu": "h100:1"}}})
        counted = self.sharing("a100", "h100").counted(self.ANY, job)
        assert counted.worker[0].gpu == Gpu(kind="h100", count=1)

    def test_one_of_several_kinds_has_to_be_named(self) -> None:
        with pytest.raises(InputError, match=r"several kinds \(a100, h100\).*Write the kind into bounds.worker.gpu"):
            self.sharing("a100", "h100").counted(self.ANY, Job())


def test_permissions_are_enough(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    submit(server, "a", "b", "c")
    turns(operator(2), clock, 5)
    assert calls(server) <= allowed(objects(scales=True))
