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
from sizewright.spec import Allocation, Job, Plan
from sizewright.spec.units import GIB
from tests.helpers.stand_in import StandIn, stand_in

pytest.importorskip("kubernetes")

ODD = (None, [], {}, "", "x", -1, 1.5, True, [None], [[]], {"x": None}, "9" * 400, {"name": {}})
TEXTS = ("", "null", "[]", "7", "<html>Sign in</html>", "{", "[" * 5_000, '{"kind": 3}', '{"kind": "List", "items": 4}')
ONE, TWO = (Allocation.of(n, 1, 1.0, 1.0, 512, GIB, GIB) for n in (1, 2))
LAUNCH = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=ONE, reason="first")
ADJUST = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=ONE, target=TWO, reason="more")


def executor_of(server: StandIn, folder: Path, name: str) -> ClusterExecutor:
    from sizewright.executors.kubernetes.api import KubeApi

    api = KubeApi(kubeconfig=server.kubeconfig(folder), sleep=lambda _: None)
    executor = get_executor(name, api=api)
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
    holder[key] = rng.choice(ODD)
    return answer


@pytest.mark.parametrize("name", ["kubeflow", "kuberay", "volcano", "dlrover"])
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
        handle = executor.launch(LAUNCH)
        server.odd = lambda _, __, answer: answer if isinstance(answer, str) else somewhere(answer, rng)
        for call in (
            lambda: executor.find(LAUNCH), lambda: executor.observe(handle), lambda: executor.wait(handle, 0.0),
            lambda: executor.difference(ADJUST), lambda: executor.adjust(handle, ADJUST),
            lambda: executor.launch(LAUNCH), lambda: executor_of(server, tmp_path, name).observe(handle),
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
