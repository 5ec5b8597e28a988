from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from sizewright.errors import InputError
from sizewright.executors import executor_names, get_executor
from sizewright.executors.session.ray_cluster import RayExecutor
from sizewright.plugins import Plugins
from sizewright.testing import FakeExecutor


def register(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    points = {"mine": EntryPoint("mine", value, "sizewright.executors")}
    monkeypatch.setattr(Plugins, "_registered", lambda self: points)


def test_executors_are_found_by_name() -> None:
    assert {"dlrover", "local", "ray"} <= set(executor_names())
    for name in ("dlrover", "local", "ray"):
        assert get_executor(name).name == name


def test_unknown_executor_error_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError,
        match=r"no executor 'nobody'\. Known: dlrover, file, jobset, kubeflow, kuberay, local, pytorchjob, ray, slurm, "
        r"trainjob, volcano\.",
    ):
        get_executor("nobody")
    with pytest.raises(InputError, match="did you mean 'dlrover'"):
        get_executor("dlrovr")


def test_known_options_are_passed_on_and_unknown_ones_refused() -> None:
    executor = get_executor("ray", address="h:1")
    assert isinstance(executor, RayExecutor)
    assert 'address="h:1"' in executor._constructor_call()
    with pytest.raises(InputError, match=r"options adress\. It takes: address, clock, folder"):
        get_executor("ray", adress="h:1")
    with pytest.raises(InputError, match=r"It takes: api, base, clock, context, kubeconfig, roles, version\."):
        get_executor("dlrover", address="h:1")


def test_plugins_register_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "sizewright.testing.fake_executor:FakeExecutor")
    assert executor_names() == [
        "dlrover",
        "file",
        "jobset",
        "kubeflow",
        "kuberay",
        "local",
        "mine",
        "pytorchjob",
        "ray",
        "slurm",
        "trainjob",
        "volcano",
    ]
    executor = get_executor("mine", samples=5)
    assert isinstance(executor, FakeExecutor)


def test_broken_plugin_raises_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "no_such_package:Executor")
    with pytest.raises(InputError, match="executor 'mine' cannot be loaded from no_such_package:Executor"):
        get_executor("mine")
