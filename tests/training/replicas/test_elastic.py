"""A job trains while its replicas change, and the servers count its updates."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from sizewright.datasets.clicks.batch import Batch
from sizewright.errors import EngineError, JobError, SizewrightError, TrialTimeoutError
from sizewright.spec import Allocation, Group, Job, Outcome
from sizewright.testing.audit import AuditProgram, audit_job, read_counts
from sizewright.training.replicas import recovery
from sizewright.training.session import Session
from tests.helpers.training_parts import small_job

BATCHES = (16, 32, 48)
SMALL = Allocation.of(1, 1, 0.3, 0.2, 32)
pytestmark = pytest.mark.usefixtures("one_ray")


def session(samples: int, *, step_s: float = 0.01, **options: object) -> Session:
    defaults = {"reserve": {"worker": 1, "ps": 1}, "timeout_s": 90.0, "program": AuditProgram(step_s=step_s)}
    options = defaults | options
    job = options.pop("job", None) or audit_job(samples)
    assert isinstance(job, Job)
    return Session(job, samples=samples, **options)  # type: ignore[arg-type]


def slow_until(gate: Path) -> AuditProgram:
    """Return a program that trains few samples until the file exists, so that a slow host misses nothing."""

    class Slow(AuditProgram):  # local, so that it is sent to the workers by value
        def samples(self, job: Job, scale: float) -> Any:
            source = super().samples(job, scale)

            class Gated:
                def read(self, start: int, count: int) -> Batch:
                    if not gate.exists():
                        time.sleep(0.2)
                    return source.read(start, count)

            return Gated()

    return Slow(step_s=0.01)


def some_allocation(rng: random.Random) -> Allocation:
    workers, ps = rng.randint(1, 3), rng.randint(1, 3)
    unequal = (Group(replicas=1, cpu=0.2, memory_bytes=0), Group(replicas=workers, cpu=0.25, memory_bytes=0))
    equal = (Group(replicas=workers, cpu=0.25, memory_bytes=0),)
    servers = (Group(replicas=ps, cpu=rng.choice((0.1, 0.15)), memory_bytes=0),)
    return Allocation(worker=rng.choice((equal, unequal)), ps=servers, batch_size=rng.choice(BATCHES))


def change(running: Session, rng: random.Random) -> None:
    what = rng.random()
    if what < 0.25:
        running.replace(rng.choice(list(running.pids())))
    elif what < 0.5 and running.allocation and running.allocation.replicas("ps") > 1:
        running.rebalance()
    else:
        running.scale(some_allocation(rng))


def wait_for_more(running: Session, samples: float) -> None:
    """Wait until more samples are trained than these."""
    while running.observe().samples_trained <= samples:
        assert not running.wait(0.2)


def counts(running: Session, folder: Path, samples: int) -> tuple[np.ndarray, float]:
    running.checkpoint(folder)
    return read_counts(folder, samples)


@pytest.mark.parametrize(("seed", "changes"), [(1, 4), pytest.param(2, 12, marks=pytest.mark.long)])
def test_random_changes_train_every_sample_once(seed: int, changes: int, tmp_path: Path) -> None:
    """Rows and the dense weight read what they would after a run without a change: a lost or doubled push shows."""
    samples, rng = 2_000_000, random.Random(seed)
    with session(samples) as running:
        running.scale(Allocation.of(2, 1, 0.3, 0.2, 32))
        for _ in range(changes):
            assert not running.wait(rng.random() * 0.4)
            change(running, rng)
        updates, dense_count = counts(running, tmp_path, samples)
        outcome = running.outcome()
    assert set(np.unique(updates)) == {0.0, 1.0}
    assert updates.sum() == dense_count <= outcome.samples
    assert (outcome.status, outcome.samples_repeated, len(outcome.changes)) == ("running", 0, changes + 1)


@pytest.mark.long
def test_last_sample_is_trained_once(tmp_path: Path) -> None:
    samples, rng = 12_000, random.Random(5)
    with session(samples) as running:
        running.scale(SMALL)
        while not running.wait(rng.random() * 0.4):
            change(running, rng)
        updates, dense_count = counts(running, tmp_path, samples)
        outcome = running.outcome()
    np.testing.assert_array_equal(updates, 1.0)
    assert dense_count == samples
    assert (outcome.status, outcome.samples, outcome.samples_repeated) == ("finished", samples, 0)


@pytest.mark.long
def test_synchronous_scaling_loses_no_sample(tmp_path: Path) -> None:
    """A push counts for one over the members of its round, so that a row reads 1, 1/2 or 1/3, and never 0 or a sum."""
    samples, rng = 12_000, random.Random(3)
    with session(samples, job=audit_job(samples, sync="sync")) as running:
        running.scale(Allocation.of(2, 2, 0.25, 0.2, 32))
        while not running.wait(rng.random() * 0.5):
            running.scale(Allocation.of(rng.randint(1, 3), rng.randint(1, 3), 0.25, 0.15, rng.choice(BATCHES)))
        updates, _ = counts(running, tmp_path, samples)
    shares = np.float32(1) / np.arange(1, 5, dtype=np.float32)
    assert np.isclose(updates[:, None], shares[None, :], atol=1e-6).any(axis=1).all()


@pytest.mark.long
def test_consistent_checkpoint_resumes_at_another_allocation(tmp_path: Path) -> None:
    samples = 24_000
    with session(samples, program=slow_until(tmp_path / "never")) as running:
        running.scale(Allocation.of(2, 2, 0.3, 0.2, 48))  # not the job's own batch size
        wait_for_more(running, 0)
        running.checkpoint(tmp_path)
        before, dense_count = read_counts(tmp_path, samples)
        assert set(np.unique(before)) <= {0.0, 1.0}
        assert 0 < before.sum() == dense_count < samples
        wait_for_more(running, dense_count)  # it goes on
    with session(samples, step_s=0.0, resume=tmp_path) as running:
        running.scale(Allocation.of(1, 3, 0.5, 0.15, 48))
        assert running.wait(90)
        assert running.outcome().samples == samples
        updates, dense_count = counts(running, tmp_path, samples)
    np.testing.assert_array_equal(updates, 1.0)
    assert dense_count == samples


@pytest.fixture(scope="module")
def running() -> Iterator[Session]:
    with session(10**8, job=audit_job(10**8)) as running:
        running.scale(SMALL)
        yield running


def trains_on(running: Session) -> bool:
    before = running.observe().samples_trained
    running.wait(1.0)
    return running.observe().samples_trained > before


def test_concurrent_change_is_refused_and_the_first_continues(running: Session) -> None:
    errors: list[BaseException] = []
    first = threading.Thread(target=running.scale, args=(Allocation.of(3, 2, 0.3, 0.15, 32),))
    first.start()
    while first.is_alive():
        try:
            running.scale(SMALL)
        except EngineError as error:
            errors.append(error)
            break
    first.join(60)
    assert "Another change is in progress (scale 3 workers" in str(errors[0])
    assert running.allocation == Allocation.of(3, 2, 0.3, 0.15, 32)
    assert trains_on(running)
    running.scale(SMALL)


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (Allocation.of(2, 1, 90.0, 0.2, 32), "asks for 180.2 cores and this host has"),
        (Allocation.of(0, 1, 0.3, 0.2, 32), "needs at least one worker and one PS"),
        (Allocation.of(1, 0, 0.3, 0.2, 32), "needs at least one worker and one PS"),
        (Allocation.of(1, 1, 0.01, 0.2, 32), "0.01 cores is below the minimum"),
        (Allocation.of(1, 1, 0.3, 0.2, 32, ps_memory_bytes=1 << 50), "asks for 1,024.0 TiB of memory and .* were free"),
    ],
)
def test_invalid_allocation_is_refused_and_the_job_continues(
    running: Session, allocation: Allocation, message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        running.scale(allocation)
    assert running.allocation == SMALL
    assert trains_on(running)


def test_replica_that_fails_to_start_is_ended_and_the_job_continues(running: Session) -> None:
    tight = Allocation(
        worker=(*SMALL.worker, Group(replicas=1, cpu=0.3, memory_bytes=64 << 20)), ps=SMALL.ps, batch_size=32
    )
    with pytest.raises(SizewrightError, match=r"memory"):
        running.scale(tight)
    assert running.allocation == SMALL
    assert len(running.pids()) == 2
    assert trains_on(running)


def test_unknown_replica_cannot_be_replaced(running: Session) -> None:
    with pytest.raises(EngineError, match=r"There is no replica ps-99.*There are: ps-"):
        running.replace("ps-99")


def test_single_server_cannot_be_rebalanced(running: Session) -> None:
    with pytest.raises(EngineError, match=r"has one PS, which serves all look-ups\. Scale it to two"):
        running.rebalance()


def test_paused_session_refuses_changes(running: Session, tmp_path: Path) -> None:
    running.pause()
    name = next(iter(running.pids()))
    for change in (lambda: running.checkpoint(tmp_path), lambda: running.replace(name), running.rebalance):
        with pytest.raises(EngineError, match="is not training"):
            change()
    assert not trains_on(running)
    running.scale(SMALL)
    assert trains_on(running)


def test_slow_change_that_progresses_does_not_time_out(running: Session) -> None:
    pool = running._live.pool

    class Copier:
        def __init__(self) -> None:
            self.began = time.monotonic()

        def work(self, seconds: float) -> str:
            time.sleep(seconds)
            return "done"

        def copied(self, grows: bool) -> float:
            return time.monotonic() - self.began if grows else 1.0

    copier = pool.ray.remote(num_cpus=0, max_concurrency=2)(Copier).remote()
    pool.get([copier.copied.remote(True)])  # its process has started
    pool.timeout_s, default_s = 1.0, pool.timeout_s
    try:
        assert pool.get_all([copier.work.remote(3.0)], lambda: [copier.copied.remote(True)]) == ["done"]
        with pytest.raises(TrialTimeoutError):
            pool.get_all([copier.work.remote(60.0)], lambda: [copier.copied.remote(False)])
    finally:
        pool.timeout_s = default_s
        pool.ray.kill(copier)


@pytest.mark.long
def test_paused_session_resumes_with_other_servers_and_all_rows(tmp_path: Path) -> None:
    samples = 20_000
    with session(samples) as running:
        running.scale(Allocation.of(2, 1, 0.3, 0.2, 32))
        running.wait(0.5)
        running.pause()
        running.scale(Allocation.of(1, 2, 0.5, 0.2, 32))
        assert running.wait(90)
        updates, dense_count = counts(running, tmp_path, samples)
    np.testing.assert_array_equal(updates, 1.0)
    assert dense_count == samples


@pytest.mark.long
def test_program_exit_ends_an_open_session() -> None:
    program = """
from sizewright.spec import Allocation
from sizewright.testing.audit import AuditProgram, audit_job
from sizewright.training.session import Session
session = Session(audit_job(10**8), samples=10**8, program=AuditProgram())
session.scale(Allocation.of(1, 1, 0.3, 0.2, 32))
print(*session.pids().values(), flush=True)
raise SystemExit(3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    processes = [psutil.Process(int(pid)) for pid in done.stdout.split() if psutil.pid_exists(int(pid))]
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_full_disk_does_not_stop_training(running: Session, tmp_path: Path) -> None:
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=64k tmpfs {tmp_path}") != 0:
        pytest.skip("making a small disk needs root")
    try:
        with pytest.raises(EngineError, match=r"could not be written to .*(no space left|may be full)"):
            running.checkpoint(tmp_path)
        assert not list(tmp_path.iterdir())
        assert trains_on(running)
    finally:
        os.system(f"umount {tmp_path}")


def test_metrics_cover_each_replica_and_the_total(running: Session) -> None:
    metrics = running.observe()
    assert [r.name.split("-")[0] for r in metrics.replicas] == ["ps", "worker"]
    assert metrics.samples_trained > 0
    assert metrics.samples_left == 10**8 - metrics.samples_trained
    for replica in metrics.replicas:
        assert replica.bytes_sent > 0
        assert replica.bytes_received > 0


def test_a_folder_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="There is no snapshot in"):
        session(100, resume=tmp_path)


@pytest.mark.long
def test_final_snapshot_contains_all_trained_samples(tmp_path: Path) -> None:
    samples, job = 30_000, audit_job(30_000)
    with session(samples, snapshot_s=600.0, folder=tmp_path) as running:
        running.scale(SMALL)
        assert not running.wait(1.0)
    stopped = running.outcome()
    updates, dense_count = read_counts(tmp_path, samples)
    assert dense_count == stopped.samples == updates.sum() > 0
    assert (stopped.status, stopped.snapshots, stopped.snapshot_faults) == ("stopped", 2, 0)
    with pytest.raises(JobError, match="has snapshots of an earlier run"):
        session(samples, job=job, folder=tmp_path)
    with pytest.raises(JobError, match="but the job has only 100 samples"):
        session(100, job=job, resume=tmp_path)
    with session(samples, job=job, snapshot_s=600.0, folder=tmp_path, resume=tmp_path, step_s=0.001) as running:
        running.scale(SMALL)
        assert running.wait(90)
    finished = running.outcome()
    assert (finished.status, finished.samples, finished.samples_resumed) == ("finished", samples, stopped.samples)
    updates, dense_count = read_counts(tmp_path, samples)
    assert dense_count == samples
    np.testing.assert_array_equal(updates, 1.0)


def kill_one(running: Session, rng: random.Random) -> None:
    os.kill(rng.choice(list(running.pids().values())), signal.SIGKILL)


def check_bounds(updates: np.ndarray, outcome: Outcome) -> None:
    """Nothing is trained twice, and what was lost is at most what the outcome says."""
    assert outcome.samples_repeated == 0
    assert updates.max() <= 1
    assert (updates < 1).sum() <= outcome.updates_lost * max(BATCHES)


def test_killed_worker_and_server_are_replaced(tmp_path: Path) -> None:
    samples = 40_000
    with session(samples, recover=True, snapshot_s=0.5) as running:
        running.scale(Allocation.of(2, 2, 0.3, 0.2, 32))
        for role in ("worker", "ps"):
            running.wait(1.5)
            os.kill(next(pid for name, pid in running.pids().items() if name.startswith(role)), signal.SIGKILL)
        assert running.wait(90)
        updates, _ = counts(running, tmp_path, samples)
        outcome = running.outcome()
        assert len(running.pids()) == 4
    assert outcome.samples == samples
    assert {failure.replica.split("-")[0] for failure in outcome.failures} == {"worker", "ps"}
    assert {failure.cause for failure in outcome.failures} == {"killed"}
    assert all(failure.recovered_s and failure.action for failure in outcome.failures)
    check_bounds(updates, outcome)
    assert outcome.updates_lost < samples / 32 / 2  # a snapshot held most


@pytest.mark.long
def test_job_whose_samples_cannot_be_read_ends_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_MAX_FAILURES_IN_A_ROW", 4)

    class Unreadable(AuditProgram):  # local, so that it is sent to the workers by value
        def samples(self, job: Job, scale: float) -> Any:
            source = super().samples(job, scale)

            class Broken:
                def read(self, start: int, count: int) -> Batch:
                    if start >= 10_000:
                        raise ValueError(f"sample {start} is broken")
                    return source.read(start, count)

            return Broken()

    job = audit_job(40_000)
    with Session(job, samples=40_000, program=Unreadable(step_s=0.01), recover=True, timeout_s=90.0) as running:
        running.scale(Allocation.of(2, 1, 0.3, 0.2, 32))
        with pytest.raises(EngineError, match=r"Workers failed 4 times.*ValueError: sample \d+ is broken"):
            running.wait(900)
        assert "sample" in running.outcome().failures[0].cause


def snapshot_stores() -> set[psutil.Process]:
    return {p for p in psutil.Process().children(recursive=True) if p.name().startswith("ray::SnapshotStore")}


@pytest.mark.long
@pytest.mark.parametrize("on_disk", [True, False])
def test_dead_snapshot_store_is_restarted(tmp_path: Path, on_disk: bool) -> None:
    """Rows of a server that dies next come from the snapshot taken since, or from disk where they die together."""
    samples, gate = 20_000, tmp_path / "gate"
    folder, others = tmp_path / "kept" if on_disk else None, snapshot_stores()
    with session(samples, recover=True, snapshot_s=0.3, folder=folder, program=slow_until(gate)) as running:
        running.scale(Allocation.of(2, 2, 0.3, 0.2, 32))
        running.wait(2.0)
        (store,) = snapshot_stores() - others
        store.kill()
        while not on_disk and running.outcome().snapshot_faults == 0:
            assert not running.wait(0.1)
        running.wait(0.0 if on_disk else 1.0)
        os.kill(next(pid for name, pid in running.pids().items() if name.startswith("ps")), signal.SIGKILL)
        running.wait(0.5)
        gate.touch()
        assert running.wait(90)
        updates, _ = counts(running, tmp_path / "all", samples)
        outcome = running.outcome()
    assert [failure.replica.split("-")[0] for failure in outcome.failures] == ["ps"]
    assert outcome.snapshot_faults >= 1
    check_bounds(updates, outcome)
    assert outcome.updates_lost < samples / 32 / 2


@pytest.mark.long
def test_worker_and_server_that_die_together_are_replaced_and_reported(tmp_path: Path) -> None:
    samples = 40_000
    with session(samples, recover=True, snapshot_s=0.5, reserve={}) as running:
        running.scale(Allocation.of(1, 1, 0.3, 0.2, 32))
        running.wait(1.5)
        for pid in running.pids().values():
            os.kill(pid, signal.SIGKILL)
        assert running.wait(90)
        updates, _ = counts(running, tmp_path, samples)
        outcome = running.outcome()
    assert sorted(failure.replica.split("-")[0] for failure in outcome.failures) == ["ps", "worker"]
    check_bounds(updates, outcome)


@pytest.mark.long
def test_failed_checkpoint_leaves_the_job_training(tmp_path: Path) -> None:
    """Its server dies while workers leave for it."""
    with session(10**8, job=audit_job(10**8), recover=True, snapshot_s=0.3) as running:
        running.scale(Allocation.of(2, 1, 0.3, 0.2, 32))
        running.wait(1.0)
        os.kill(next(pid for name, pid in running.pids().items() if name.startswith("ps")), signal.SIGKILL)
        with contextlib.suppress(SizewrightError):
            running.checkpoint(tmp_path)
        deadline = time.monotonic() + 60
        while not trains_on(running):
            assert time.monotonic() < deadline
        assert running.allocation == Allocation.of(2, 1, 0.3, 0.2, 32)


@pytest.mark.long
def test_frozen_worker_does_not_block_observe() -> None:
    """It neither ends nor answers, so `observe` returns the others only."""
    with session(10**8, job=audit_job(10**8), recover=True) as running:
        running.scale(Allocation.of(2, 1, 0.3, 0.2, 32))
        running.wait(1.0)
        pid = next(pid for name, pid in running.pids().items() if name.startswith("worker"))
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert len(running.observe().of("worker")) == 1
            assert time.monotonic() - began < 30
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(running.observe().of("worker")) == 2


@pytest.mark.parametrize("forecast", [0, 400 << 20], ids=["nothing forecast", "forecast"])
def test_server_out_of_memory_restarts_with_more_memory(forecast: int) -> None:
    """Rows of 1 KiB that grow beyond what the PS was given."""
    samples = 60_000
    job = audit_job(samples, dim=256)
    with session(samples, job=job, step_s=0.002, recover=True, snapshot_s=0.3, reserve={}) as running:
        if running.whole_cores:
            pytest.skip("control groups cannot be created on this host")
        running.scale(Allocation.of(2, 1, 0.5, 0.4, 32, ps_memory_bytes=170 << 20))
        running.expect_memory(forecast)
        assert running.wait(120)
        outcome, allocation = running.outcome(), running.allocation
    assert "oom" in {failure.cause for failure in outcome.failures}
    assert allocation is not None
    times = Counter(failure.cause for failure in outcome.failures)["oom"]
    assert allocation.ps[0].memory_bytes == (forecast or pytest.approx(1.5**times * (170 << 20), rel=0.01))


def leavings(tree: Path | None) -> tuple[int, int, int, int]:
    me = psutil.Process()
    shared = len([name for name in os.listdir("/dev/shm") if "plasma" in name or "ray" in name])
    ours = ("ray::PsActor", "ray::WorkerActor", "ray::SnapshotSto")
    actors = [child for child in me.children(recursive=True) if child.name().startswith(ours)]
    _, actors = psutil.wait_procs(actors, timeout=10)  # Ray ends them a moment after it was told to
    return len(actors), int(tree is not None and tree.exists()), me.num_fds(), shared


@pytest.mark.long
def test_run_with_ten_kills_completes_and_leaves_nothing(tmp_path: Path) -> None:
    samples, rng, gate = 60_000, random.Random(7), tmp_path / "gate"
    with session(1000) as first:  # what the first session of a process opens for good is not counted
        first.scale(SMALL)
    with session(samples, recover=True, snapshot_s=0.5, program=slow_until(gate)) as running:
        folder = next(iter(running._node_agent.tree.folders.values())) if running._node_agent.tree else None
        before = leavings(None)[2:]
        running.scale(Allocation.of(2, 2, 0.3, 0.2, 32))
        for _ in range(12):
            assert not running.wait(0.5 + rng.random())
            kill_one(running, rng)
            if rng.random() < 0.4:
                with contextlib.suppress(SizewrightError):  # a replica died amid it: it says so, and recovery goes on
                    running.scale(some_allocation(rng))
        gate.touch()
        assert running.wait(300)
        for _ in range(20):
            try:
                updates, _ = counts(running, tmp_path, samples)
                break
            except SizewrightError:
                time.sleep(1)
        outcome = running.outcome()
    assert len(outcome.failures) >= 8  # two that die at once may be one look's work, never less
    assert (outcome.status, outcome.samples) == ("finished", samples)
    check_bounds(updates, outcome)
    actors, groups, handles, shared = leavings(folder)
    assert (actors, groups) == (0, 0)
    assert handles <= before[0]
    assert shared <= before[1]


@pytest.mark.long
def test_memory_stays_flat_over_changes() -> None:
    """Of this process, the keeper, and the largest of each role; the job's rows are all there soon."""
    rng = random.Random(5)
    readings: dict[str, list[int]] = {}
    with Session(small_job(), samples=10**9, snapshot_s=1.0, recover=True, reserve={"worker": 1, "ps": 1}) as running:
        running.scale(SMALL)
        for _ in range(25):
            change(running, rng)
            running.wait(1.0)
            assert trains_on(running)
            for name, size in resident_bytes().items():
                readings.setdefault(name, []).append(size)
        outcome = running.outcome()
    assert not outcome.failures
    assert len(outcome.changes) > 15
    assert readings.keys() == {"here", "ray::SnapshotStore", "ray::PsActor", "ray::WorkerActor"}
    for name, sizes in readings.items():
        half = len(sizes) // 2
        assert np.median(sizes[half:]) < 1.1 * np.median(sizes[len(sizes) // 5 : half]), name


def resident_bytes() -> dict[str, int]:
    """The largest process of each kind."""
    sizes = {"here": psutil.Process().memory_info().rss}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            kind = process.name().partition(".")[0].split()[0]
            for known in ("ray::SnapshotStore", "ray::PsActor", "ray::WorkerActor"):
                if kind.startswith(known[:15]):  # the kernel keeps 15 letters of a name
                    sizes[known] = max(sizes.get(known, 0), process.memory_info().rss)
    return sizes
