"""Jobs of a queue that run together on one cluster."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import sizewright as sw
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import EngineError, InputError
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.runtime.tuning import Tuning
from sizewright.spec import Allocation
from sizewright.testing import FakeExecutor
from tests.helpers.processes import groups_of

CLUSTER = {"hosts": [{"kind": "host", "cpu": 4, "memory": "64Gi"}]}
QUICK = Tuning(turn_s=0.02, scaling=Scaling(warm_up_s=0.1, cooldown_s=0.1))


class RealTime:
    """The time of this host."""

    def __call__(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def executor() -> FakeExecutor:
    return FakeExecutor(clock=RealTime(), throughput=lambda a: 1e6 * a.replicas("worker"))


def queued(name: str, **fields: Any) -> dict[str, Any]:
    job = {"name": name, "training": {"samples": 1_000_000}}
    table = [{"workers": n, "worker_cpu": 0.5, "ps": 1, "ps_cpu": 0.5, "throughput": 1e6 * n} for n in (1, 2, 4)]
    return {"job": job, "table": table} | fields


def test_all_jobs_end_and_are_kept_in_the_history(tmp_path: Path) -> None:
    store = tmp_path / "t.db"
    decisions = list[str]()
    outcomes = sw.run_queue(
        CLUSTER, [queued("one"), queued("two")], executor=executor, store=store, how=QUICK,
        decided=lambda name, decision: decisions.append(name),
    )  # fmt: skip
    assert {name: outcome.status for name, outcome in outcomes.items()} == {"one": "finished", "two": "finished"}
    with TrialStore(store) as opened:
        assert {run.name for run in opened.history.finished()} == {"one", "two"}
    assert set(decisions) <= {"one", "two"}


def test_a_job_that_the_cluster_has_no_room_for_is_told() -> None:
    small = {"hosts": [{"kind": "host", "cpu": 0.7, "memory": "64Gi"}]}
    outcomes = sw.run_queue(small, [queued("one")], executor=executor, record=False, how=QUICK)
    assert outcomes["one"].status == "failed"
    assert outcomes["one"].message.startswith("It cannot run on this cluster: ")


def test_a_job_that_cannot_be_launched_does_not_end_the_others() -> None:
    fakes = [executor(), executor()]
    fakes[0].fail_next("launch", EngineError("There is no host.", "Add one."))
    left = iter(fakes)
    outcomes = sw.run_queue(
        CLUSTER, [queued("one"), queued("two")], executor=lambda: next(left), record=False, how=QUICK
    )
    assert [outcomes[name].status for name in ("one", "two")] == ["failed", "finished"]


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([{"job": {"name": "one", "training": {"samples": 10}, "command": {"run": "x"}}}], "one cannot be run"),
        ([queued("one", current=Allocation.of(1, 1, 0.5, 0.5, 512))], "one runs already, elsewhere"),
    ],
)
def test_jobs_that_cannot_be_run_are_refused(jobs: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sw.run_queue(CLUSTER, jobs, executor=executor, record=False, how=QUICK)


@pytest.mark.long
def test_two_jobs_train_on_this_host_and_the_longer_one_gets_what_the_other_frees(
    example: Path, tmp_path: Path
) -> None:
    description = yaml.safe_load(example.read_text())
    description["bounds"] = {
        "worker": {"replicas": [1, 3], "cpu": [0.2, 0.4], "memory": ["256Mi", "4Gi"]},
        "ps": {"replicas": [1, 2], "cpu": [0.1, 0.2], "memory": ["128Mi", "4Gi"]},
    }
    jobs = [
        {"job": description | {"name": name, "training": description["training"] | {"samples": samples}}}
        for name, samples in (("short", 150_000), ("long", 900_000))
    ]
    cluster = {"hosts": [{"kind": "host", "cpu": 1.2, "memory": "16Gi"}]}
    changes = list[str]()
    outcomes = sw.run_queue(
        cluster, jobs, store=tmp_path / "t.db", every_s=20.0,
        decided=lambda name, decision: changes.append(name) if decision.applied else None,
    )  # fmt: skip
    assert {name: outcome.status for name, outcome in outcomes.items()} == {"short": "finished", "long": "finished"}
    assert outcomes["short"].duration_s < outcomes["long"].duration_s
    assert "long" in changes
    assert groups_of(os.getpid()) == []
