"""The contract that every executor keeps, over those that come with Sizewright."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from sizewright.executors import get_executor
from sizewright.executors.file import FileExecutor
from sizewright.executors.session.local import LocalExecutor
from sizewright.spec import Allocation, Capabilities, Data, Executor, Job, Model, Plan, Tables
from sizewright.testing import ExecutorContract, FakeExecutor
from tests.helpers.stand_in import stand_in

JOB = Job(
    name="ctr",
    model=Model(
        dense_features=5, tables=Tables(count=4, rows=(50, 200, 30, 500), dim=4), bottom_mlp=(8,), top_mlp=(8,)
    ),
    data=Data(zipf=1.0),
)
GIB = 1 << 30
IN_PODS, MORE_PODS = (Allocation.of(n, 1, 0.4, 0.2, 64, GIB, GIB) for n in (1, 2))
FROM, TO = Allocation.of(1, 1, 0.4, 0.2, 64), Allocation.of(2, 2, 0.3, 0.2, 64)


def without_ps(allocation: Allocation) -> Allocation:
    return allocation.model_copy(update={"ps": ()})


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


class ClusterContract(Contract):
    """Over HTTP, against a stand-in for the cluster and its operators."""

    timeout_s, poll_s = 20.0, 0.05
    name: ClassVar[str]
    options: ClassVar[dict[str, str]] = {}

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[Executor]:
        pytest.importorskip("kubernetes")
        with stand_in() as server:
            yield get_executor(self.name, kubeconfig=server.kubeconfig(tmp_path), **self.options)

    @pytest.fixture
    def launch_plan(self) -> Plan:
        return Plan(id="p-1", kind="launch", job=JOB, target=IN_PODS, reason="best")

    @pytest.fixture
    def adjust_plan(self) -> Plan:
        return Plan(id="p-2", kind="adjust", job=JOB, current=IN_PODS, target=MORE_PODS, reason="more samples")


class TestDlrover(ClusterContract):
    name = "dlrover"


class TestDlroverOfOld(ClusterContract):
    name, options = "dlrover", {"version": "0.4"}


class TestKubeflow(ClusterContract):
    name = "kubeflow"


class TestJobset(ClusterContract):
    name = "jobset"


class WithoutPs(ClusterContract):
    """The platform's jobs have no PS."""

    @pytest.fixture
    def launch_plan(self) -> Plan:
        return Plan(id="p-1", kind="launch", job=JOB, target=without_ps(IN_PODS), reason="best")

    @pytest.fixture
    def adjust_plan(self) -> Plan:
        before, after = map(without_ps, (IN_PODS, MORE_PODS))
        return Plan(id="p-2", kind="adjust", job=JOB, current=before, target=after, reason="more samples")


class TestTrainjob(WithoutPs):
    name = "trainjob"


class TestTrainjobWithPs(ClusterContract):
    name = "trainjob"


class TestPytorchjob(WithoutPs):
    name = "pytorchjob"


class TestVolcano(ClusterContract):
    name = "volcano"


class TestKuberay(ClusterContract):
    name = "kuberay"


class TestFile(Contract):
    @pytest.fixture
    def executor(self) -> Executor:
        return FileExecutor()


class TestFileAsJson(Contract):
    renders = "json"

    @pytest.fixture
    def executor(self) -> Executor:
        return FileExecutor(format="json")


@pytest.mark.usefixtures("one_ray")
class TestLocal(Contract):
    """Trains for real."""

    timeout_s = 120.0

    @pytest.fixture
    def executor(self) -> Executor:
        return LocalExecutor()
