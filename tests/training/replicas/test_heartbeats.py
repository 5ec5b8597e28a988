"""Heartbeats detect silent replicas without false alarms."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

from sizewright.testing import ManualClock
from sizewright.training.replicas.heartbeats import Heartbeats

LIMIT_S = 4.0


class Replicas:
    """Those of `silent` answer nothing."""

    def __init__(self) -> None:
        self.names = ["ps-0", "worker-0"]
        self.silent: set[str] = set()
        self.ended: list[str] = []
        self._refs = itertools.count()

    def beat(self, name: str) -> tuple[str, int]:
        return name, next(self._refs)

    def answered(self, refs: Sequence[tuple[str, int]], timeout_s: float) -> list[tuple[str, int]]:
        return [ref for ref in refs if ref[0] not in self.silent]

    def end(self, name: str) -> None:
        self.ended.append(name)
        self.names.remove(name)

    def heartbeats(self, clock: Callable[[], float] | None = None, **options: Callable[[], object]) -> Heartbeats:
        defaults = {"engine_alive": lambda: True, "lost": lambda: None}
        return Heartbeats(
            lambda: self.names, beat=self.beat, answered=self.answered, end=self.end, limit_s=LIMIT_S, clock=clock,
            **(defaults | options),  # type: ignore[arg-type]
        )  # fmt: skip


def check_for(beats: Heartbeats, clock: ManualClock, seconds: float) -> None:
    for _ in range(int(seconds)):
        clock.sleep(1.0)
        beats.check()


def test_replica_silent_beyond_the_limit_is_ended_once() -> None:
    replicas, clock = Replicas(), ManualClock()
    beats = replicas.heartbeats(lambda: clock.at_s)
    check_for(beats, clock, 10)
    assert replicas.ended == []
    replicas.silent.add("ps-0")
    check_for(beats, clock, LIMIT_S)
    assert replicas.ended == []
    check_for(beats, clock, 3)
    assert replicas.ended == ["ps-0"]


def test_replica_that_answers_in_time_is_kept() -> None:
    replicas, clock = Replicas(), ManualClock()
    beats = replicas.heartbeats(lambda: clock.at_s)
    for _ in range(3):
        replicas.silent.add("worker-0")
        check_for(beats, clock, LIMIT_S - 1)
        replicas.silent.clear()
        check_for(beats, clock, 1)
    assert replicas.ended == []


def test_own_pause_does_not_count_as_silence() -> None:
    """It was stopped, or its machine slept: answers of others were not heard."""
    replicas, clock = Replicas(), ManualClock()
    beats = replicas.heartbeats(lambda: clock.at_s)
    replicas.silent.add("ps-0")
    check_for(beats, clock, 2)
    clock.sleep(3600.0)
    beats.check()
    assert replicas.ended == []
    check_for(beats, clock, LIMIT_S + 1)
    assert replicas.ended == ["ps-0"]


def test_silent_replica_is_ended_although_every_check_is_late() -> None:
    replicas, clock = Replicas(), ManualClock()
    beats = replicas.heartbeats(lambda: clock.at_s)
    replicas.silent.add("ps-0")
    late_s = 0.6 * LIMIT_S
    for _ in range(4):  # the first sends the call, the second restarts its time
        assert replicas.ended == []
        clock.sleep(late_s)
        beats.check()
    assert replicas.ended == ["ps-0"]


def test_every_suspension_is_forgiven_to_a_replica_that_answers_between_them() -> None:
    replicas, clock = Replicas(), ManualClock()
    beats = replicas.heartbeats(lambda: clock.at_s)
    for _ in range(3):
        replicas.silent.add("ps-0")
        check_for(beats, clock, 2)
        clock.sleep(3600.0)
        beats.check()
        replicas.silent.clear()
        check_for(beats, clock, 1)
    assert replicas.ended == []


def test_removed_replica_is_forgotten() -> None:
    replicas, clock = Replicas(), ManualClock()
    beats = replicas.heartbeats(lambda: clock.at_s)
    replicas.silent.add("worker-0")
    check_for(beats, clock, 2)
    replicas.names.remove("worker-0")
    check_for(beats, clock, 10)
    assert replicas.ended == []


def test_lost_ray_is_reported_once_and_a_failed_check_ends_nothing() -> None:
    replicas, lost, checks = Replicas(), threading.Event(), itertools.count()

    def alive() -> bool:
        look = next(checks)
        if look == 0:
            raise RuntimeError("amid its end")
        return look < 2

    reports = []

    def tell() -> None:
        reports.append("lost")
        lost.set()

    beats = replicas.heartbeats(engine_alive=alive, lost=tell)
    beats.start()
    assert lost.wait(30)
    beats.stop()
    assert reports == ["lost"]
