"""Step gaps around changes, against gaps in equal windows without one; and training time lost to a change."""

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
_SETTLED_S, _FILLED_S = choose((3.0, 8.0), (3.0, 8.0), (0.5, 1.0))
BATCH = 512
TWO, THREE = Allocation.of(2, 1, 0.4, 0.3, BATCH), Allocation.of(3, 1, 0.4, 0.3, BATCH)


class Pauses(NamedTuple):
    """Milliseconds: the excess of each change, and the median step."""

    excess_ms: list[float]
    median_step_ms: float
    usual_ms: float
    """The 99.9th percentile of gaps in windows without a change."""


def measure_pauses(session: Session, changes: list[Callable[[], object]]) -> dict[int, Pauses]:
    """Go through the changes in turn, again and again as they are listed; the key is the change's place modulo two."""
    quiet: list[float] = []
    longest: dict[int, list[float]] = {0: [], 1: []}
    for i, change in enumerate(changes):
        before = time.monotonic()
        time.sleep(WINDOW_S)
        quiet += gaps(session, before, time.monotonic())
        start, names = time.monotonic(), set(session.step_times())
        change()
        time.sleep(WINDOW_S)
        # The step that is under way belongs to the window too.
        time.sleep(0.5)
        longest[i % 2].append(max(gaps(session, start - 0.2, start + WINDOW_S + 60, names)))
    usual, median = float(np.percentile(quiet, 99.9)), float(np.median(quiet))
    return {
        side: Pauses([1000 * (gap - usual) for gap in found], 1000 * median, 1000 * usual)
        for side, found in longest.items()
    }


def gaps(session: Session, start: float, end: float, names: set[str] | None = None) -> list[float]:
    """Seconds between steps of each worker that ended in [start, end); of those in `names` only."""
    found: list[float] = []
    for name, times in session.step_times().items():
        if names is None or name in names:
            steps = np.array(times)
            ended = steps[1:]
            found += np.diff(steps)[(ended >= start) & (ended < end)].tolist()
    return found


def scale_pauses(job: Job, rounds: int) -> dict[str, Pauses]:
    """Workers 2 → 3 → 2, the third started cold each time; with snapshots and recovery on."""
    with Session(job, snapshot_s=SNAPSHOT_S, recover=True) as session:
        session.scale(TWO)
        time.sleep(_SETTLED_S)
        found = measure_pauses(session, [lambda: session.scale(THREE), lambda: session.scale(TWO)] * rounds)
        return {"scale_out": found[0], "scale_in": found[1]}


def move_pauses(job: Job, rounds: int) -> tuple[Pauses, int]:
    """The one PS replaced by another, again and again; and the rows that it has."""
    with Session(job, snapshot_s=SNAPSHOT_S, recover=True) as session:
        session.scale(TWO)
        time.sleep(_SETTLED_S)
        rows = session.observe().of("ps")[0].rows

        def replace() -> None:
            session.replace(next(name for name in session.pids() if name.startswith("ps")))

        found = measure_pauses(session, [replace] * rounds)
        return Pauses(found[0].excess_ms + found[1].excess_ms, *found[0][1:]), rows


@contextmanager
def saturated(cores: int) -> Iterator[None]:
    """Every core busy with something else as well."""
    burning = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(cores)]
    for process in burning:
        process.start()
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.join()


def reserve_seconds(job: Job, rounds: int) -> dict[str, list[float]]:
    """Seconds of a third worker's joining, started cold and from the reserve."""
    found: dict[str, list[float]] = {}
    for name, reserve in (("cold", 0), ("reserve", 1)):
        with Session(job, reserve={"worker": reserve}) as session:
            session.scale(TWO)
            for _ in range(rounds):
                time.sleep(_FILLED_S)  # the reserve is filled in the background
                start = time.monotonic()
                session.scale(THREE)
                found.setdefault(name, []).append(time.monotonic() - start)
                session.scale(TWO)
    return found


class Lost(NamedTuple):
    """Seconds of training lost to one change, live, by stop-and-resume and to none at all, and the median step."""

    live_s: list[float]
    stopped_s: list[float]
    nothing_s: list[float]
    median_step_s: float


def time_lost(job: Job, rounds: int, around_s: float) -> Lost:
    """A PS is replaced live; and the same servers and workers are stopped, kept in memory and resumed.

    For stop-and-resume everything is in its best form: Ray is up, the processes have loaded their libraries, and most
    of the snapshot has been taken before the stop.
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
    replica_group.servers.fill = False  # rows come from the snapshot, so none are made first
    snapshots.take()
    replica_group.pause()
    snapshots.take(polite=False)
    replica_group.launch(TWO, 1.0, snapshots.restore)
    replica_group.servers.fill = True


def _lost(session: Session, change: Callable[[], object], around_s: float) -> float:
    """Δt − samples ÷ steady rate, from `around_s` before the change to as long after it."""
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
    steady = (samples[0] + samples[2]) / (seconds[0] + seconds[2])
    return float(seconds.sum() - samples.sum() / steady)


def _burn() -> None:
    while True:
        pass
