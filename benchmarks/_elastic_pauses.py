"""Pauses between steps around changes, relative to windows without a change, and training time lost by a change."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._report import choose
from sizewright.spec import Allocation, Job
from sizewright.training.session import Session

WINDOW_S, SNAPSHOT_S = choose(5.0, 5.0, 0.4), 10.0
_SETTLED_S, _RESERVE_FILLED_S = choose((3.0, 8.0), (3.0, 8.0), (0.5, 1.0))
BATCH = 512
TWO, THREE = Allocation.of(2, 1, 0.4, 0.3, BATCH), Allocation.of(3, 1, 0.4, 0.3, BATCH)


class Pauses(NamedTuple):
    """Pauses in milliseconds: the excess of each change, and the median step."""

    excess_ms: list[float]
    median_step_ms: float
    usual_ms: float
    """The 99.9th percentile of gaps in windows without a change."""


def measure_pauses(session: Session, changes: list[Callable[[], object]]) -> dict[int, Pauses]:
    """Make the changes one after the other and return the pauses by the index of the change modulo two."""
    undisturbed: list[float] = []
    longest: dict[int, list[float]] = {0: [], 1: []}
    for i, change in enumerate(changes):
        before = time.monotonic()
        time.sleep(WINDOW_S)
        undisturbed += gaps(session, before, time.monotonic())
        start, names = time.monotonic(), set(session.step_times())
        change()
        time.sleep(WINDOW_S)
        # The step that is running belongs to the window, too.
        time.sleep(0.5)
        longest[i % 2].append(max(gaps(session, start - 0.2, start + WINDOW_S + 60, names)))
    baseline_s, median_s = float(np.percentile(undisturbed, 99.9)), float(np.median(undisturbed))
    return {
        side: Pauses([1000 * (gap_s - baseline_s) for gap_s in gaps_s], 1000 * median_s, 1000 * baseline_s)
        for side, gaps_s in longest.items()
    }


def gaps(session: Session, start: float, end: float, names: set[str] | None = None) -> list[float]:
    """Return the seconds between steps that ended in [start, end), of all workers or of those in `names`."""
    durations: list[float] = []
    for name, times in session.step_times().items():
        if names is None or name in names:
            steps = np.array(times)
            ended = steps[1:]
            durations += np.diff(steps)[(ended >= start) & (ended < end)].tolist()
    return durations


def scale_pauses(job: Job, rounds: int) -> dict[str, Pauses]:
    """Scale 2 → 3 → 2 workers with snapshots and recovery on. The third worker starts cold each time."""
    with Session(job, snapshot_s=SNAPSHOT_S, recover=True) as session:
        session.scale(TWO)
        time.sleep(_SETTLED_S)
        by_side = measure_pauses(session, [lambda: session.scale(THREE), lambda: session.scale(TWO)] * rounds)
        return {"scale_out": by_side[0], "scale_in": by_side[1]}


def move_pauses(job: Job, rounds: int) -> tuple[Pauses, int]:
    """Replace the only PS repeatedly. Return the pauses and the number of rows of the PS."""
    with Session(job, snapshot_s=SNAPSHOT_S, recover=True) as session:
        session.scale(TWO)
        time.sleep(_SETTLED_S)
        rows = session.observe().of("ps")[0].rows

        def replace() -> None:
            session.replace(next(name for name in session.pids() if name.startswith("ps")))

        by_side = measure_pauses(session, [replace] * rounds)
        return Pauses(by_side[0].excess_ms + by_side[1].excess_ms, *by_side[0][1:]), rows


@contextmanager
def saturated(cores: int) -> Iterator[None]:
    """Keep every core busy with other work."""
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(cores)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def reserve_seconds(job: Job, rounds: int) -> dict[str, list[float]]:
    """Return the seconds until a third worker joins, started cold and from the reserve."""
    seconds: dict[str, list[float]] = {}
    for name, reserve in (("cold", 0), ("reserve", 1)):
        with Session(job, reserve={"worker": reserve}) as session:
            session.scale(TWO)
            for _ in range(rounds):
                time.sleep(_RESERVE_FILLED_S)  # the reserve is filled in the background
                start = time.monotonic()
                session.scale(THREE)
                seconds.setdefault(name, []).append(time.monotonic() - start)
                session.scale(TWO)
    return seconds


class Lost(NamedTuple):
    """Seconds of training lost by a live change, by stop-and-resume and without a change, and the median step."""

    live_s: list[float]
    stopped_s: list[float]
    nothing_s: list[float]
    median_step_s: float


def time_lost(job: Job, rounds: int, around_s: float) -> Lost:
    """Replace a PS live, and stop and resume the same servers and workers from memory.

    Stop-and-resume has the best conditions: Ray is up, the processes have loaded their libraries, and most of the
    snapshot was taken before the stop.
    """
    live, stopped, nothing = [], [], []
    with Session(job, snapshot_s=3600.0, reserve={"ps": 1}) as session:
        session.scale(TWO)
        time.sleep(around_s / 3)

        def replace() -> None:
            session.replace(next(name for name in session.pids() if name.startswith("ps")))

        for _ in range(rounds):
            live.append(_lost(session, replace, around_s))
            nothing.append(_lost(session, lambda: None, around_s))
            stopped.append(_lost(session, lambda: _stop_and_resume(session), around_s))
        now = time.monotonic()
        return Lost(live, stopped, nothing, float(np.median(gaps(session, now - around_s, now))))


def _stop_and_resume(session: Session) -> None:
    replica_group, snapshots = session._live, session._snapshots
    replica_group.servers.fill = False  # rows come from the snapshot, so none are initialized first
    snapshots.take()
    replica_group.pause()
    snapshots.take(throttled=False)
    replica_group.launch(TWO, 1.0, snapshots.fill_from_snapshot)
    replica_group.servers.fill = True


def _lost(session: Session, change: Callable[[], object], around_s: float) -> float:
    """Return Δt − samples ÷ steady rate, from `around_s` before the change to as long after it."""
    begin = time.monotonic(), session.observe().samples_trained
    time.sleep(around_s)
    start = time.monotonic(), session.observe().samples_trained
    change()
    time.sleep(1.0)
    settled = time.monotonic(), session.observe().samples_trained
    time.sleep(around_s)
    end = time.monotonic(), session.observe().samples_trained
    points: NDArray[np.float64] = np.array([begin, start, settled, end])
    seconds, samples = np.diff(points, axis=0).T
    steady_rate = (samples[0] + samples[2]) / (seconds[0] + seconds[2])
    return float(seconds.sum() - samples.sum() / steady_rate)


def _spin() -> None:
    while True:
        pass
