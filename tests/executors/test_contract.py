"""The contract that every executor keeps, over those that come with Sizewright."""

from __future__ import annotations

import pytest

from sizewright.executors.dlrover import DlroverExecutor
from sizewright.executors.file import FileExecutor
from sizewright.executors.kubeflow import KubeflowExecutor
from sizewright.executors.kuberay import KuberayExecutor
from sizewright.executors.local import LocalExecutor
from sizewright.executors.volcano import VolcanoExecutor
from sizewright.spec import Allocation, Capabilities, Data, Executor, Job, Model, Plan, Tables
from sizewright.testing import ExecutorContract, FakeExecutor

JOB = Job(
    name="ctr",
    model=Model(
        dense_features=5, tables=Tables(count=4, rows=(50, 200, 30, 500), dim=4), bottom_mlp=(8,), top_mlp=(8,)
    ),
    data=Data(zipf=1.0),
)
FROM, TO = Allocation.of(1, 1, 0.4, 0.2, 64), Allocation.of(2, 2, 0.3, 0.2, 64)


class Contract(ExecutorContract):
    @pytest.fixture
    def launch_plan(self) -> Plan:
        return Plan(id="p-1", kind="launch", job=JOB, target=FROM, reason="best")

    @pytest.fixture
    def adjust_plan(self) -> Plan:
        return Plan(id="p-2", kind="adjust", job=JOB, current=FROM, target=TO, reason="more samples")


class TestFake(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return FakeExecutor()

    def sleep(self, executor: Executor, seconds: float) -> None:
        assert isinstance(executor, FakeExecutor)
        executor.clock.sleep(seconds)


class TestFakeThatOnlyRuns(TestFake):
    @pytest.fixture
    def executor(self) -> Executor:
        return FakeExecutor(capabilities=Capabilities(launch=True, observe=True, stop=True))


class TestDlrover(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return DlroverExecutor()


class TestDlroverOfOld(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return DlroverExecutor(version="0.4")


class TestKubeflow(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return KubeflowExecutor()


class TestVolcano(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return VolcanoExecutor()


class TestKuberay(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return KuberayExecutor()


class TestFile(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return FileExecutor()


class TestFileAsJson(Contract):
    renders = "json"

    @pytest.fixture
    def executor(self) -> Executor:
        return FileExecutor(format="json")


class TestLocal(Contract):
    """Trains for real: a Ray is started for most tests."""

    timeout_s = 120.0

    @pytest.fixture
    def executor(self) -> Executor:
        pytest.importorskip("ray")
        return LocalExecutor()
