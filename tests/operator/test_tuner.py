"""Pods of running jobs are resized in place by what they use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from sizewright.executors.kubernetes.api import KubeApi
from sizewright.formatting import GIB, MIB
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.tuner import TuningSettings
from sizewright.recommender.control.resize import Resizing
from sizewright.spec import Rails
from sizewright.spec.rails import RoleRails
from tests.helpers.stand_in import StandIn
from tests.helpers.suspended_jobs import KINDS, suspended
from tests.operator.test_controller import Clock, events, now, put, sized_answer
from tests.operator.test_manifests import allowed, calls, objects

IN_PLACE = [name for name in KINDS if name != "kuberay"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def operator(api: KubeApi, clock: Clock) -> Callable[..., Operator]:
    def make(**settings: Any) -> Operator:
        how = OperatorSettings(
            **{"tuning": TuningSettings(every_s=10.0, resizing=Resizing()), "recreates": True, **settings}
        )
        return Operator(api, sized_answer, list, how, clock=clock, now=clock.time_of_day, sleep=clock.sleep)

    return make


class Pods:
    """What the pods of a stand-in report: their cores and the growth of their memory."""

    def __init__(self, server: StandIn, clock: Clock) -> None:
        self.cores, self.growth_bytes = 2.9, 0.0
        self._clock, self._began_s = clock, time.time()
        server.resizes = True
        server.log = self.log  # type: ignore[method-assign]

    def log(self, name: str, timestamps: bool = False) -> str:
        seconds = 10 + self._clock()
        sums = {"samples": int(1000 * seconds), "steps": int(seconds), "at_s": self._began_s + seconds}
        container = {"cpu_s": self.cores * seconds, "memory_peak_bytes": int(GIB + self.growth_bytes * seconds)}
        return f"sizewright-progress {json.dumps({'process': 1, 'sums': sums, 'container': container})}\n"


@pytest.fixture
def pods(server: StandIn, clock: Clock) -> Pods:
    return Pods(server, clock)


def start(server: StandIn, running: Operator, executor: str = "jobset", **annotations: str) -> None:
    put(server, executor, suspended(executor, **{labels.RECREATE: "yes", **annotations}))
    running.turn()
    assert len(server.pods) >= 4


def turns(running: Operator, clock: Clock, count: int = 20) -> None:
    for _ in range(count):
        running.turn()
        clock.sleep(10)


def sizes(server: StandIn) -> set[tuple[str, str]]:
    """Return the cores and the memory of all workers."""
    found = [
        pod["spec"]["containers"][0]["resources"]["requests"] for name, pod in server.pods.items() if "head" not in name
    ]
    return {(each["cpu"], each["memory"]) for each in found}


def told(server: StandIn, reason: str) -> list[str]:
    return [message for each, message in events(server) if each == reason]


@pytest.mark.parametrize("executor", IN_PLACE)
def test_growing_memory_is_enlarged_without_a_restart(
    executor: str, server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running, executor)
    uids = {pod["metadata"]["uid"] for pod in server.pods.values()}
    assert sizes(server) == {("3", "2048Mi")}
    pods.growth_bytes = 5 * MIB
    turns(running, clock)
    assert {pod["metadata"]["uid"] for pod in server.pods.values()} == uids, "no pod was replaced"
    ((_, memory),) = sizes(server)
    assert memory == "8192Mi", "the most that its bounds allow"
    (message,) = told(server, "Resized")
    assert "8.0 GiB" in message
    assert "grows by 300.0 MiB a minute" in message


def test_idle_cores_are_given_back_and_asked_for_again(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running)
    pods.cores = 1.0
    turns(running, clock)
    assert sizes(server) == {("1250m", "2048Mi")}
    assert "are enough" in told(server, "Resized")[0]


def test_dry_run_and_annotation_change_nothing(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    start(server, operator())
    pods.cores = 1.0
    turns(operator(dry_run=True), clock)
    assert sizes(server) == {("3", "2048Mi")}
    assert len(told(server, "WouldResize")) == 1
    now(server, "jobset")["metadata"]["annotations"][labels.RESIZE] = "no"
    turns(operator(), clock)
    assert sizes(server) == {("3", "2048Mi")}
    assert not told(server, "Resized")


def test_jobs_are_left_alone_unless_tuning_is_asked_for(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator(tuning=TuningSettings())
    start(server, running)
    pods.cores = 1.0
    server.asked.clear()
    turns(running, clock)
    assert not [asked for asked in server.asked if "/pods" in asked]


def test_guardrails_hold(server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock) -> None:
    running = operator(rails=Rails(worker=RoleRails(memory_bytes=(GIB, 3 * GIB))))
    start(server, running)
    pods.growth_bytes = 5 * MIB
    turns(running, clock)
    assert sizes(server) == {("3", "3072Mi")}


def test_kind_that_would_restart_is_told_once(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running, "kuberay")
    pods.cores = 1.0
    turns(running, clock)
    assert sizes(server) == {("3", "2048Mi")}
    assert len(told(server, "CannotResize")) == 1


def test_node_without_room_is_told_and_pods_keep_their_sizes(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running)
    server.node = lambda pod: "Infeasible"
    pods.growth_bytes = 5 * MIB
    turns(running, clock, 40)
    (message,) = set(told(server, "CannotResize"))
    assert "Node didn't have enough resource" in message
    assert sizes(server) == {("3", "2048Mi")}


def test_server_that_does_not_answer_ends_no_turn(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running)
    server.fail("GET", "/namespaces/default/pods", 500, times=8)
    pods.cores = 1.0
    turns(running, clock, 100)
    assert told(server, "CannotTune")
    assert told(server, "Resized"), "it is looked at again later"


def test_changed_annotations_leave_a_job_alone(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    start(server, operator())
    now(server, "jobset")["metadata"]["annotations"]["sizewright/plan-record"] = "{}"
    pods.cores = 1.0
    turns(operator(), clock)
    assert sizes(server) == {("3", "2048Mi")}


def test_permissions_are_enough(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock, api: KubeApi
) -> None:
    for executor in IN_PLACE:
        put(server, executor, suspended(executor, f"{executor}-ctr", **{labels.RECREATE: "yes"}))
    running = operator()
    running.turn()
    server.asked.clear()
    pods.growth_bytes = 5 * MIB
    turns(running, clock)
    assert len(told(server, "Resized")) == len(IN_PLACE)
    applied = {("kubeflow.org", "pytorchjobs", "create")}  # an apply with a uid changes what exists
    assert calls(server) - applied <= allowed(objects(resizes=True))


def test_pods_of_several_sizes_are_told_once(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running)
    next(iter(server.pods.values()))["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1024Mi"
    pods.cores = 1.0
    turns(running, clock, 80)
    assert told(server, "CannotResize") == [
        "Its pods of role worker have several sizes, as after one was replaced; they are left alone."
    ]


def test_node_that_takes_long_is_told(
    server: StandIn, operator: Callable[..., Operator], pods: Pods, clock: Clock
) -> None:
    running = operator()
    start(server, running)
    server.node = lambda pod: "Deferred"
    pods.cores = 1.0
    turns(running, clock, 12)
    assert "no room" in told(server, "CannotResize")[0]
