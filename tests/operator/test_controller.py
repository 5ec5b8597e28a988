"""The operator sizes suspended jobs of all kinds, tells what it did, and resumes what it may resume."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.errors import InputError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import QUEUE_LABEL
from sizewright.formatting import GIB
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.job_kinds import job_kinds
from sizewright.spec import Allocation, Group, Job, Rails, Recommendation
from sizewright.spec.rails import RoleRails
from sizewright.spec.recommendation import Estimate, Evidence, Prediction, Remedy
from tests.helpers.stand_in import StandIn
from tests.helpers.suspended_jobs import JOB_FILE, KINDS, suspended

Object = dict[str, Any]
EACH_KIND = pytest.mark.parametrize("executor", KINDS)
CHANGEABLE = [name for name in KINDS if name != "trainjob"]


class Clock:
    """A clock that only tests and the operator's pauses move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._began_s = time.time()

    def __call__(self) -> float:
        return self.now_s

    def time_of_day(self) -> float:
        return self._began_s + self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def sized_answer(job: Job) -> Recommendation:
    worker = Group(replicas=4, cpu=3.0, memory_bytes=2 * GIB)
    target = Allocation(worker=(worker,), ps=(), batch_size=job.training.batch_size)
    predicted = Prediction(throughput=Estimate(value=9000.0, lower=8000.0, upper=10000.0))
    evidence = Evidence(trials=3, model="default")
    return Recommendation(
        status="ok", job=job.name, target=target, predicted=predicted, evidence=evidence, reasons=("The cheapest.",)
    )


def no_answer(job: Job) -> Recommendation:
    remedies = Remedy.numbered(["Profile it."])
    evidence = Evidence(trials=0)
    return Recommendation(
        status="not_enough_data", job=job.name, evidence=evidence, reasons=("No trial.",), remedies=remedies
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def operator(api: KubeApi, clock: Clock) -> Callable[..., Operator]:
    def make(
        answer: Callable[[Job], Recommendation] = sized_answer, known: tuple[Job, ...] = (), **settings: Any
    ) -> Operator:
        how = OperatorSettings(**settings)
        return Operator(api, answer, lambda: known, how, clock=clock, now=clock.time_of_day, sleep=clock.sleep)

    return make


def put(server: StandIn, executor: str, document: Object) -> None:
    server.create(KINDS[executor], "default", document)


def now(server: StandIn, executor: str, name: str = "ctr") -> Object:
    return server.objects[KINDS[executor], "default", name]


def events(server: StandIn) -> list[tuple[str, str]]:
    return [(each["reason"], each["message"]) for (kind, _, _), each in server.objects.items() if kind == "Event"]


def workers_of(api: KubeApi, executor: str, document: Object) -> tuple[Group, ...]:
    (kind,) = [kind for kind in job_kinds(api) if kind.executor.name == executor]
    return kind.executor.sizes_of(document)["worker"]


def is_suspended(document: Object) -> bool:
    spec = document["spec"]
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


@EACH_KIND
def test_job_is_sized_told_and_resumed(
    executor: str, server: StandIn, api: KubeApi, operator: Callable[..., Operator]
) -> None:
    annotations = {labels.RECREATE: "yes"} if executor == "trainjob" else {}
    put(server, executor, suspended(executor, **annotations))
    before = now(server, executor)
    assert operator(recreates=True).turn() == 1
    document = now(server, executor)
    (worker,) = workers_of(api, executor, document)
    assert (worker.replicas, worker.cpu, worker.memory_bytes) == (4, 3.0, 2 * GIB)
    assert not is_suspended(document)
    meta = document["metadata"]
    assert meta["annotations"][labels.SIZED] == meta["uid"]
    assert meta["annotations"][labels.OUTCOME] == "sized"
    assert meta["annotations"][labels.INTERVAL] == "9,000 (8,000 to 10,000) samples/s"
    assert "4 × worker" in meta["annotations"][labels.TARGET] or "4 workers" in meta["annotations"][labels.TARGET]
    assert meta["annotations"]["sizewright/asked-by"] == "operator"
    assert (meta["uid"] != before["metadata"]["uid"]) == (executor == "trainjob"), "only that one is created again"
    ((reason, message),) = events(server)
    assert reason == "Sized"
    assert "9,000 (8,000 to 10,000) samples/s expected. The cheapest." in message
    assert server.pods, "the job runs"


@EACH_KIND
def test_later_turns_change_nothing(executor: str, server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, executor, suspended(executor, **{labels.RECREATE: "yes"}))
    running = operator(recreates=True)
    running.turn()
    server.asked.clear()
    assert [running.turn(), operator().turn()] == [0, 0], "another operator sees that all is done"
    assert all(asked.startswith("GET ") for asked in server.asked)


def test_job_that_its_user_suspends_again_stays_suspended(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "kuberay", suspended("kuberay"))
    operator().turn()
    now(server, "kuberay")["spec"]["suspend"] = True
    assert operator().turn() == 0
    assert is_suspended(now(server, "kuberay"))


@pytest.mark.parametrize("more", [{labels.SIZE: "hold"}, {QUEUE_LABEL: "ads"}])
def test_job_that_others_resume_stays_suspended(
    more: dict[str, str], server: StandIn, operator: Callable[..., Operator]
) -> None:
    put(server, "jobset", suspended("jobset", labels=more))
    operator().turn()
    assert is_suspended(now(server, "jobset"))
    assert now(server, "jobset")["metadata"]["annotations"][labels.OUTCOME] == "sized"
    assert operator().turn() == 0


def test_job_enters_its_queue_with_its_sizes(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "jobset", suspended("jobset", **{labels.QUEUE: "ads"}))
    operator().turn()
    document = now(server, "jobset")
    assert document["metadata"]["labels"][QUEUE_LABEL] == "ads"
    assert is_suspended(document)
    assert [asked.partition(" ")[0] for asked in server.asked].count("PATCH") == 1, "not before it has its sizes"


def test_copy_of_a_sized_job_is_sized(server: StandIn, operator: Callable[..., Operator]) -> None:
    put(server, "job", suspended("job"))
    operator().turn()
    annotations = now(server, "job")["metadata"]["annotations"]
    put(server, "job", suspended("job", "copy", **annotations))
    assert operator().turn() == 1
    assert not is_suspended(now(server, "job", "copy"))


def test_copy_of_a_sized_job_that_is_left_says_nothing_of_the_other(
    server: StandIn, operator: Callable[..., Operator]
) -> None:
    put(server, "job", suspended("job"))
    operator().turn()
    annotations = now(server, "job")["metadata"]["annotations"]
    put(server, "job", suspended("job", "copy", **annotations))
    operator(no_answer).turn()
    of_copy = now(server, "job", "copy")["metadata"]["annotations"]
    assert of_copy.keys() == {labels.JOB, labels.SIZED, labels.OUTCOME, "sizewright/reason"}
    assert of_copy["sizewright/reason"] == "Its sizes were left as they are. No trial. Profile it."


@pytest.mark.parametrize("status", [403, 500, 0])
def test_refused_change_changes_nothing_and_is_made_later(
    status: int, server: StandIn, operator: Callable[..., Operator], clock: Clock
) -> None:
    put(server, "job", suspended("job"))
    before = now(server, "job")
    server.fail("PATCH", "/jobs/ctr", status, times=4 if status != 403 else 1)
    running = operator()
    running.turn()
    assert now(server, "job")["spec"] == before["spec"]
    assert [reason for reason, _ in events(server)] == ["CannotSize"]
    clock.now_s += 11
    running.turn()
    assert not is_suspended(now(server, "job"))
    assert labels.FAILING_SINCE not in now(server, "job")["metadata"]["annotations"]


class TestWithoutData:
    def test_sizes_are_left(self, server: StandIn, api: KubeApi, operator: Callable[..., Operator]) -> None:
        put(server, "pytorchjob", suspended("pytorchjob"))
        operator(no_answer).turn()
        document = now(server, "pytorchjob")
        (worker,) = workers_of(api, "pytorchjob", document)
        assert (worker.replicas, worker.cpu) == (2, 1.0)
        assert document["metadata"]["annotations"][labels.OUTCOME] == "left"
        assert not is_suspended(document)
        assert events(server) == [("LeftAsItIs", "Its sizes were left as they are. No trial. Profile it.")]

    def test_upper_bound_is_used(self, server: StandIn, api: KubeApi, operator: Callable[..., Operator]) -> None:
        put(server, "kuberay", suspended("kuberay"))
        operator(no_answer, policy="upper").turn()
        (worker,) = workers_of(api, "kuberay", now(server, "kuberay"))
        assert (worker.replicas, worker.cpu, worker.memory_bytes) == (16, 8.0, 8 * GIB)
        assert now(server, "kuberay")["metadata"]["annotations"][labels.OUTCOME] == "upper"

    def test_upper_bound_keeps_the_guardrails(
        self, server: StandIn, api: KubeApi, operator: Callable[..., Operator]
    ) -> None:
        put(server, "kuberay", suspended("kuberay"))
        operator(no_answer, policy="upper", rails=Rails(worker=RoleRails(replicas=(1, 3)))).turn()
        (worker,) = workers_of(api, "kuberay", now(server, "kuberay"))
        assert worker.replicas == 3

    @pytest.mark.parametrize("bounds", [{}, {"worker": {"replicas": [1, 16]}}])
    def test_bounds_that_are_not_stated_are_not_used(
        self, bounds: Object, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        text = yaml.safe_dump({**JOB_FILE, "bounds": bounds})
        put(server, "kuberay", suspended("kuberay", **{labels.JOB: text}))
        operator(no_answer, policy="upper").turn()
        assert events(server)[0][0] == "CannotSize"
        assert "its description has no bounds.worker.cpu" in events(server)[0][1]

    def test_memory_without_bounds_stays(
        self, server: StandIn, api: KubeApi, operator: Callable[..., Operator]
    ) -> None:
        bounds = {"worker": {"replicas": [1, 16], "cpu": [1, 8]}}
        put(server, "kuberay", suspended("kuberay", **{labels.JOB: yaml.safe_dump({**JOB_FILE, "bounds": bounds})}))
        operator(no_answer, policy="upper").turn()
        (worker,) = workers_of(api, "kuberay", now(server, "kuberay"))
        assert (worker.replicas, worker.cpu, worker.memory_bytes) == (16, 8.0, GIB)


class TestDescriptions:
    def test_config_map(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        document = suspended("job", **{labels.JOB_CONFIG_MAP: "sizes"})
        del document["metadata"]["annotations"][labels.JOB]
        put(server, "job", document)
        running = operator()
        running.turn()
        assert "ConfigMap default/sizes does not exist" in events(server)[0][1]
        data = {"job.yaml": yaml.safe_dump(JOB_FILE)}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sizes"}, "data": data}
        server.create("ConfigMap", "default", config_map)
        operator().turn()
        assert not is_suspended(now(server, "job"))

    @pytest.mark.parametrize("name", ["../../other/configmaps/theirs", "a?b", "x%2fy", ".."])
    def test_name_that_leads_elsewhere_is_refused(
        self, name: str, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        document = suspended("job", **{labels.JOB_CONFIG_MAP: name})
        del document["metadata"]["annotations"][labels.JOB]
        put(server, "job", document)
        operator().turn()
        assert "is no name of an object" in events(server)[0][1]
        assert not any("configmaps" in asked for asked in server.asked)

    @pytest.mark.parametrize("where", ["name", "generateName", "owner"])
    def test_history_of_name_and_image(self, where: str, server: StandIn, operator: Callable[..., Operator]) -> None:
        document = suspended("job", "ctr" if where == "name" else "ctr-7x2k")
        del document["metadata"]["annotations"][labels.JOB]
        if where == "generateName":
            document["metadata"]["generateName"] = "ctr-"
        if where == "owner":
            document["metadata"]["ownerReferences"] = [{"kind": "CronJob", "name": "ctr", "uid": "u"}]
        put(server, "job", document)
        known = Job.model_validate({**JOB_FILE, "deploy": {"image": "ours:1"}})
        other = Job.model_validate({**JOB_FILE, "deploy": {"image": "theirs:1"}})
        asked: list[Job] = []
        operator(lambda job: asked.append(job) or sized_answer(job), (known, other)).turn()  # type: ignore[func-returns-value]
        assert [job.deploy.image for job in asked] == ["ours:1"]
        assert not is_suspended(now(server, "job", document["metadata"]["name"]))

    def test_two_descriptions_are_none(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        document = suspended("job")
        del document["metadata"]["annotations"][labels.JOB]
        put(server, "job", document)
        one = Job.model_validate({**JOB_FILE, "deploy": {"image": "ours:1"}})
        two = one.model_copy(update={"command": one.command.model_copy(update={"run": ("python", "b.py")})})  # type: ignore[union-attr]
        operator(known=(one, two)).turn()
        assert "the history knows 2 jobs of its name and image" in events(server)[0][1]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("{", "is not YAML"),
            ("ctr", "is no mapping"),
            ("nmae: ctr", "nmae"),
            ("data: {format: criteo, path: /etc/passwd}\nmodel: {tables: {rows: from-data}}", "does not read"),
        ],
    )
    def test_unusable_ones_are_told(
        self, text: str, told: str, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "job", suspended("job", **{labels.JOB: text}))
        operator().turn()
        ((reason, message),) = events(server)
        assert reason == "CannotSize"
        assert told in message
        assert is_suspended(now(server, "job"))


class TestFaults:
    def test_failure_is_told_once_and_tried_again_later(
        self, server: StandIn, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        put(server, "trainjob", suspended("trainjob"))
        running = operator()
        assert running.turn() == 1
        ((reason, message),) = events(server)
        assert reason == "CannotSize"
        assert "field is immutable" in message
        assert f"{labels.RECREATE}: yes" in message
        assert running.turn() == 0, "it is not due yet"
        clock.now_s += 11
        assert running.turn() == 1
        assert len(events(server)) == 1
        assert is_suspended(now(server, "trainjob"))

    def test_job_is_resumed_after_the_limit(
        self, server: StandIn, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        put(server, "trainjob", suspended("trainjob"))
        running = operator(limit_s=60.0)
        running.turn()
        assert labels.FAILING_SINCE in now(server, "trainjob")["metadata"]["annotations"]
        for _ in range(6):
            assert is_suspended(now(server, "trainjob"))
            clock.now_s += 11
            running.turn()
        document = now(server, "trainjob")
        assert not is_suspended(document)
        assert document["metadata"]["annotations"][labels.OUTCOME] == "left"
        assert labels.FAILING_SINCE not in document["metadata"]["annotations"]
        assert [reason for reason, _ in events(server)] == ["CannotSize", "LeftAsItIs"]

    def test_limit_outlives_the_operator(
        self, server: StandIn, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        put(server, "trainjob", suspended("trainjob"))
        for _ in range(3):
            operator(limit_s=60.0).turn()
            clock.now_s += 40
        assert not is_suspended(now(server, "trainjob"))

    @pytest.mark.parametrize("label", [{labels.SIZE: "Start"}, {labels.SIZE: "hold"}, {QUEUE_LABEL: "ads"}])
    def test_job_that_the_operator_may_not_resume_waits_for_its_correction(
        self, label: dict[str, str], server: StandIn, api: KubeApi, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        put(server, "jobset", suspended("jobset", labels=label, **{labels.JOB: "{"}))
        running = operator(limit_s=60.0)
        for _ in range(4):
            running.turn()
            clock.now_s += 100
        assert is_suspended(now(server, "jobset"))
        assert [running.turn(), running.turn()] == [1, 0], "it is not tried at every turn"
        meta = now(server, "jobset")["metadata"]
        meta["annotations"][labels.JOB], meta["labels"][labels.SIZE] = yaml.safe_dump(JOB_FILE), "hold"
        clock.now_s += 400
        running.turn()
        assert workers_of(api, "jobset", now(server, "jobset"))[0].replicas == 4

    def test_job_that_waits_for_a_queue_enters_it_after_the_limit(
        self, server: StandIn, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        put(server, "job", suspended("job", **{labels.JOB: "{", labels.QUEUE: "ads"}))
        running = operator(limit_s=60.0)
        for _ in range(4):
            running.turn()
            clock.now_s += 100
        assert now(server, "job")["metadata"]["labels"][QUEUE_LABEL] == "ads"
        assert is_suspended(now(server, "job")), "Kueue resumes it"
        assert now(server, "job")["metadata"]["annotations"][labels.OUTCOME] == "left"

    def test_conflict_is_not_repeated(self, server: StandIn, tmp_path: Path, clock: Clock) -> None:
        put(server, "job", suspended("job"))

        def answer(job: Job) -> Recommendation:
            now(server, "job")["metadata"]["resourceVersion"] = "7"
            return sized_answer(job)

        pauses: list[float] = []
        api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), sleep=pauses.append)
        Operator(api, answer, clock=clock, sleep=clock.sleep).turn()
        assert pauses == []

    def test_unexpected_error_of_one_job_stops_no_other(
        self, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "jobset", suspended("jobset", "bad", **{labels.JOB: yaml.safe_dump({**JOB_FILE, "name": "bad"})}))
        put(server, "job", suspended("job"))

        def answer(job: Job) -> Recommendation:
            if job.name == "bad":
                raise TypeError("unhashable")
            return sized_answer(job)

        assert operator(answer).turn() == 2
        assert not is_suspended(now(server, "job"))
        assert ("CannotSize", "It could not be sized: TypeError: unhashable.") in events(server)

    def test_odd_object_hides_no_other(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        odd = suspended("kuberay", "odd")
        del odd["spec"]
        server.objects["RayJob", "default", "odd"] = {**odd, "metadata": {**odd["metadata"], "uid": "u"}}
        server.objects["RayJob", "default", "odd"]["metadata"].setdefault("namespace", "default")
        document = suspended("kuberay")
        document["metadata"] |= {"uid": "v", "resourceVersion": "1"}
        server.objects["RayJob", "default", "ctr"] = document
        operator().turn()
        assert [reason for reason, _ in events(server)] == ["Sized"]

    def test_job_that_is_listed_long_before_is_read_again(
        self, server: StandIn, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        for number in range(3):
            put(server, "job", suspended("job", f"ctr-{number}"))

        def answer(job: Job) -> Recommendation:
            clock.now_s += 30
            for number in range(3):
                now(server, "job", f"ctr-{number}")["metadata"]["resourceVersion"] = "9"
            return sized_answer(job)

        operator(answer, reuse_s=1000.0).turn()
        assert not is_suspended(now(server, "job", "ctr-2"))
        assert "CannotSize" not in [reason for reason, _ in events(server)]

    def test_one_failing_job_or_kind_stops_no_other(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "jobset", suspended("jobset", "bad", **{labels.JOB: "{"}))
        put(server, "jobset", suspended("jobset"))
        put(server, "job", suspended("job"))
        server.fail("GET", "/rayjobs", 403)
        assert operator().turn() == 3
        assert not is_suspended(now(server, "jobset"))
        assert not is_suspended(now(server, "job"))

    def test_entries_of_other_names_are_mapped(
        self, server: StandIn, api: KubeApi, operator: Callable[..., Operator]
    ) -> None:
        document = suspended("jobset", **{labels.ROLES: "worker=learners"})
        document["spec"]["replicatedJobs"][0]["name"] = "learners"
        document["spec"]["successPolicy"]["targetReplicatedJobs"] = ["learners"]
        viewer = copy.deepcopy(document["spec"]["replicatedJobs"][0]) | {"name": "viewer"}
        del viewer["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
        document["spec"]["replicatedJobs"].append(viewer)
        put(server, "jobset", document)
        operator().turn()
        first, second = (
            each["template"]["spec"]["parallelism"] for each in now(server, "jobset")["spec"]["replicatedJobs"]
        )
        assert (first, second) == (4, 2)

    @pytest.mark.parametrize("text", ["worker", "boss=a", "worker=,ps=b"])
    def test_wrong_names_of_roles_are_told(self, text: str, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "jobset", suspended("jobset", **{labels.ROLES: text}))
        operator().turn()
        assert events(server)[0][0] == "CannotSize"

    def test_what_is_gone_is_forgotten_although_another_kind_cannot_be_listed(
        self, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "job", suspended("job", **{labels.JOB: "{"}))
        put(server, "jobset", suspended("jobset", **{labels.JOB: "{"}))
        running = operator()
        running.turn()
        server.delete("BatchJob", "default", "ctr")
        server.fail("GET", "/jobsets", 403, times=2)
        running.turn()
        assert len(running._failures) == len(running._places) == 1, "that of the JobSet, which may still be there"

    def test_unknown_label_is_told(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "job", suspended("job", labels={labels.SIZE: "please"}))
        operator().turn()
        assert "Its label sizewright/size is 'please'" in events(server)[0][1]

    def test_settings_that_repeat_a_count_are_refused(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        document = suspended("job")
        (container,) = document["spec"]["template"]["spec"]["containers"]
        container["env"] = [{"name": "WORLD_SIZE", "value": "2"}, {"name": "OMP_NUM_THREADS", "value": "1"}]
        put(server, "job", document)
        operator().turn()
        assert "WORLD_SIZE says 2; workers are now 4." in events(server)[0][1]
        assert is_suspended(now(server, "job"))

    def test_plan_outside_guardrails_is_refused(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "job", suspended("job"))
        operator(rails=Rails(worker=RoleRails(replicas=(1, 3)))).turn()
        assert "violates its guardrails" in events(server)[0][1]
        assert is_suspended(now(server, "job"))

    @pytest.mark.parametrize("what", ["changed", "resumed", "deleted"])
    def test_job_that_moves_on_meanwhile_is_left_to_the_next_turn(
        self, what: str, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "job", suspended("job"))

        def answer(job: Job) -> Recommendation:
            document = now(server, "job")
            if what == "deleted":
                server.delete("BatchJob", "default", "ctr")
            elif "touched" not in document["metadata"]["labels"]:
                document["metadata"]["labels"]["touched"] = "yes"
                document["metadata"]["resourceVersion"] = "7"
                document["spec"]["suspend"] = what != "resumed"
            return sized_answer(job)

        running = operator(answer)
        running.turn()
        assert events(server) == []
        running.turn()
        expected = {"changed": ["Sized"], "resumed": ["NotSuspended"], "deleted": []}
        assert [reason for reason, _ in events(server)] == expected[what]

    def test_events_that_cannot_be_written_change_nothing(
        self, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "job", suspended("job"))
        server.fail("POST", "/events", 403)
        operator().turn()
        assert not is_suspended(now(server, "job"))

    def test_sizes_that_a_webhook_rewrites_are_told(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "job", suspended("job"))

        def odd(method: str, path: str, answer: Any) -> Any:
            if method == "PATCH":
                return {**answer, "spec": {**answer["spec"], "parallelism": 3}}
            return answer

        server.odd = odd
        operator().turn()
        assert [reason for reason, _ in events(server)] == ["Sized", "SizesRewritten"]

    @pytest.mark.parametrize("name", ["TF_CONFIG", "WORKER_HOSTS"])
    def test_host_lists_that_stay_are_refused(
        self, name: str, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        document = suspended("job")
        (container,) = document["spec"]["template"]["spec"]["containers"]
        container["env"] = [{"name": name, "value": "a:2222,b:2222"}]
        put(server, "job", document)
        operator().turn()
        assert f"{name} lists other hosts than the job now has." in events(server)[0][1]
        assert is_suspended(now(server, "job"))


class TestRecreation:
    """Where the cluster lets no size change, a job that allows it is deleted and created again."""

    @pytest.fixture(autouse=True)
    def _older(self, server: StandIn) -> None:
        server.changes_suspended = False

    @pytest.mark.parametrize("executor", ["jobset", "trainjob", "job"])
    def test_job_gets_its_sizes(
        self, executor: str, server: StandIn, api: KubeApi, operator: Callable[..., Operator]
    ) -> None:
        document = suspended(executor, **{labels.RECREATE: "yes"})
        document["metadata"]["ownerReferences"] = [{"kind": "CronJob", "name": "ctr", "uid": "u"}]
        put(server, executor, document)
        operator(recreates=True, copies_in="ours").turn()
        created = now(server, executor)
        assert workers_of(api, executor, created)[0].replicas == 4
        assert not is_suspended(created)
        assert created["metadata"]["ownerReferences"] == document["metadata"]["ownerReferences"]
        assert [reason for reason, _ in events(server)] == ["Sized"]

    def test_what_fails_brings_the_job_back(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))
        # The change, the dry run under another name, then the creation.
        server.fail("PATCH", "/trainjobs/ctr", 422, after=2, message="quota is exceeded")
        operator(recreates=True, copies_in="ours").turn()
        document = now(server, "trainjob")
        assert is_suspended(document)
        assert document["spec"]["trainer"]["numNodes"] == 2
        assert events(server)[-1][0] == "CannotSize"
        assert "was started again as it was before" in events(server)[-1][1]

    def test_what_fails_is_not_repeated_at_once(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))
        server.fail("PATCH", "/trainjobs/ctr", 422, after=2, message="quota is exceeded")
        running = operator(recreates=True)
        assert [running.turn(), running.turn()] == [1, 0]

    @pytest.mark.parametrize("status", [403, 409, 422])
    def test_other_refusals_delete_nothing(
        self, status: int, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))
        server.fail("PATCH", "/trainjobs/ctr", status, message="denied by policy")
        operator(recreates=True, copies_in="ours").turn()
        assert not any(asked.startswith("DELETE") for asked in server.asked)
        assert labels.RECREATE not in events(server)[0][1]

    def test_job_that_starts_meanwhile_is_not_deleted(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))

        def started(method: str, path: str, answer: Any) -> Any:
            if method == "GET" and path.endswith("/pods"):  # after the dry run, before the deletion
                document = now(server, "trainjob")
                document["spec"]["suspend"], document["metadata"]["resourceVersion"] = False, "8"
            return answer

        server.odd = started
        uid = now(server, "trainjob")["metadata"]["uid"]
        operator(recreates=True, copies_in="ours").turn()
        assert now(server, "trainjob")["metadata"]["uid"] == uid

    def test_operator_without_the_option_only_says_so(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))
        operator().turn()
        assert "An operator with --recreate creates jobs again" in events(server)[0][1]
        assert is_suspended(now(server, "trainjob"))

    def test_job_that_its_controller_changes_at_once_is_told(
        self, server: StandIn, operator: Callable[..., Operator]
    ) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))

        def controlled(method: str, path: str, answer: Any) -> Any:
            if method == "DELETE":
                server.fail("PATCH", "/trainjobs/ctr", 409, after=1)  # of the mark, after the creation
            return answer

        server.odd = controlled
        running = operator(recreates=True)
        assert [running.turn(), running.turn()] == [1, 0]
        assert [reason for reason, _ in events(server)] == ["Sized"]

    def test_copy_is_kept_until_the_job_exists_again(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))
        copies: list[bool] = []

        def note(method: str, path: str, answer: Any) -> Any:
            if method == "DELETE" and "trainjobs" in path:
                copies.append(any(kind == "Secret" for kind, _, _ in server.objects))
            return answer

        server.odd = note
        operator(recreates=True, copies_in="ours").turn()
        assert copies == [True]
        assert not any(kind == "Secret" for kind, _, _ in server.objects)

    def test_next_operator_creates_what_a_killed_one_had_deleted(
        self, server: StandIn, api: KubeApi, operator: Callable[..., Operator]
    ) -> None:
        put(server, "trainjob", suspended("trainjob", **{labels.RECREATE: "yes"}))
        killed = operator(recreates=True, copies_in="ours")

        def kill(method: str, path: str, answer: Any) -> Any:
            if method == "DELETE" and "trainjobs" in path:
                server.fail("GET", "/trainjobs/ctr", 403, times=99)  # nothing more is seen or done
                server.fail("PATCH", "/trainjobs/ctr", 403, times=99)
            return answer

        server.odd = kill
        killed.turn()
        assert not any(kind == "TrainJob" for kind, _, _ in server.objects)
        server.odd = lambda method, path, answer: answer
        server._faults.clear()
        operator(recreates=True, copies_in="ours").turn()
        document = now(server, "trainjob")
        assert workers_of(api, "trainjob", document)[0].replicas == 4
        assert document["metadata"]["annotations"][labels.SIZED] == document["metadata"]["uid"]
        assert not any(kind == "Secret" for kind, _, _ in server.objects)
        assert operator(recreates=True, copies_in="ours").turn() == 0


class TestDryRun:
    def test_it_only_writes_events(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "jobset", suspended("jobset"))
        running = operator(dry_run=True)
        assert [running.turn(), running.turn()] == [1, 0]
        ((reason, message),) = events(server)
        assert reason == "WouldSize"
        assert message.startswith("Nothing is changed. Sized to ")
        assert {asked.partition(" ")[0] for asked in server.asked} == {"GET", "POST"}
        assert is_suspended(now(server, "jobset"))

    def test_it_resumes_nothing_after_the_limit(
        self, server: StandIn, operator: Callable[..., Operator], clock: Clock
    ) -> None:
        put(server, "jobset", suspended("jobset", **{labels.JOB: "{"}))
        running = operator(dry_run=True, limit_s=5.0)
        for _ in range(4):
            running.turn()
            clock.now_s += 60
        assert is_suspended(now(server, "jobset"))


class TestBoundedWork:
    def test_answers_serve_jobs_of_one_description(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        for number in range(5):
            put(server, "job", suspended("job", f"ctr-{number}"))
        asked: list[Job] = []
        operator(lambda job: asked.append(job) or sized_answer(job)).turn()  # type: ignore[func-returns-value]
        assert len(asked) == 1

    def test_jobs_wait_for_the_rate(self, server: StandIn, operator: Callable[..., Operator], clock: Clock) -> None:
        for number in range(6):
            put(server, "job", suspended("job", f"ctr-{number}"))
        assert operator(jobs_per_s=2.0).turn() == 6
        assert clock.now_s == pytest.approx(3.0)

    def test_namespaces_limit_what_is_seen(self, server: StandIn, operator: Callable[..., Operator]) -> None:
        put(server, "job", suspended("job"))
        assert operator(namespaces=("team-a",)).turn() == 0
        assert operator(namespaces=("team-a", "default")).turn() == 1

    def test_lost_lease_ends_a_turn(self, server: StandIn, api: KubeApi, clock: Clock) -> None:
        put(server, "job", suspended("job"))

        def lost() -> None:
            raise InputError("The lease was lost.")

        with pytest.raises(InputError, match="lease was lost"):
            Operator(api, sized_answer, clock=clock, sleep=clock.sleep, check=lost).turn()
        assert is_suspended(now(server, "job"))
