"""Every answer of an API server is used, or refused in one sentence."""

from __future__ import annotations

import copy
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sizewright.errors import EngineError, SizewrightError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes import cluster_executor
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Job, Plan
from tests.helpers.stand_in import StandIn, stand_in

pytest.importorskip("kubernetes")

ODD = (None, [], {}, "", "x", -1, 1.5, True, [None], [[]], {"x": None}, "9" * 400, {"name": {}})
TEXTS = ("", "null", "[]", "7", "<html>Sign in</html>", "{", "[" * 5_000, '{"kind": 3}', '{"kind": "List", "items": 4}')
STATUS = {
    "phase": "Running", "state": {"phase": "Running"}, "conditions": [{"type": "Running", "status": "True"}],
    "trainerStatus": {"progressPercentage": 3, "metrics": [{"name": "samples", "value": "7"}]},
}  # fmt: skip
ONE, TWO = (Allocation.of(n, 1, 1.0, 1.0, 512, GIB, GIB) for n in (1, 2))
LAUNCH = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=ONE, reason="first")
ADJUST = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=ONE, target=TWO, reason="more")


WITHOUT_PS, TRAINJOB_WITH_PS = ("trainjob", "pytorchjob"), "trainjob with PS"


def plans_for(name: str) -> tuple[Plan, Plan]:
    """Return a launch and a change; some jobs have no PS."""
    if name not in WITHOUT_PS:
        return LAUNCH, ADJUST
    one, two = (each.model_copy(update={"ps": ()}) for each in (ONE, TWO))
    return LAUNCH.model_copy(update={"target": one}), ADJUST.model_copy(update={"current": one, "target": two})


def executor_of(server: StandIn, folder: Path, name: str) -> ClusterExecutor:
    from sizewright.executors.kubernetes.api import KubeApi

    api = KubeApi(kubeconfig=server.kubeconfig(folder), sleep=lambda _: None)
    executor = get_executor(name.partition(" ")[0], api=api)
    assert isinstance(executor, ClusterExecutor)
    return executor


def somewhere(answer: Any, rng: random.Random) -> Any:
    """Return the answer with one value replaced, at any depth."""
    answer = copy.deepcopy(answer)
    at, path = answer, []
    while isinstance(at, dict | list) and at and (not path or rng.random() < 0.85):
        key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        path.append((at, key))
        at = at[key]
    if not path:
        return rng.choice(ODD)
    holder, key = path[-1]
    if rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = rng.choice(ODD)
    return answer


def with_status(answer: Any) -> Any:
    """Return the answer with the status that operators give to objects that have none."""
    if isinstance(answer, dict) and "spec" in answer and "status" not in answer:
        return answer | {"status": copy.deepcopy(STATUS)}
    return answer


@pytest.mark.parametrize(
    "name", ["jobset", "trainjob", TRAINJOB_WITH_PS, "kubeflow", "pytorchjob", "kuberay", "volcano", "dlrover"]
)
@pytest.mark.parametrize("seed", range(12))
def test_answer_with_an_odd_value_is_used_or_refused(
    tmp_path: Path, name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for timeout in ("_DELETE_TIMEOUT_S", "_RESTORE_TIMEOUT_S"):
        monkeypatch.setattr(cluster_executor, timeout, 1.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rng = random.Random(seed)
    with stand_in() as server:
        executor = executor_of(server, tmp_path, name)
        launch, adjust = plans_for(name)
        handle = executor.launch(launch)
        server.odd = lambda _, __, answer: answer if isinstance(answer, str) else somewhere(with_status(answer), rng)
        for call in (
            lambda: executor.find(launch), lambda: executor.observe(handle), lambda: executor.wait(handle, 0.0),
            lambda: executor.difference(adjust), lambda: executor.adjust(handle, adjust),
            lambda: executor.launch(launch), lambda: executor_of(server, tmp_path, name).observe(handle),
            lambda: executor.stop(handle),
        ):  # fmt: skip
            with suppress(SizewrightError):
                call()


@pytest.mark.parametrize("text", TEXTS)
def test_answer_that_is_not_of_an_api_server_is_refused(tmp_path: Path, text: str) -> None:
    with stand_in() as server:
        executor = executor_of(server, tmp_path, "kubeflow")
        handle = executor.launch(LAUNCH)
        server.odd = lambda _, path, answer: answer if path.endswith("v1") else text
        with pytest.raises(
            EngineError, match="The API server's answer to the request to read TFJob default/ctr cannot"
        ):
            executor.observe(handle)


CONDITIONS = [
    [{"status": "True"}],
    [{"type": ["Succeeded"], "status": "True"}],
    [{"type": "x", "status": True}],
    ["x"],
    "x",
]
ODD_STATUSES = [
    *((name, {"conditions": conditions}) for name in ("jobset", "trainjob", "kubeflow") for conditions in CONDITIONS),
    ("trainjob", {"trainerStatus": "x"}), ("trainjob", {"trainerStatus": {"progressPercentage": "half"}}),
    ("trainjob", {"trainerStatus": {"metrics": [{"name": "samples"}]}}),
    ("kuberay", "x"), ("volcano", {"state": "Completed"}), ("volcano", {"state": {"phase": ["Completed"]}}),
    ("dlrover", {"phase": {"x": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status"), ODD_STATUSES)
def test_status_of_another_form_is_refused(tmp_path: Path, name: str, status: Any) -> None:
    with stand_in() as server:
        executor = executor_of(server, tmp_path, name)
        handle = executor.launch(plans_for(name)[0])
        server.set_status(executor.kind, "ctr", status)
        with pytest.raises(EngineError, match=r"cannot be used: status"):
            executor.wait(handle, 0.0)


@pytest.mark.parametrize("key", ["apiVersion", "spec", "metadata.namespace"])
def test_object_that_lacks_a_field_that_is_applied_is_refused(tmp_path: Path, key: str) -> None:
    def without_key(answer: Any) -> Any:
        answer = copy.deepcopy(answer)
        holder = answer["metadata"] if "." in key else answer
        del holder[key.rpartition(".")[2]]
        return answer

    with stand_in() as server:
        executor = executor_of(server, tmp_path, "kuberay")
        handle = executor.launch(LAUNCH)
        server.odd = lambda _, path, answer: without_key(answer) if path.endswith("/ctr") else answer
        with pytest.raises(EngineError, match=f"cannot be used: {key}"):
            executor.adjust(handle, ADJUST)


def test_pods_without_uid_and_objects_without_a_time_are_read(tmp_path: Path) -> None:
    def without(answer: Any) -> Any:
        answer = copy.deepcopy(answer)
        for each in answer.get("items", [answer]) if isinstance(answer, dict) else []:
            for key in ("uid", "creationTimestamp"):
                each.get("metadata", {})[key] = "" if key == "uid" else None
        return answer

    with stand_in() as server:
        executor = executor_of(server, tmp_path, "dlrover")
        handle = executor.launch(LAUNCH)
        executor.adjust(handle, ADJUST)
        server.odd = lambda _, __, answer: without(answer)
        assert len(executor.observe(handle).replicas) == 3
        assert executor.difference(ADJUST) == ""
