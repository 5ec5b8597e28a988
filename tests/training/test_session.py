from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from sizewright.errors import EngineError, JobError, LimitError, ReplicaDiedError, TrialTimeoutError
from sizewright.models.memory.memory_model import row_bytes
from sizewright.spec import Allocation, Group, Job, Metrics, Training
from sizewright.testing.audit import AuditProgram, audit_job
from sizewright.training.host.cgroups import PERIOD_US
from sizewright.training.ps.snapshot_files import ARRAYS, SnapshotInfo, snapshots, write_snapshot
from sizewright.training.ray.engine import import_ray
from sizewright.training.session import Session
from tests.helpers.training_parts import small_job

ROWS = (50, 200, 30, 500)
BIG_ROWS = 1_200_000
CORES = os.cpu_count() or 1
TWO_BY_TWO = Allocation(
    worker=(Group(replicas=1, cpu=0.4, memory_bytes=0), Group(replicas=1, cpu=0.3, memory_bytes=0)),
    ps=(Group(replicas=2, cpu=0.2, memory_bytes=0),),
    batch_size=32,
)
ONE_BY_ONE = Allocation.of(1, 1, 0.5, 0.25, 64)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(small_job(rows=ROWS, dim=(4, 8, 4, 12), pooling=(1, 3, 2, 1)), timeout_s=90) as session:
        session.load_ahead(workers=2, ps=2)
        yield session


def wait_for_more(session: Session, before: Metrics, steps: int = 3) -> Metrics:
    """A later observation, in which every worker has taken more steps."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        after = session.observe()
        pairs = zip(before.of("worker"), after.of("worker"), strict=True)
        if all(new.steps >= old.steps + steps for old, new in pairs):
            return after
        time.sleep(0.05)
    raise AssertionError("the workers took no steps")


def quotas(session: Session) -> dict[str, str]:
    """Quota and period of each replica, as the kernel's files tell."""
    tree = session._node_agent.tree
    if tree is None:
        pytest.skip("control groups cannot be created on this host")
    read = {}
    for name in session.pids():
        group = tree.child(name)
        folder = group.folders["cpu"]
        files = ["cpu.max"] if group.version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        read[name] = " ".join((folder / file).read_text().strip() for file in files)
    return read


# These two come first: each has a Ray of its own, and a process has one at a time.


def job_with_big_tables() -> Job:
    return small_job(rows=(BIG_ROWS,), dim=32, optimizer="adam")


def leavings(session: Session) -> list[Path]:
    """Control groups and folders of this session that there are."""
    groups = [*session._node_agent.tree.folders.values()] if session._node_agent.tree else []
    return [*groups, *Path(tempfile.gettempdir()).glob(f"szw-{os.getpid()}-*")]


@pytest.mark.long
def test_stop_leaves_nothing_even_after_an_out_of_memory() -> None:
    """A PS is given far less than its tables need; the session says so, works again, and then goes without a trace."""
    assert not import_ray().is_initialized()
    ours = {process.pid for process in psutil.Process().children(recursive=True)}
    with Session(job_with_big_tables(), timeout_s=90) as session:
        if session._node_agent.tree is None:
            pytest.skip("control groups cannot be created on this host")
        remains = leavings(session)
        assert all(path.exists() for path in remains)
        assert any(path.name.startswith("szw-") for path in remains)
        tight = Allocation.of(1, 1, 0.5, 0.5, 32, ps_memory_bytes=400 << 20)
        with pytest.raises(ReplicaDiedError, match=r"ps-0 was ended for using more memory.*Raise its memory") as caught:
            session.scale(tight)
        assert caught.value.oom
        session.discard()
        session.scale(tight, table_scale=0.01)
        pids = set(session.pids().values())
        wait_for_more(session, session.observe())
        session.stop()
        started = {p.pid for p in psutil.Process().children(recursive=True) if p.status() != "zombie"} - ours
        assert not started
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert not any(path.exists() for path in remains)
        assert not import_ray().is_initialized()
        session.stop()  # twice is fine


@pytest.mark.long
def test_synchronous_job_scales_without_delay() -> None:
    """Halting must not wait for a round that a worker which has halted already will never join."""
    job = small_job(rows=ROWS, sync="sync", dense_sync_steps=2)
    with Session(job, timeout_s=60) as session:
        session.scale(TWO_BY_TWO)
        first = session.observe()
        later = wait_for_more(session, first, steps=300)  # the loss falls by a tenth; after 50 it may not
        session.pause()
        one, other = session.observe().of("worker")
        assert abs(one.steps - other.steps) <= 2, "they exchange every two steps"
        early, late = first.of("worker")[0], later.of("worker")[0]
        assert (late.loss - early.loss) / (late.steps - early.steps) < early.loss / early.steps
        session._live.pool.timeout_s = 20.0  # a halt that waits in vain takes 30 s
        for _ in range(2):
            session.scale(TWO_BY_TWO)


def test_every_replica_is_limited_to_its_cores(session: Session) -> None:
    session.scale(TWO_BY_TWO)
    cores = {"ps-0": 0.2, "ps-1": 0.2, "worker-0": 0.4, "worker-1": 0.3}
    assert quotas(session) == {name: f"{round(cpu * PERIOD_US)} {PERIOD_US}" for name, cpu in cores.items()}
    assert {r.limited_by for r in session.observe().replicas} == {"cgroup"}
    assert {r.cfs_period_ms for r in session.observe().replicas} == {PERIOD_US / 1000}
    assert session.allocation == TWO_BY_TWO
    tree = session._node_agent.tree
    assert tree is not None
    for name, pid in session.pids().items():
        assert pid in tree.child(name).pids()
        assert pid not in tree.child("engine").pids()


def test_counters_only_grow(session: Session) -> None:
    session.scale(TWO_BY_TWO)
    before = session.observe()
    after = wait_for_more(session, before)
    assert [(r.role, r.index) for r in after.replicas] == [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    assert after.engine_cpu_s >= before.engine_cpu_s > 0
    for old, new in zip(before.replicas, after.replicas, strict=True):
        assert new.at_s > old.at_s
        assert new.cpu_s > old.cpu_s
        assert new.throttled_s >= old.throttled_s
        assert new.memory_peak_bytes > 10 << 20
    for old, new in zip(before.of("worker"), after.of("worker"), strict=True):
        assert new.samples == 32 * new.steps
        for name in ("data_s", "pull_s", "compute_s", "push_s", "unique_rows", "network_bytes", "loss"):
            assert getattr(new, name) > getattr(old, name), name
    for old, new in zip(before.of("ps"), after.of("ps"), strict=True):
        assert new.exchanges > old.exchanges
        assert new.busy_s > old.busy_s
        assert new.lookups > old.lookups


def test_scaling_reuses_existing_processes(session: Session) -> None:
    session.scale(TWO_BY_TWO)
    both = session.pids()
    session.scale(ONE_BY_ONE)
    assert session.pids() == {name: both[name] for name in ("ps-0", "worker-0")}
    assert len(session.observe().replicas) == 2
    first = wait_for_more(session, session.observe()).of("worker")[0]
    later = wait_for_more(session, session.observe(), steps=100).of("worker")[0]
    assert later.samples - first.samples > 60 * (later.steps - first.steps)  # the last batch of a lease is smaller
    session.scale(TWO_BY_TWO)
    assert session.pids() == both


def test_pause_stops_training_and_keeps_the_processes(session: Session) -> None:
    session.scale(ONE_BY_ONE)
    pids = session.pids()
    session.pause()
    assert session.allocation is None
    assert all(replica.limited_by == "none" for replica in session.observe().replicas)
    assert [worker.steps for worker in session.observe().of("worker")] == [0]
    session.pause()
    session.scale(ONE_BY_ONE)
    assert session.pids() == pids
    wait_for_more(session, session.observe())


@pytest.mark.parametrize(("table_scale", "servers"), [(1.0, 1), (0.5, 2), (0.1, 1), (1.0, 2)])
def test_tables_are_filled_to_their_scale_and_no_further(session: Session, table_scale: float, servers: int) -> None:
    session.scale(Allocation.of(1, servers, 0.5, 0.25, 64), table_scale=table_scale)
    rows = session.job.model.tables.sizes(table_scale)
    later = wait_for_more(session, session.observe())
    assert sum(ps.rows for ps in later.of("ps")) == sum(rows)
    assert sum(ps.embedding_bytes for ps in later.of("ps")) == np.dot(rows, row_bytes(session.job))
    assert all(ps.rows > 0 for ps in later.of("ps"))


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (Allocation.of(1, 1, float(CORES), 0.5, 32), "cores and this host has"),
        (Allocation.of(0, 1, 0.5, 0.5, 32), "at least one worker and one PS"),
        (Allocation.of(1, 0, 0.5, 0.5, 32), "at least one worker and one PS"),
    ],
)
def test_allocation_beyond_the_host_is_refused_and_training_continues(
    session: Session, allocation: Allocation, message: str
) -> None:
    session.scale(ONE_BY_ONE)
    with pytest.raises(EngineError, match=message):
        session.scale(allocation)
    assert session.allocation == ONE_BY_ONE
    wait_for_more(session, session.observe())


def test_cores_that_cannot_be_limited_are_refused(session: Session) -> None:
    session.scale(ONE_BY_ONE)
    before = session.allocation
    with pytest.raises(LimitError, match=r"0\.05 cores"):
        session.scale(Allocation.of(1, 1, 0.5, 0.05, 32))
    assert session.allocation == before


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_killed_replica_is_reported_and_can_be_replaced(session: Session, role: str) -> None:
    session.scale(TWO_BY_TWO)
    killed = session.pids()
    os.kill(next(pid for name, pid in killed.items() if name.startswith(role)), signal.SIGKILL)
    with pytest.raises(ReplicaDiedError) as caught:
        wait_for_more(session, session.observe(), steps=10**9)
    assert not caught.value.oom
    session.discard()
    assert not any(psutil.pid_exists(pid) for pid in killed.values())
    session.scale(ONE_BY_ONE)
    assert set(session.pids().values()).isdisjoint(killed.values())
    wait_for_more(session, session.observe())


def test_job_continues_after_discard_without_overwriting_another_run(tmp_path: Path) -> None:
    job = audit_job(20_000)
    other = SnapshotInfo(audit_job(77).hash, 0, [])
    arrays = {name: np.zeros((0,) if name == "keys" else (0, 1), "i8" if name == "keys" else "f4") for name in ARRAYS}
    write_snapshot(tmp_path / "theirs", other, arrays, lambda _: None)
    with Session(job, samples=20_000, program=AuditProgram(step_s=0.01), timeout_s=90) as session:
        session.scale(ONE_BY_ONE)
        with pytest.raises(JobError, match="snapshots of an earlier run"):
            session.checkpoint(tmp_path / "theirs")
        for _ in range(3):
            session.checkpoint(tmp_path / "mine")
        session.discard()
        session.scale(ONE_BY_ONE)
        assert session.wait(60)
        assert session.outcome().samples == 20_000
    assert len(snapshots(tmp_path / "theirs")) == 1
    assert len(snapshots(tmp_path / "mine")) == 2


def test_stalled_job_times_out(session: Session) -> None:
    session.scale(ONE_BY_ONE)
    pid = next(pid for name, pid in session.pids().items() if name.startswith("worker"))
    pool = session._live.pool
    pool.timeout_s, default_s = 2.0, pool.timeout_s
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TrialTimeoutError, match="did not answer within 2 s"):
            session.observe()
    finally:
        os.kill(pid, signal.SIGCONT)
        pool.timeout_s = default_s
    wait_for_more(session, session.observe())


@pytest.mark.parametrize("training", [Training(device="cuda"), Training(embedding_device="cuda")])
def test_gpu_job_without_a_gpu_is_refused(training: Training) -> None:
    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    with pytest.raises(EngineError, match=r"needs a GPU.*finds none on this host"):
        Session(Job(training=training))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this host has no GPU")
@pytest.mark.parametrize("embedding_device", ["cpu", "cuda"])
def test_worker_computes_on_the_gpu_and_reports_its_peak_memory(embedding_device: str) -> None:
    job = small_job(rows=ROWS)
    training = job.training.model_copy(update={"device": "cuda", "embedding_device": embedding_device})
    with Session(job.model_copy(update={"training": training})) as session:
        session.scale(ONE_BY_ONE)
        later = wait_for_more(session, session.observe(), steps=20)
        assert later.of("worker")[0].device_memory_bytes > 0
        assert (later.of("ps")[0].device_memory_bytes > 0) == (embedding_device == "cuda")
