"""A session in memory: training that is arithmetic over a clock and a throughput function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sizewright.errors import EngineError, ReplicaDiedError
from sizewright.spec import Allocation, Change, Failure, Job, Metrics, Outcome, ReplicaMetrics, Resources, Role, Status
from sizewright.spec.units import MIB
from sizewright.testing.clock import SleepingClock

Throughput = Callable[[Allocation], float]

_WORKER_BUSY, _PS_BUSY, _ENGINE_CORES = 0.9, 0.5, 0.1
_PHASES = {"data_s": 0.05, "pull_s": 0.2, "compute_s": 0.6, "push_s": 0.15}  # shares of a step
_MEMORY_BYTES: dict[str, int] = {"worker": 300 * MIB, "ps": 200 * MIB}
_ROWS, _ROW_BYTES, _IDS_PER_SAMPLE = 100_000, 128, 26


def default_throughput(allocation: Allocation) -> float:
    """Samples/s that saturate: 1000 a worker core, held up by PS that serve 4000 a core."""
    workers, servers = allocation.cores("worker"), allocation.cores("ps")
    return 1.0 / (1.0 / (1000.0 * workers) + 1.0 / (4000.0 * servers)) if workers and servers else 0.0


@dataclass
class _Replica:
    """Sums since it began."""

    role: Role
    index: int
    resources: Resources
    trained_s: float = 0.0
    cpu_s: float = 0.0
    steps: float = 0.0
    samples: float = 0.0
    wait_s: float = 0.0
    busy_s: float = 0.0
    lookups: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class FakeSession:
    """Answers as `sizewright.training.session.Session` does; the same calls give the same numbers.

    A change takes `change_s()` seconds, during which training goes on if `live`.
    """

    def __init__(
        self,
        job: Job,
        clock: SleepingClock,
        throughput: Throughput,
        *,
        samples: int | None = None,
        change_s: Callable[[], float] = lambda: 0.0,
        live: bool = True,
    ) -> None:
        self.job = job
        self.allocation: Allocation | None = None
        self.lookup_shares: tuple[float, ...] | None = None
        """Of each PS; even where there are none, or not one for each."""
        self._clock, self._throughput = clock, throughput
        self._change_s, self._live = change_s, live
        self._wanted = samples or job.samples or math.inf
        self._replicas: dict[Role, list[_Replica]] = {"ps": [], "worker": []}
        self._numbers: dict[Role, Iterator[int]] = {"ps": itertools.count(), "worker": itertools.count()}
        self._samples = 0.0
        self._began = self._settled = clock()
        self._status: Status = "running"
        self._failures: list[Failure] = []
        self._changes: list[Change] = []

    def scale(self, allocation: Allocation) -> None:
        """Train at `allocation`; replicas that remain keep their sums. Raises EngineError without worker or PS."""
        self._check_alive()
        if not allocation.replicas("worker") or not allocation.replicas("ps"):
            raise EngineError("The allocation needs at least one worker and one PS.", "Set replicas to 1 or more.")
        self._settle()
        before, started = self.allocation, self._clock()
        if before:
            self._clock.sleep(self._change_s())
            if self._live:
                self._settle()
        self._settled = self._clock()
        for role, there in self._replicas.items():
            self._replicas[role] = [
                self._resized(role, replica, resources)
                for replica, resources in itertools.zip_longest(
                    there[: allocation.replicas(role)], allocation.each(role)
                )
            ]
        self.allocation = allocation
        if before:
            told = f"{before.describe()} → {allocation.describe()}"
            seconds = self._settled - started
            self._changes.append(Change(at_s=started - self._began, kind="scale", seconds=seconds, description=told))

    def replace(self, name: str) -> str:
        """Another process in the place of a replica; the answer is its name."""
        self._take_time("replace", name)
        return self._put_in_place(name).name

    def rebalance(self) -> None:
        """The PS have equal shares of the look-ups from then on. Raises EngineError for a single PS."""
        if len(self._replicas["ps"]) < 2:
            raise EngineError("The job has one PS, which serves all look-ups.", "Scale it to two PS or more first.")
        self._take_time("rebalance", "look-ups")
        self.lookup_shares = None

    def skew_lookups(self, shares: tuple[float, ...]) -> None:
        """Of the look-ups from now on."""
        self._settle()
        self.lookup_shares = shares

    def expect_memory(self, ps_bytes: int) -> None:
        """Kept to be looked at."""
        self.expected_bytes = ps_bytes

    def observe(self) -> Metrics:
        """Sums of every replica. Raises ReplicaDiedError when a failure was not recovered from."""
        self._check_alive()
        self._settle()
        return Metrics(
            replicas=tuple(self._metrics(replica) for replica in self._all()),
            engine_cpu_s=_ENGINE_CORES * (self._clock() - self._began),
            samples_trained=round(self._samples),
            samples_left=round(self._wanted - self._samples),
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Let up to `timeout_s` seconds pass; whether all samples are trained."""
        self._settle()
        rate = self._rate()
        left_s = (self._wanted - self._samples) / rate if rate else math.inf
        if self._status == "running" and min(left_s, timeout_s or math.inf) < math.inf:
            self._clock.sleep(left_s if timeout_s is None else min(left_s, timeout_s))
            self._settle()
        return self._done

    def outcome(self) -> Outcome:
        """What became of it, or how it is."""
        self._settle()
        message = f"{self._failures[-1].replica} failed and was not recovered." if self._status == "failed" else ""
        return Outcome(
            status="finished" if self._done else self._status,
            message=message,
            samples=round(self._samples),
            duration_s=self._settled - self._began,
            samples_repeated=sum(failure.samples_repeated for failure in self._failures),
            updates_lost=sum(failure.updates_lost for failure in self._failures),
            failures=tuple(self._failures),
            changes=tuple(self._changes),
        )

    def stop(self) -> None:
        """Train no further."""
        self._settle()
        if self._status == "running":
            self._status = "stopped"

    def fail(self, failure: Failure) -> None:
        """A replica was lost: another takes its place, or the job has failed where `recovered_s` is none."""
        self._settle()
        self._put_in_place(failure.replica)
        self._failures.append(failure.model_copy(update={"at_s": self._settled - self._began}))
        if failure.recovered_s is None:
            self._status = "failed"

    @property
    def _done(self) -> bool:
        return self._samples > self._wanted - 1e-3  # sums of floats

    def _all(self) -> list[_Replica]:
        return [*self._replicas["ps"], *self._replicas["worker"]]

    def _resized(self, role: Role, replica: _Replica | None, resources: Resources) -> _Replica:
        """The same replica with other resources, or a new one; no number is given twice."""
        replica = replica or _Replica(role, next(self._numbers[role]), resources)
        replica.resources = resources
        return replica

    def _put_in_place(self, name: str) -> _Replica:
        """A new replica for the one of this name. Raises ValueError for a stranger."""
        lost = next((replica for replica in self._all() if replica.name == name), None)
        if lost is None:
            names = ", ".join(replica.name for replica in self._all())
            raise ValueError(f"there is no replica {name!r}; there are {names}")
        there = self._replicas[lost.role]
        new = self._resized(lost.role, None, lost.resources)
        there[there.index(lost)] = new
        return new

    def _take_time(self, kind: str, told: str) -> None:
        """That of a change among the replicas that are there."""
        self._check_alive()
        self._settle()
        started = self._clock()
        self._clock.sleep(self._change_s())
        if self._live:
            self._settle()
        self._settled = self._clock()
        seconds = self._settled - started
        self._changes.append(Change(at_s=started - self._began, kind=kind, seconds=seconds, description=told))

    def _shares(self) -> list[float]:
        """Of the look-ups, PS by PS, in even shares."""
        count = len(self._replicas["ps"])
        shares = self.lookup_shares
        return [share * count for share in shares] if shares and len(shares) == count else [1.0] * count

    def _speed(self) -> float:
        """Samples/s while it trains: all wait for the PS with most look-ups."""
        assert self.allocation is not None
        return self._throughput(self.allocation) / max(self._shares())

    def _rate(self) -> float:
        return self._speed() if self.allocation and self._status == "running" else 0.0

    def _settle(self) -> None:
        """Account for what was trained since the last time."""
        now, rate = self._clock(), self._rate()
        if self._status != "running" or self.allocation is None:
            return
        seconds = now - self._settled
        shares = self._shares()
        most = max(shares)
        if rate:
            seconds = min(seconds, (self._wanted - self._samples) / rate)
        self._samples = min(self._wanted, self._samples + rate * seconds)
        cores, batch = self.allocation.cores("worker"), self.allocation.batch_size
        for replica in self._all():
            busy = _WORKER_BUSY if replica.role == "worker" else _PS_BUSY
            replica.trained_s += seconds
            replica.cpu_s += busy * replica.resources.cpu * seconds
            mine = replica.resources.cpu / cores if replica.role == "worker" else 1.0  # a PS serves every step
            replica.samples += rate * seconds * mine
            replica.steps += rate * seconds * mine / batch
            replica.wait_s += seconds * (1 - 1 / most)
        for replica, share in zip(self._replicas["ps"], shares, strict=True):
            replica.busy_s += _PS_BUSY * seconds * share / most
            replica.lookups += rate * seconds * _IDS_PER_SAMPLE * share / len(shares)
        self._settled += seconds

    def _check_alive(self) -> None:
        if self._status == "failed":
            raise ReplicaDiedError(f"{self._failures[-1].replica} failed: {self._failures[-1].cause}.")

    def _metrics(self, replica: _Replica) -> ReplicaMetrics:
        told = {
            "role": replica.role, "index": replica.index, "at_s": self._clock(), "cpu_s": replica.cpu_s,
            "throttled_s": 0.0, "memory_peak_bytes": _MEMORY_BYTES[replica.role],
            "limited_by": "cgroup",
        }  # fmt: skip
        more = self._of_worker(replica) if replica.role == "worker" else self._of_ps(replica)
        return ReplicaMetrics.model_validate(told | more)

    def _of_worker(self, replica: _Replica) -> dict[str, float]:
        """Whole steps only, and the time at which the last of them ended."""
        assert self.allocation is not None
        steps, batch = int(replica.steps + 1e-9), self.allocation.batch_size
        begun = max(0.0, replica.steps - steps)
        rate = self._speed() * replica.resources.cpu / self.allocation.cores("worker")
        samples = round(replica.samples - begun * batch)
        return {
            "steps": steps,
            "samples": samples,
            "last_step_at_s": self._settled - (begun * batch / rate if rate else 0.0),
            "unique_rows": samples * _IDS_PER_SAMPLE,
            "bytes_sent": samples * _IDS_PER_SAMPLE * _ROW_BYTES,
            "bytes_received": samples * _IDS_PER_SAMPLE * _ROW_BYTES,
            "wait_s": replica.wait_s,
            "loss": 0.7 / (1 + samples / 1e6),
        } | {phase: share * replica.trained_s for phase, share in _PHASES.items()}

    def _of_ps(self, replica: _Replica) -> dict[str, float]:
        """Rows lie evenly on the PS."""
        assert self.allocation is not None
        servers = self.allocation.replicas("ps")
        return {
            "exchanges": int(replica.steps),
            "pushes": int(replica.steps),
            "busy_s": replica.busy_s,
            "lookups": int(replica.lookups),
            "rows": _ROWS // servers,
            "embedding_bytes": _ROWS * _ROW_BYTES // servers,
        }
