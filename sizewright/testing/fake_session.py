"""A training session in memory, computed from a clock and a throughput function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sizewright.errors import EngineError, ReplicaDiedError
from sizewright.formatting import MIB
from sizewright.spec import Allocation, Change, Failure, Job, Metrics, Outcome, ReplicaMetrics, Resources, Role, Status
from sizewright.testing.clock import SleepingClock

Throughput = Callable[[Allocation], float]

_WORKER_UTILIZATION = 0.9
_PS_UTILIZATION = 0.5
_ENGINE_CORES = 0.1
_PHASES = {"data_s": 0.05, "pull_s": 0.2, "compute_s": 0.6, "push_s": 0.15}  # shares of a step
_MEMORY_BYTES: dict[str, int] = {"worker": 300 * MIB, "ps": 200 * MIB}
_ROWS = 100_000
_ROW_BYTES = 128
_IDS_PER_SAMPLE = 26


def default_throughput(allocation: Allocation) -> float:
    """Return samples/s that saturate: 1000 per worker core, limited by PS that serve 4000 per core."""
    workers, servers = allocation.cores("worker"), allocation.cores("ps")
    return 1.0 / (1.0 / (1000.0 * workers) + 1.0 / (4000.0 * servers)) if workers and servers else 0.0


@dataclass
class _Replica:
    """A replica with its cumulative metrics."""

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
    """A fake of `sizewright.training.session.Session`; the same calls give the same numbers.

    A change takes `change_s()` seconds, during which training continues if `live`.
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
        """The share of the look-ups of each PS; they are equal if this is None or has another length."""
        self._clock = clock
        self._throughput = throughput
        self._change_s = change_s
        self._live = live
        self._total = samples or job.samples or math.inf
        self._replicas: dict[Role, list[_Replica]] = {"ps": [], "worker": []}
        self._numbers: dict[Role, Iterator[int]] = {"ps": itertools.count(), "worker": itertools.count()}
        self._samples = 0.0
        self._started = self._settled = clock()
        self._status: Status = "running"
        self._failures: list[Failure] = []
        self._changes: list[Change] = []

    def scale(self, allocation: Allocation) -> None:
        """Train with `allocation`; remaining replicas keep their metrics. Raises EngineError without worker or PS."""
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
        for role, replicas in self._replicas.items():
            kept = replicas[: allocation.replicas(role)]
            self._replicas[role] = [
                self._resized(role, replica, resources)
                for replica, resources in itertools.zip_longest(kept, allocation.each(role))
            ]
        self.allocation = allocation
        if before:
            self._record_change("scale", started, f"{before.describe()} → {allocation.describe()}")

    def replace(self, name: str) -> str:
        """Replace a replica by a new one, and return its name."""
        self._change("replace", name)
        return self._substitute(name).name

    def rebalance(self) -> None:
        """Give all PS equal shares of the look-ups. Raises EngineError for a single PS."""
        if len(self._replicas["ps"]) < 2:
            raise EngineError("The job has one PS, which serves all look-ups.", "Scale it to two PS or more first.")
        self._change("rebalance", "look-ups")
        self.lookup_shares = None

    def skew_lookups(self, shares: tuple[float, ...]) -> None:
        """Set the shares of the look-ups from now on."""
        self._settle()
        self.lookup_shares = shares

    def expect_memory(self, ps_bytes: int) -> None:
        """Record the expected memory, for assertions."""
        self.expected_bytes = ps_bytes

    def observe(self) -> Metrics:
        """Return the cumulative metrics of every replica. Raises ReplicaDiedError after an unrecovered failure."""
        self._check_alive()
        self._settle()
        return Metrics(
            replicas=tuple(self._metrics(replica) for replica in self._all()),
            engine_cpu_s=_ENGINE_CORES * (self._clock() - self._started),
            samples_trained=round(self._samples),
            samples_left=round(self._total - self._samples),
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Move the clock by up to `timeout_s` seconds. Return True if all samples are trained."""
        self._settle()
        rate = self._rate()
        remaining_s = (self._total - self._samples) / rate if rate else math.inf
        if self._status == "running" and min(remaining_s, timeout_s or math.inf) < math.inf:
            self._clock.sleep(remaining_s if timeout_s is None else min(remaining_s, timeout_s))
            self._settle()
        return self._done

    def outcome(self) -> Outcome:
        """Return the outcome, also of a job that still runs."""
        self._settle()
        message = f"{self._failures[-1].replica} failed and was not recovered." if self._status == "failed" else ""
        return Outcome(
            status="finished" if self._done else self._status,
            message=message,
            samples=round(self._samples),
            duration_s=self._settled - self._started,
            samples_repeated=sum(failure.samples_repeated for failure in self._failures),
            updates_lost=sum(failure.updates_lost for failure in self._failures),
            failures=tuple(self._failures),
            changes=tuple(self._changes),
        )

    def stop(self) -> None:
        """Stop training."""
        self._settle()
        if self._status == "running":
            self._status = "stopped"

    def fail(self, failure: Failure) -> None:
        """Lose a replica and replace it; the job fails if `recovered_s` is None."""
        self._settle()
        self._substitute(failure.replica)
        self._failures.append(failure.model_copy(update={"at_s": self._settled - self._started}))
        if failure.recovered_s is None:
            self._status = "failed"

    @property
    def _done(self) -> bool:
        return self._samples > self._total - 1e-3  # sums of floats

    def _all(self) -> list[_Replica]:
        return [*self._replicas["ps"], *self._replicas["worker"]]

    def _resized(self, role: Role, replica: _Replica | None, resources: Resources) -> _Replica:
        """Return the replica with other resources, or a new one; no index is used twice."""
        replica = replica or _Replica(role, next(self._numbers[role]), resources)
        replica.resources = resources
        return replica

    def _substitute(self, name: str) -> _Replica:
        """Put a new replica in the place of this one. Raises ValueError for an unknown name."""
        lost = next((replica for replica in self._all() if replica.name == name), None)
        if lost is None:
            names = ", ".join(replica.name for replica in self._all())
            raise ValueError(f"there is no replica {name!r}; there are {names}")
        replicas = self._replicas[lost.role]
        new = self._resized(lost.role, None, lost.resources)
        replicas[replicas.index(lost)] = new
        return new

    def _change(self, kind: str, description: str) -> None:
        """Let the time of a change pass, and record it."""
        self._check_alive()
        self._settle()
        started = self._clock()
        self._clock.sleep(self._change_s())
        if self._live:
            self._settle()
        self._settled = self._clock()
        self._record_change(kind, started, description)

    def _record_change(self, kind: str, started: float, description: str) -> None:
        seconds = self._settled - started
        self._changes.append(Change(at_s=started - self._started, kind=kind, seconds=seconds, description=description))

    def _shares(self) -> list[float]:
        """Return the look-ups of each PS, relative to equal shares."""
        count = len(self._replicas["ps"])
        shares = self.lookup_shares
        return [share * count for share in shares] if shares and len(shares) == count else [1.0] * count

    def _speed(self) -> float:
        """Return samples/s while the job trains: all replicas wait for the PS with the most look-ups."""
        assert self.allocation is not None
        return self._throughput(self.allocation) / max(self._shares())

    def _rate(self) -> float:
        return self._speed() if self.allocation and self._status == "running" else 0.0

    def _settle(self) -> None:
        """Update the metrics by what was trained since the last update."""
        now, rate = self._clock(), self._rate()
        if self._status != "running" or self.allocation is None:
            return
        seconds = now - self._settled
        shares = self._shares()
        max_share = max(shares)
        if rate:
            seconds = min(seconds, (self._total - self._samples) / rate)
        self._samples = min(self._total, self._samples + rate * seconds)
        cores, batch = self.allocation.cores("worker"), self.allocation.batch_size
        for replica in self._all():
            utilization = _WORKER_UTILIZATION if replica.role == "worker" else _PS_UTILIZATION
            replica.trained_s += seconds
            replica.cpu_s += utilization * replica.resources.cpu * seconds
            step_share = replica.resources.cpu / cores if replica.role == "worker" else 1.0  # a PS serves every step
            replica.samples += rate * seconds * step_share
            replica.steps += rate * seconds * step_share / batch
            replica.wait_s += seconds * (1 - 1 / max_share)
        for replica, share in zip(self._replicas["ps"], shares, strict=True):
            replica.busy_s += _PS_UTILIZATION * seconds * share / max_share
            replica.lookups += rate * seconds * _IDS_PER_SAMPLE * share / len(shares)
        self._settled += seconds

    def _check_alive(self) -> None:
        if self._status == "failed":
            raise ReplicaDiedError(f"{self._failures[-1].replica} failed: {self._failures[-1].cause}.")

    def _metrics(self, replica: _Replica) -> ReplicaMetrics:
        common = {
            "role": replica.role,
            "index": replica.index,
            "at_s": self._clock(),
            "cpu_s": replica.cpu_s,
            "throttled_s": 0.0,
            "memory_peak_bytes": _MEMORY_BYTES[replica.role],
            "limited_by": "cgroup",
        }
        of_role = self._worker_metrics(replica) if replica.role == "worker" else self._ps_metrics(replica)
        return ReplicaMetrics.model_validate(common | of_role)

    def _worker_metrics(self, replica: _Replica) -> dict[str, float]:
        """Return metrics that count whole steps only, and the time at which the last of them ended."""
        assert self.allocation is not None
        steps, batch = int(replica.steps + 1e-9), self.allocation.batch_size
        partial_step = max(0.0, replica.steps - steps)
        rate = self._speed() * replica.resources.cpu / self.allocation.cores("worker")
        samples = round(replica.samples - partial_step * batch)
        return {
            "steps": steps,
            "samples": samples,
            "last_step_at_s": self._settled - (partial_step * batch / rate if rate else 0.0),
            "unique_rows": samples * _IDS_PER_SAMPLE,
            "bytes_sent": samples * _IDS_PER_SAMPLE * _ROW_BYTES,
            "bytes_received": samples * _IDS_PER_SAMPLE * _ROW_BYTES,
            "wait_s": replica.wait_s,
            "loss": 0.7 / (1 + samples / 1e6),
        } | {phase: share * replica.trained_s for phase, share in _PHASES.items()}

    def _ps_metrics(self, replica: _Replica) -> dict[str, float]:
        """Return metrics in which each PS has the same number of rows."""
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
