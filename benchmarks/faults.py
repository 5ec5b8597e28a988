"""Exactly-once training under failures, and protection of secrets.

The parts are simulated schedules, live sequences, hangs, cut links, damaged snapshots, strangers and secrets.
"""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import gc
import hashlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import elasticity
from benchmarks._report import choose, finish, kept
from benchmarks._secrets import RENDERERS, Hunt
from sizewright.errors import SizewrightError
from sizewright.spec import Allocation, Job
from sizewright.testing.audit import AuditProgram, audit_job
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.routing import PARTS
from sizewright.training.ps.snapshot_files import ARRAYS, SnapshotInfo, read_snapshot, snapshots, write_snapshot
from sizewright.training.session import Session
from tests.helpers.network.testbed import Bed

TARGETS = {
    "simulated_schedules": "≥ 100,000",
    "simulated_violations": "≤ 0",
    "live_sequences": "≥ 100",
    "unreported": "≤ 0",
    "hang_replaced_s": "≤ hang_limit_s + 5",
    "link_cut_lost_s": "≤ 3",
    "damages": "≥ 1,000",
    "damages_silent": "≤ 0",
    "damages_tracebacks": "≤ 0",
    "flood_throughput": "≥ 0.9",
    "secrets_tried": "≥ 40",
    "secrets_shown": "≤ 0",
    "train_efficiency": "≥ 0.95",
    "steady_overhead": "≥ 0.97",
}
SCHEDULES, SEQUENCES = choose(100_000, 5_000, 20), choose(100, 12, 1)
ON_BED = choose(10, 2, 0)
HANGS, CUTS, DAMAGES = choose(6, 2, 1), choose(20, 8, 2), choose(1_000, 1_000, 30)
FLOOD_PAIRS, FLOOD_S = choose(5, 2, 1), choose(10.0, 6.0, 2.0)
HANG_LIMIT_S = 5.0
STRANGERS, SLOW, FILES = 2_000, 50, 1_024
AT = Allocation.of(2, 2, 0.3, 0.2, 32)
SEED_BLOCK = 250
ROOT = Path(__file__).resolve().parents[1]
Figures = dict[str, float]


def main() -> None:
    details: dict[str, object] = {}
    parts = {
        "simulated": simulated,
        "live": live,
        "hangs": hangs,
        "cuts": cuts,
        "damages": damages,
        "flood": flood,
        "secrets": secrets,
        "steady": steady,
    }
    in_smoke = [name for name in parts if name != "steady"]  # elasticity runs it, too
    selected = sys.argv[1:] or choose(list(parts), list(parts), in_smoke)
    figures: Figures = {}
    for name in selected:
        print(f"— {name}", flush=True)
        figures |= parts[name](details)
    finish("faults", figures, TARGETS, details, part=selected != list(parts))


def simulated(details: dict[str, object]) -> Figures:
    """Run schedules of the whole engine under a seeded scheduler. A seed that fails replays exactly.

    A full run takes some hours. An interrupt ends it, and the schedules until then count: the next full run continues
    after them if the code of the engine and of the simulation is the same.
    """
    engine, first = _engine_digest(), choose(0, 200_000, 0)
    earlier = {} if choose(False, True, True) else kept("faults")
    same_engine = earlier.get("details", {}).get("simulated_engine") == engine
    done = int(earlier["simulated_schedules"]) if same_engine else 0
    bad: list[str] = list(earlier["details"]["simulated_bad"]) if same_engine else []
    ends = first + SCHEDULES
    blocks = [range(i, min(i + SEED_BLOCK, ends)) for i in range(first + done, ends, SEED_BLOCK)]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
    with (
        multiprocessing.get_context("spawn").Pool(initializer=_start_process, maxtasksperchild=4) as pool,
        contextlib.suppress(KeyboardInterrupt),
    ):
        for block, failed in zip(blocks, pool.imap(_schedules, blocks), strict=True):
            done += len(block)
            print(f"\r{done:,} schedules", end="", flush=True)
            bad += failed
            for report in failed:
                print(report, flush=True)
    print("", flush=True)
    details |= {"simulated_bad": bad, "simulated_engine": engine}
    return {"simulated_schedules": done, "simulated_violations": len(bad)}


def _engine_digest() -> str:
    """Return a digest of the code of the engine and of the simulation; comments and layout do not change it."""
    folders = (ROOT / "sizewright" / "training", ROOT / "tests" / "helpers" / "simulation")
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    trees = [ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for path in paths]
    return hashlib.sha256("\n".join(trees).encode()).hexdigest()[:16]


def _start_process() -> None:
    """Leave interrupts to the first process, and spend less on collecting garbage: a fifth of the time."""
    import tests.helpers.simulation.world  # noqa: F401 (what it loads stays, and needs no looking at)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def _schedules(block: range) -> list[str]:
    from tests.helpers.simulation.world import run_schedule

    return [str(report) for report in map(run_schedule, block) if report.violations]


def live(details: dict[str, object]) -> Figures:
    """Run random sequences of changes and faults on real sessions, and count samples at the servers.

    Two run at a time on this host. Some run on a test bed with three machines, of which one is lost or cut off.
    """
    seeds = range(choose(0, 1_000, 0), choose(0, 1_000, 0) + SEQUENCES)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(_sequence, seeds[ON_BED:]))
    for seed in seeds[:ON_BED]:
        with Bed(nodes=3) as bed:
            reports.append(_sequence(seed, bed))
    unreported = sum(wrong for wrong, _ in reports)
    details["live_bad"] = [text for wrong, text in reports if wrong]
    return {"live_sequences": len(reports), "unreported": unreported}


def _sequence(seed: int, bed: Bed | None = None) -> tuple[int, str]:
    from tests.helpers.live import run_sequence

    with tempfile.TemporaryDirectory() as folder:
        report = run_sequence(seed, Path(folder), bed=bed)
    wrong = report.wrong + (not report.ended)
    print(report if wrong else f"seed {seed}: the report matches the count", flush=True)
    return wrong, str(report)


@contextlib.contextmanager
def _session(samples: int = 4_000_000) -> Iterator[Session]:
    job: Job = audit_job(samples)
    with Session(
        job, samples=samples, program=AuditProgram(step_s=0.01), recover=True, snapshot_s=1.0, hang_s=HANG_LIMIT_S
    ) as session:
        session.scale(AT)
        yield session


def hangs(details: dict[str, object]) -> Figures:
    """Stop a replica and measure the seconds until another one trains in its place."""
    took = []
    with _session() as session:
        for i in range(HANGS):
            session.wait(2.0)
            name = next(name for name in session.pids() if name.startswith(("ps", "worker")[i % 2]))
            os.kill(session.pids()[name], signal.SIGSTOP)
            began, known = time.monotonic(), len(session.outcome().failures)
            while len(session.outcome().failures) == known:
                session.wait(0.1)
            took.append(time.monotonic() - began)
            print(f"{name}: replaced after {took[-1]:.1f} s", flush=True)
    details["hang_replaced"] = took
    return {"hang_limit_s": HANG_LIMIT_S, "hang_replaced_s": max(took)}


def cuts(details: dict[str, object]) -> Figures:
    """Shut down a link between a worker and a PS and measure the seconds until a new one is open."""
    from tests.helpers.live import cut_link

    rng, known = random.Random(0), 0
    with _session() as session:
        for i in range(CUTS):
            session.wait(0.5)
            pids = session.pids()
            assert cut_link(pids[f"worker-{i % 2}"], rng, to=pids[f"ps-{i // 2 % 2}"])
            while len(session.outcome().failures) == known:
                session.wait(0.1)
            known = len(session.outcome().failures)
        failures = session.outcome().failures
    assert all("link" in failure.cause for failure in failures)
    lost = [failure.recovered_s or 0.0 for failure in failures]
    details["link_cut_lost"] = lost
    return {"link_cut_lost_s": float(np.quantile(lost, 0.95))}


def damages(details: dict[str, object]) -> Figures:
    """Damage a bit, a byte, the length or a file of a snapshot. It must be refused or read unchanged."""
    rng, job = random.Random(0), audit_job(500)
    arrays: dict[str, Any] = {
        "keys": np.arange(300, dtype=np.int64),
        "weights": np.random.default_rng(0).random((300, 1), np.float32),
        "state": np.zeros((300, 0), np.float32),
        "dense": np.ones((7, 1), np.float32),
        "dense_state": np.zeros((7, 0), np.float32),
    }
    silent = tracebacks = 0
    with tempfile.TemporaryDirectory() as root:
        original, copy = Path(root) / "whole", Path(root) / "copy"
        groups = [AppliedGroup(np.arange(PARTS), SampleRanges([(0, 320)]))]
        for lost in (0, 1):  # the older one must not be read in place of the newer one
            write_snapshot(original, SnapshotInfo(job.hash, 300, groups, lost, 2), arrays, lambda _: None)
        before, _ = read_snapshot(original, job)
        for _ in range(DAMAGES):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(original, copy)
            damage = _damage(rng.choice(sorted(snapshots(copy)[-1].iterdir())), rng)
            try:
                info, restored = read_snapshot(copy, job)
                same = info.trained == before.trained and info[:2] + info[3:] == before[:2] + before[3:]
                if not same or any(not np.array_equal(restored[name], arrays[name]) for name in ARRAYS):
                    silent += 1
                    print(f"Silently changed: {damage}", flush=True)
            except SizewrightError:
                continue
            except Exception as error:
                tracebacks += 1
                print(f"{type(error).__name__}: {error}: {damage}", flush=True)
    return {"damages": DAMAGES, "damages_silent": silent, "damages_tracebacks": tracebacks}


def _damage(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    what = rng.choice(["bit", "bit", "byte", "cut", "longer", "gone", "zeros"]) if data else "longer"
    at = rng.randrange(len(data)) if data else 0
    if what == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif what == "byte":
        data[at] = rng.randrange(256)
    elif what == "cut":
        del data[at:]
    elif what == "longer":
        data += bytes(rng.randrange(1, 9))
    elif what == "zeros":
        data[at:] = bytes(len(data) - at)
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(data)
    return f"{path.name}: {what} at {at}"


_FLOOD = """
import select, socket, sys, threading, time
links, addresses, lock = [], [], threading.Lock()
def told(): return select.select([sys.stdin], [], [], 0)[0]
def hold():
    while True:
        with lock:
            for link in links[:int(sys.argv[2])]:
                try: link.send(b"x")
                except OSError: pass
        time.sleep(1)
threading.Thread(target=hold, daemon=True).start()
n = 0
while True:
    if told():
        line = sys.stdin.readline()
        if not line: break
        with lock:
            for link in links: link.close()
            links.clear()
        addresses = [("127.0.0.1", int(port)) for port in line.split()]
        n = 0
        if not addresses: print("down", flush=True)
    while addresses and len(links) < int(sys.argv[1]) and not told():
        try:
            link = socket.create_connection(addresses[n % len(addresses)], timeout=1); link.setblocking(False)
            links.append(link)
        except OSError: time.sleep(0.01)
        n += 1
        if n == int(sys.argv[1]): print("up", flush=True)
    time.sleep(0.2)
    with lock:
        for link in list(links):
            try:
                if link.recv(100) == b"": raise ConnectionError
            except BlockingIOError: pass
            except OSError: link.close(); links.remove(link)
"""


def flood(details: dict[str, object]) -> Figures:
    """Measure throughput while strangers hold connections to all listeners, relative to without them, in pairs."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:  # a hard limit cannot be raised again
        details["flood_pairs"] = ratios = pool.submit(_flooded).result()
    return {"flood_throughput": float(np.median(ratios))}


def _flooded() -> list[float]:
    ratios = []
    command = [sys.executable, "-c", _FLOOD, str(STRANGERS), str(SLOW)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=_many_files
    ) as strangers:
        assert strangers.stdin is not None
        assert strangers.stdout is not None

        def tell(ports: Sequence[int]) -> None:
            print(*ports, file=strangers.stdin, flush=True)
            strangers.stdout.readline()  # type: ignore[union-attr]

        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))  # replicas inherit it; Ray raises the soft one
        with _session() as session:
            session.wait(2.0)
            for _ in range(FLOOD_PAIRS):
                undisturbed = _rate(session)
                tell(_ports(session))
                ratios.append(_rate(session) / undisturbed)
                tell([])
                print(f"{undisturbed:,.0f} samples/s; with strangers {ratios[-1]:.3f} of it", flush=True)
    return ratios


def _many_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * STRANGERS), hard))


def _ports(session: Session) -> list[int]:
    """Return all ports on which the driver and the replicas listen, those of Ray among them."""
    pids = [os.getpid(), *session.pids().values()]
    return sorted(
        {
            connection.laddr.port
            for pid in pids
            for connection in psutil.Process(pid).net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
    )


def _rate(session: Session) -> float:
    first, began = session.observe().samples_trained, time.monotonic()
    session.wait(FLOOD_S)
    return (session.observe().samples_trained - first) / (time.monotonic() - began)


def secrets(details: dict[str, object]) -> Figures:
    """Put secrets in every place where a user may put one, and search everything that is stored or printed."""
    with tempfile.TemporaryDirectory() as folder:
        executors = choose(RENDERERS, RENDERERS, ("kubeflow", "file"))
        tried, leaks = Hunt(Path(folder)).run(choose(4, 3, 3), executors)
    details["secrets_found"] = leaks
    return {"secrets_tried": tried, "secrets_shown": len(leaks)}


def steady(details: dict[str, object]) -> Figures:
    """Measure the overhead without failures, as `elasticity` does."""
    figures = elasticity.overhead(details) | elasticity.efficiency(details, only="train_efficiency")
    return {name: figures[name] for name in ("train_efficiency", "steady_overhead")}


if __name__ == "__main__":
    main()
