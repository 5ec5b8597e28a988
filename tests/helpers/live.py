"""Live sessions under faults: a driver trains and changes its replicas while faults are injected.

Run as a program, this module is the driver. `run_sequence` starts it, injects faults, restarts it when it has ended,
and compares what the servers counted with its outcome, row by row.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from sizewright.errors import SizewrightError
from sizewright.spec import Allocation, Outcome
from sizewright.testing.audit import AuditProgram, audit_job, read_counts
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.routing import partition_of
from sizewright.training.ps.snapshot_files import read_snapshot, snapshots
from sizewright.training.replicas.account import Loss
from tests.helpers.losses import dense_counts, updates_lost
from tests.helpers.network.testbed import Bed

ROOT = Path(__file__).resolve().parents[2]
FAULTS = ("kill", "kill", "hang", "pause", "cut", "cut", "cut", "store", "driver", "gcs", "raylet")
BED_FAULTS = ("lose a machine", "cut a machine off", "cut a machine off", "kill", "hang", "cut", "driver")
BATCH_SIZES, DENSE_OF_A_WORKER = (16, 32, 48), "dense_of_a_worker"
_PIDFD_GETFD = 438
_ENGINE_DIED = 3
_LIMIT_S = 200.0


@dataclass
class LiveReport:
    """The result of a sequence; `wrong` counts the rows that differ from the outcome."""

    seed: int
    wrong: int = 0
    ended: bool = True
    log: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [f"seed {self.seed}: {self.wrong} rows differ from the outcome, ended: {self.ended}", *self.log]
        )


def run_sequence(
    seed: int, folder: Path, *, faults: int = 3, samples: int = 40_000, bed: Bed | None = None
) -> LiveReport:
    """Train all samples of a job under changes and faults that the seed draws.

    The job runs on its own Ray, or on the machines of `bed`, one of which is lost or cut off for some seconds.
    """
    rng, report, began = random.Random(seed), LiveReport(seed), time.monotonic()
    result, snapshots_folder = folder / "result.json", folder / "kept"
    remaining = faults
    while not result.exists():
        driver = _start(folder, samples, rng.randrange(10**6), bed)
        report.log.append(f"{time.monotonic() - began:6.1f} driver {driver.pid}")
        pause_s = 4.0 + 3 * rng.random()  # loading comes first
        while driver.poll() is None and time.monotonic() - began < _LIMIT_S:
            if remaining and _waited(driver, pause_s):
                what = rng.choice(FAULTS if bed is None else BED_FAULTS)
                if event := strike(what, driver.pid, rng, bed):
                    remaining -= 1
                    report.log.append(f"{time.monotonic() - began:6.1f} {event}")
                pause_s = 0.3 + 2 * rng.random()
            time.sleep(0.05)
        if driver.poll() is None:
            report.ended = False
            report.log.append("the driver does not end")
            end_tree(driver.pid)
            return report
        report.log.append(f"{time.monotonic() - began:6.1f} the driver ended: {driver.returncode}")
    record = json.loads(result.read_text())
    report.log += record["log"]
    report.wrong = record["wrong"]
    assert snapshots_folder.is_dir()
    return report


def strike(what: str, driver: int, rng: random.Random, bed: Bed | None = None) -> str:
    """Inject a fault into a driver's session; return what was done, or "" if there was nothing to break."""
    if bed and what in ("lose a machine", "cut a machine off"):
        machine = bed.nodes - 1  # always the same machine: the job needs the others
        if what == "lose a machine":
            bed.kill_node(machine, silent=rng.random() < 0.5)
        else:
            bed.cut(machine)
            time.sleep(rng.choice([1.0, 3.0, 8.0]))
            bed.mend(machine)
        return what
    replicas = processes(driver, "ray::PsActor", "ray::WorkerActor", bed=bed)
    if what == "driver":
        os.kill(driver, signal.SIGKILL)
        return "kill the driver"
    if what in ("gcs", "raylet", "store"):
        names = {"gcs": "gcs_server", "raylet": "raylet", "store": "ray::SnapshotSto"}
        for process in processes(driver, names[what], bed=bed)[:1]:
            process.kill()
            return f"kill {what}"
    elif replicas:
        victim = rng.choice(replicas)
        with contextlib.suppress(psutil.Error):
            name = f"{victim.name()} {victim.pid}"
            if what == "cut":
                workers, servers = (processes(driver, f"ray::{role}Actor", bed=bed) for role in ("Worker", "Ps"))
                both = workers and servers and (rng.choice(workers).pid, rng.choice(servers).pid)
                return "cut a link" if both and cut_link(both[0], rng, to=both[1]) else ""
            if what == "kill":
                victim.kill()
            else:
                victim.suspend()
                if what == "pause":
                    time.sleep(rng.random() * 2)
                    victim.resume()
            return f"{what} {name}"
    return ""


def processes(driver: int, *names: str, bed: Bed | None = None) -> list[psutil.Process]:
    """Return the processes of a driver, or on the machines of a bed, whose names have one of the prefixes."""
    matching: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        for process in _on(bed) if bed else psutil.Process(driver).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.name().startswith(names) or " ".join(process.cmdline()[:1]).startswith(names):
                    matching.append(process)
    return sorted(matching, key=lambda process: process.pid)


def _on(bed: Bed) -> Iterator[psutil.Process]:
    for machine in range(bed.nodes):
        for pid in bed.pids(machine):
            with contextlib.suppress(psutil.Error):
                yield psutil.Process(pid)


def cut_link(pid: int, rng: random.Random, to: int | None = None) -> bool:
    """Shut down a connection between replicas, to the process `to` if it is given; both processes live on."""
    theirs = None if to is None else {c.laddr for c in psutil.Process(to).net_connections("tcp")}
    mine = [
        each
        for each in psutil.Process(pid).net_connections("tcp")
        if each.status == "ESTABLISHED" and each.fd >= 0 and (theirs is None or each.raddr in theirs)
    ]
    if not mine:
        return False
    with _handle(pid) as handle:
        copied = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, handle, rng.choice(mine).fd, 0)
        if copied < 0:
            raise OSError(ctypes.get_errno(), "the socket of another process cannot be had")
    with socket.socket(fileno=copied) as link:
        link.shutdown(socket.SHUT_RDWR)
    return True


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int]:
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def end_tree(pid: int) -> None:
    """End a process and all of its children."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.Error):
                each.kill()


def _waited(driver: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(seconds)
    return driver.poll() is None


def _start(folder: Path, samples: int, seed: int, bed: Bed | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.helpers.live", str(folder), str(samples), str(seed)]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    with (folder / "driver.log").open("ab") as log:
        if bed:
            return bed.popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | env, stdout=log, stderr=log)


def main() -> None:
    """Resume from the snapshots of an earlier driver, change the replicas, and write the result."""
    from sizewright.training.session import Session

    folder, samples, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    snapshots_folder, log = folder / "kept", []
    resume = snapshots_folder if snapshots(snapshots_folder) else None
    inherited = _losses_in(folder, snapshots_folder, samples) if resume else []
    job = audit_job(samples)
    with Session(
        job, samples=samples, program=AuditProgram(step_s=0.01), recover=True, hang_s=3.0, timeout_s=60.0,
        snapshot_s=0.5, folder=snapshots_folder, resume=resume, address=os.environ.get("SIZEWRIGHT_ADDRESS"),
    ) as running:  # fmt: skip
        _note_saves(running, folder / "losses.jsonl", inherited)
        _note_dense(running, folder / DENSE_OF_A_WORKER)
        try:
            running.scale(_allocation(rng))
            while not running.wait(rng.random() * 2):
                log.append(_change(running, rng, folder / f"checkpoint-{os.getpid()}"))
        except SizewrightError as error:
            print(f"ended: {error}", flush=True)
            raise SystemExit(_ENGINE_DIED) from None
        running.checkpoint(folder / "last")
        outcome = running.outcome()
        losses = [*inherited, *running._account.losses]
        wrong = _wrong(folder, samples, outcome, losses)
    lines = [str(line) for line in (*log, outcome)]
    (folder / "result.tmp").write_text(json.dumps({"wrong": wrong, "log": lines}))
    (folder / "result.tmp").replace(folder / "result.json")


def _wrong(folder: Path, samples: int, outcome: Outcome, losses: list[Loss]) -> int:
    """Return the number of rows and totals that contradict the outcome."""
    counts, dense_count = read_counts(folder / "last", samples)
    expected = np.ones(samples, np.float32)
    for loss in losses:
        in_lost_parts = np.isin(partition_of(np.arange(samples)), loss.parts)
        for start, end in loss.samples:
            expected[start:end][in_lost_parts[start:end]] = 0
    fewest, largest = updates_lost(losses, BATCH_SIZES)
    (dense,) = dense_counts(samples, losses, 1)
    same = dense_count >= dense if (folder / DENSE_OF_A_WORKER).exists() else dense_count == dense
    odd = [not same, not fewest <= outcome.updates_lost <= largest, outcome.samples != samples]
    return int((counts != expected).sum()) + sum(odd) + outcome.samples_repeated


def _allocation(rng: random.Random) -> Allocation:
    return Allocation.of(rng.randint(1, 2), rng.randint(1, 3), 0.3, 0.2, rng.choice(BATCH_SIZES))


def _change(running: Any, rng: random.Random, checkpoint: Path) -> str:
    what = rng.choice(["scale", "scale", "replace", "rebalance", "checkpoint"])
    try:
        if what == "scale":
            running.scale(_allocation(rng))
        elif what == "replace":
            running.replace(rng.choice(list(running.pids()) or ["none"]))
        elif what == "rebalance":
            running.rebalance()
        else:
            running.checkpoint(checkpoint)
    except SizewrightError as error:
        return f"{what}: {error}"
    return what


def _note_dense(running: Any, path: Path) -> None:
    """Note when dense weights are taken from a worker: it is unknown which samples those contain."""
    weights = running._snapshots._from_a_worker

    def noted() -> Any:
        path.touch()
        return weights()

    running._snapshots._from_a_worker = noted


def _note_saves(running: Any, path: Path, inherited: list[Loss]) -> None:
    """Note the losses before each snapshot goes to disk; a run that resumes from it has lost the same."""
    save = running._snapshots.save

    def noted(folder: str) -> None:
        account = running._account
        losses = [(loss.server, loss.parts.tolist(), list(loss.samples)) for loss in [*inherited, *account.losses]]
        with path.open("a") as lines:
            lines.write(json.dumps([account.updates_lost, losses]) + "\n")
        save(folder)

    running._snapshots.save = noted


def _losses_in(folder: Path, snapshots_folder: Path, samples: int) -> list[Loss]:
    info, _ = read_snapshot(snapshots_folder, audit_job(samples))
    losses_then: list[Loss] = []
    for line in (folder / "losses.jsonl").read_text().splitlines():
        lost, losses = json.loads(line)
        if lost == info.updates_lost:
            losses_then = [
                Loss(server, np.array(parts), SampleRanges(map(tuple, ranges))) for server, parts, ranges in losses
            ]
    return losses_then


if __name__ == "__main__":
    main()
