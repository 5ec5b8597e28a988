"""Jobs on which there is not enough data are measured by trial jobs first, and then sized."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from sizewright.datasets.trials.trial import Trial
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.trial_jobs import TrialSettings
from sizewright.spec import Job, Rails, Recommendation
from tests.helpers.stand_in import RATE, StandIn
from tests.helpers.suspended_jobs import JOB_FILE, KINDS, suspended
from tests.operator.test_controller import (
    Clock,
    Object,
    events,
    is_suspended,
    no_answer,
    now,
    put,
    sized_answer,
    workers_of,
)

ALLOWED = {labels.TRIALS: "yes"}
SMALL = TrialSettings(count=3, cores=4.0)


class Measured:
    """The store of the operator: it has an answer from three trials on."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def answer(self, job: Job) -> Recommendation:
        return sized_answer(job) if len([each for each in self.trials if each.usable]) >= 3 else no_answer(job)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.fixture
def operator(api: KubeApi, clock: Clock, measured: Measured) -> Callable[..., Operator]:
    def make(**settings: Any) -> Operator:
        how = OperatorSettings(**{"policy": "trials", "trials": SMALL, "recreates": True, **settings})
        how_long = {"clock": clock, "now": clock.time_of_day, "sleep": clock.sleep}
        return Operator(api, measured.answer, list, how, record=measured.trials.append, **how_long)

    return make


def trial_jobs(server: StandIn) -> list[Object]:
    return [each for each in server.objects.values() if labels.TRIAL_OF in each["metadata"].get("labels", {})]


def begin(running: Operator) -> None:
    """Let an operator note that a job waits for its trials, and start the first."""
    running.turn()
    running.turn()


def train(server: StandIn, seconds: float = 60.0) -> None:
    """Let all pods have trained for so long."""
    for pod in server.pods.values():
        pod["began"] -= seconds


@pytest.mark.parametrize("executor", KINDS)
def test_job_is_measured_and_then_sized(
    executor: str, server: StandIn, api: KubeApi, operator: Callable[..., Operator], measured: Measured
) -> None:
    put(server, executor, suspended(executor, **ALLOWED, **{labels.RECREATE: "yes"}))
    running, sizes = operator(), []
    running.turn()
    for number in (1, 2, 3):
        running.turn()
        (copy,) = trial_jobs(server)
        assert copy["metadata"]["name"].startswith("ctr-")
        assert copy["metadata"]["name"].endswith(f"-trial-{number}")
        assert not is_suspended(copy)
        (worker,) = workers_of(api, executor, copy)
        sizes.append((worker.replicas, worker.cpu))
        assert worker.replicas * worker.cpu <= SMALL.cores
        assert worker.memory_bytes == 8 << 30, "the most that its bounds allow"
        assert is_suspended(now(server, executor)), "the job itself waits"
        running.turn()
        assert len(measured.trials) == number - 1, "it has not trained for long enough"
        train(server)
        running.turn()
        assert measured.trials[-1].throughput == pytest.approx(worker.replicas * RATE, rel=0.01)
    assert len(set(sizes)) == 3
    assert [(each.workers, each.worker_cpu) for each in measured.trials] == sizes
    assert all(each.worker_cpu_used == pytest.approx(0.5) for each in measured.trials)
    running.turn()
    assert not trial_jobs(server)
    assert not is_suspended(now(server, executor))
    assert now(server, executor)["metadata"]["annotations"][labels.OUTCOME] == "sized"
    assert labels.TRIALS_DONE not in now(server, executor)["metadata"]["annotations"]
    told = [message for reason, message in events(server) if reason == "Trial"]
    assert len(told) == 6
    assert "samples/s." in told[-1]


def test_copies_report_and_belong_to_their_job(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "pytorchjob", suspended("pytorchjob", **ALLOWED))
    job_object = now(server, "pytorchjob")
    begin(operator())
    (copy,) = trial_jobs(server)
    (owner,) = copy["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("PyTorchJob", job_object["metadata"]["uid"])
    assert labels.SIZE not in copy["metadata"]["labels"], "copies are not sized themselves"
    for pod in server.pods.values():
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert (env["SIZEWRIGHT_TRIAL"], env["SIZEWRIGHT_PROGRESS"]) == ("1", "stdout")


def test_hosts_are_those_of_the_copy(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "jobset", suspended("jobset", **ALLOWED))
    begin(operator())
    (copy,) = trial_jobs(server)
    env = copy["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    (address,) = [each["value"] for each in env if each["name"] == "MASTER_ADDR"]
    assert address.startswith(f"{copy['metadata']['name']}-")


def test_copy_that_would_talk_to_the_job_is_not_made(server: StandIn, operator: Callable[..., Operator]) -> None:
    document = suspended("job", **ALLOWED)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    container["args"] = ["--master=ctr-0.ctr:29500"]
    put(server, "job", document)
    begin(operator())
    assert not trial_jobs(server)
    ((reason, message),) = events(server)
    assert reason == "CannotSize"
    assert "find each other by ctr-0, a host of the job" in message


def test_another_operator_goes_on(server: StandIn, operator: Callable[..., Operator], measured: Measured) -> None:
    put(server, "jobset", suspended("jobset", **ALLOWED))
    for _ in range(8):
        operator().turn()
        train(server)
    assert len(measured.trials) == 3
    assert not is_suspended(now(server, "jobset"))


def test_jobs_of_one_description_share_their_trials(
    server: StandIn, operator: Callable[..., Operator], measured: Measured
) -> None:
    for name in ("first", "second"):
        put(server, "job", suspended("job", name, **ALLOWED))
    running = operator(trials=TrialSettings(count=3, cores=4.0, at_once=9))
    for _ in range(10):
        running.turn()
        assert len(trial_jobs(server)) <= 1
        train(server)
    assert len(measured.trials) == 3
    assert not any(is_suspended(now(server, "job", name)) for name in ("first", "second"))


def test_no_more_run_than_may_at_once(server: StandIn, operator: Callable[..., Operator]) -> None:
    for number in range(4):
        text = yaml.safe_dump(JOB_FILE | {"command": {"run": ["python", f"{number}.py"]}})
        put(server, "job", suspended("job", f"job-{number}", **ALLOWED, **{labels.JOB: text}))
    begin(operator(trials=TrialSettings(cores=4.0, at_once=2)))
    assert len(trial_jobs(server)) == 2


def test_job_that_does_not_allow_trials_is_left(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job"))
    operator().turn()
    assert not trial_jobs(server)
    assert now(server, "job")["metadata"]["annotations"][labels.OUTCOME] == "left"


def test_dry_run_starts_none(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator(dry_run=True)
    assert [running.turn(), running.turn()] == [1, 0]
    assert not trial_jobs(server)
    assert events(server) == [("WouldSize", "Nothing is changed. Trial jobs would measure it first.")]


def test_failed_trials_are_evidence_and_the_job_is_left(
    server: StandIn, operator: Callable[..., Operator], measured: Measured
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    running.turn()
    for number in (1, 2, 3):
        running.turn()
        if number == 2:
            out_of_memory = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
            for pod in server.pods.values():
                pod["status"]["containerStatuses"] = [{"name": "main", "state": out_of_memory}]
        else:
            failed = {"conditions": [{"type": "Failed", "status": "True"}]}
            server.set_status("BatchJob", trial_jobs(server)[0]["metadata"]["name"], failed)
        running.turn()
    assert [each.status for each in measured.trials] == ["failed", "oom", "failed"]
    assert "ran out of memory" in str(measured.trials[1].message)
    running.turn()
    assert not trial_jobs(server)
    assert now(server, "job")["metadata"]["annotations"][labels.OUTCOME] == "left"
    assert not is_suspended(now(server, "job"))


def test_trial_that_is_never_steady_is_void(
    server: StandIn, operator: Callable[..., Operator], measured: Measured, clock: Clock
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    server.odd = lambda method, path, answer: "2026-01-01T00:00:00Z loading\n" if path.endswith("/log") else answer
    begin(running)
    running.turn()
    (trial,) = measured.trials
    assert (trial.status, trial.throughput) == ("void", None)
    assert "before its throughput was steady" in str(trial.message)


def test_job_does_not_wait_for_ever(server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator(limit_s=100.0)
    server.odd = lambda method, path, answer: "" if path.endswith("/log") else answer
    begin(running)
    clock.sleep(50)
    running.turn()
    assert trial_jobs(server), "its pods may wait for room"
    clock.sleep(60)
    running.turn()
    assert not trial_jobs(server)
    assert not is_suspended(now(server, "job"))
    assert now(server, "job")["metadata"]["annotations"][labels.OUTCOME] == "left"


def test_copies_go_with_a_job_that_is_deleted_or_resumed(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", "deleted", **ALLOWED))
    other = {labels.JOB: yaml.safe_dump(JOB_FILE | {"command": {"run": "other"}})}
    put(server, "jobset", suspended("jobset", "resumed", **ALLOWED, **other))
    running = operator()
    begin(running)
    assert len(trial_jobs(server)) == 2
    server.delete("BatchJob", "default", "deleted")
    now(server, "jobset", "resumed")["spec"]["suspend"] = False
    running.turn()
    assert not trial_jobs(server)


@pytest.mark.parametrize("status", [403, 422, 500, 0])
def test_refused_copy_is_told_and_tried_again(
    status: int, server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    put(server, "jobset", suspended("jobset", **ALLOWED))
    server.fail("POST", "/jobsets", status, times=1 if status in (403, 422) else 4)
    running = operator()
    begin(running)
    assert [reason for reason, _ in events(server)] == ["CannotSize"]
    assert is_suspended(now(server, "jobset"))
    clock.sleep(20)
    running.turn()
    assert len(trial_jobs(server)) == 1


def test_copy_of_a_job_has_trials_of_its_own(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    operator().turn()
    annotations = dict(now(server, "job")["metadata"]["annotations"])
    server.delete("BatchJob", "default", "ctr")
    annotations[labels.TRIALS_DONE] = annotations[labels.TRIALS_DONE].replace('"ended": 0', '"ended": 3')
    put(server, "job", suspended("job", "copy", **annotations))
    begin(operator())
    (copy,) = trial_jobs(server)
    assert copy["metadata"]["name"].startswith("copy-")


def test_annotation_that_cannot_be_read_is_told(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", **ALLOWED, **{labels.TRIALS_DONE: "three"}))
    operator().turn()
    ((reason, message),) = events(server)
    assert reason == "CannotSize"
    assert "Its annotation sizewright/trials-done is 'three'. Remove it." in message


def test_copy_that_cannot_be_deleted_is_no_other_trial(
    server: StandIn, operator: Callable[..., Operator], measured: Measured, clock: Clock
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    begin(running)
    (copy,) = trial_jobs(server)
    train(server)
    server.fail("DELETE", "/jobs", 500, times=8)
    for _ in range(4):
        running.turn()
        clock.sleep(60)
    assert len(measured.trials) == 1, "its logs are those of the first trial only"
    assert trial_jobs(server)[0]["metadata"]["name"] != copy["metadata"]["name"]


def test_copy_that_is_being_deleted_is_waited_for(
    server: StandIn, operator: Callable[..., Operator], measured: Measured
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    begin(running)
    trial_jobs(server)[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    train(server)
    running.turn()
    assert not measured.trials


def test_copy_that_somebody_deletes_has_failed(
    server: StandIn, operator: Callable[..., Operator], measured: Measured
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    running.turn()
    for _ in range(12):
        running.turn()
        for copy in trial_jobs(server):
            server.delete("BatchJob", "default", copy["metadata"]["name"])
    assert [each.status for each in measured.trials] == ["failed"] * 3
    assert not is_suspended(now(server, "job"))


def test_trial_is_of_the_sizes_of_its_copy(
    server: StandIn, operator: Callable[..., Operator], measured: Measured
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    begin(running)
    bounds = {"worker": {"replicas": [1, 16], "cpu": [1, 4], "memory": ["1Gi", "2Gi"]}}
    now(server, "job")["metadata"]["annotations"][labels.JOB] = yaml.safe_dump(JOB_FILE | {"bounds": bounds})
    train(server)
    running.turn()
    (trial,) = measured.trials
    assert (trial.workers, trial.worker_cpu) == (2, 2.0)


@pytest.mark.parametrize("change", ["label", "policy", "description"])
def test_no_copy_stays_behind(change: str, server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    running = operator()
    begin(running)
    assert trial_jobs(server)
    if change == "label":
        del now(server, "job")["metadata"]["labels"][labels.SIZE]
    elif change == "policy":
        running = operator(policy="leave")
    else:
        del now(server, "job")["metadata"]["annotations"][labels.TRIALS]
    running.turn()
    running.turn()
    assert not trial_jobs(server)


def test_copies_end_by_themselves_after_the_limit(server: StandIn, operator: Callable[..., Operator]) -> None:
    for executor in KINDS:
        described = {labels.JOB: yaml.safe_dump(JOB_FILE | {"command": {"run": executor, "rendezvous": "torchrun"}})}
        put(server, executor, suspended(executor, executor, **ALLOWED, **described))
    begin(operator(limit_s=600.0, trials=TrialSettings(cores=4.0, at_once=9)))
    assert len(trial_jobs(server)) == len(KINDS)
    assert all('"activeDeadlineSeconds": 600' in json.dumps(copy) for copy in trial_jobs(server))


def test_object_with_the_label_that_is_no_copy_is_left_alone(
    server: StandIn, operator: Callable[..., Operator], measured: Measured
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    own = suspended("job", "own", labels={labels.TRIAL_OF: now(server, "job")["metadata"]["uid"]})
    del own["metadata"]["labels"][labels.SIZE]
    put(server, "job", own | {"spec": own["spec"] | {"suspend": False}})
    running = operator()
    for _ in range(3):
        running.turn()
    assert now(server, "job", "own")


def test_delete_that_is_refused_ends_no_turn(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "jobset", suspended("jobset", **ALLOWED))
    running = operator()
    begin(running)
    now(server, "jobset")["spec"]["suspend"] = False
    server.fail("DELETE", "/jobsets", 403)
    running.turn()
    assert "Not allowed to delete" in str(running.errors[0])
    running.turn()
    assert not trial_jobs(server)


def test_kind_that_cannot_be_listed_keeps_no_other_job(
    server: StandIn, operator: Callable[..., Operator], measured: Measured, clock: Clock
) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    put(server, "kuberay", suspended("kuberay", "ray", **ALLOWED))
    server.fail("GET", "/rayjobs", 403, times=1000)
    running = operator(limit_s=100.0)
    for _ in range(6):
        running.turn()
        train(server)
        clock.sleep(30)
    assert measured.trials
    assert not is_suspended(now(server, "job"))


def test_guardrails_hold_for_trials(server: StandIn, api: KubeApi, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    begin(operator(rails=Rails(paused=True)))
    assert not trial_jobs(server)
    assert "pause" in events(server)[-1][1]


def test_sizes_that_are_all_too_large_are_told_and_left(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job", **ALLOWED))
    begin(operator(trials=TrialSettings(cores=0.5)))
    assert not trial_jobs(server)
    assert "--trial-cores" in str(events(server))
    assert now(server, "job")["metadata"]["annotations"][labels.OUTCOME] == "left"


def test_jobs_that_wait_for_room_wait_no_longer_than_the_limit(
    server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    for number in range(4):
        text = yaml.safe_dump(JOB_FILE | {"command": {"run": ["python", f"{number}.py"]}})
        put(server, "job", suspended("job", f"job-{number}", **ALLOWED, **{labels.JOB: text}))
    server.odd = lambda method, path, answer: "" if path.endswith("/log") else answer
    running = operator(limit_s=100.0, trials=TrialSettings(cores=4.0, at_once=1))
    for _ in range(4):
        running.turn()
        clock.sleep(40)
    assert not any(is_suspended(now(server, "job", f"job-{number}")) for number in range(4))
