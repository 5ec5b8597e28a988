"""Custom trainers with their own clock and known rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sizewright.errors import TrialError
from sizewright.profiler.measure.measure import Timing
from sizewright.spec import Allocation, Job, Metrics, ReplicaMetrics

BLOCK_S = 0.5
# No waiting: the trainer's clock advances by one block with every observation.
AT_ONCE = Timing(warm_up_s=0, first_warm_up_s=0, block_s=0)


class SteadyTrainer:
    """Every worker takes a step each `step_s`; `fails` maps the number of a scaling to its error.

    A step costs the same CPU seconds however long it takes, so that slower ones use fewer cores.
    """

    def __init__(
        self,
        job: Job,
        *,
        step_s: float | Callable[[int], float] = 0.1,
        worker_cpu: float = 0.9,
        limited_by: str = "cgroup",
        fails: dict[int, BaseException] | None = None,
    ) -> None:
        self.job = job
        self.host = "somewhere"
        self.scaled: list[tuple[Allocation, float]] = []
        self.discarded = 0
        self.paused = 0
        self._step_s, self._share, self._limited_by, self._fails = step_s, worker_cpu, limited_by, fails or {}
        self._at_s = 100.0

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        self.scaled.append((allocation, table_scale))
        error = self._fails.get(len(self.scaled))
        if error:
            raise error

    def pause(self) -> None:
        self.paused += 1

    def discard(self) -> None:
        self.discarded += 1

    def observe(self) -> Metrics:
        self._at_s += BLOCK_S
        allocation = self.scaled[-1][0]
        each = self._step_s(len(self.scaled)) if callable(self._step_s) else self._step_s
        steps = int(self._at_s / each + 1e-9)
        busy_s = self._at_s * 0.1 / each
        about = {"at_s": self._at_s, "throttled_s": 0.01 * self._at_s, "limited_by": self._limited_by}
        about["cfs_period_ms"] = 20
        workers = [
            ReplicaMetrics.model_validate(
                about
                | {
                    "role": "worker", "index": i, "cpu_s": self._share * resources.cpu * busy_s,
                    "memory_peak_bytes": 1000 + i, "steps": steps, "samples": steps * allocation.batch_size,
                    "last_step_at_s": steps * each, "data_s": 0.001 * steps, "pull_s": 0.002 * steps,
                    "compute_s": 0.003 * steps, "push_s": 0.004 * steps, "unique_rows": 7 * steps,
                    "bytes_sent": 4 * steps, "bytes_received": 7 * steps,
                }
            )
            for i, resources in enumerate(allocation.each("worker"))
        ]  # fmt: skip
        servers = [
            ReplicaMetrics.model_validate(
                about
                | {
                    "role": "ps", "index": i, "cpu_s": 0.5 * resources.cpu * busy_s, "memory_peak_bytes": 2000 + i,
                    "exchanges": steps * len(workers), "busy_s": 0.005 * (i + 1) * steps * len(workers),
                    "lookups": 100 * (i + 1) * steps, "rows": 50, "embedding_bytes": 640,
                }
            )
            for i, resources in enumerate(allocation.each("ps"))
        ]  # fmt: skip
        return Metrics(replicas=(*servers, *workers), engine_cpu_s=0.2 * self._at_s)


class ScriptedTrainer:
    """One worker whose throughput in successive blocks is `rates`, in samples/s."""

    def __init__(self, job: Job, rates: Iterable[float]) -> None:
        self.job = job
        self.host = "somewhere"
        self._samples = [0.0]
        for rate in rates:
            self._samples.append(self._samples[-1] + rate * BLOCK_S)
        self._blocks = -1

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        self._cpu = allocation.worker[0].cpu

    def pause(self) -> None:
        raise AssertionError("a single trial needs no pause")

    def discard(self) -> None:
        raise AssertionError("nothing failed")

    def observe(self) -> Metrics:
        self._blocks += 1
        at_s = 50 + BLOCK_S * self._blocks
        about = {"at_s": at_s, "cpu_s": 0.0, "throttled_s": 0.0, "memory_peak_bytes": 1}
        moved = self._samples[self._blocks] > self._samples[self._blocks - 1] if self._blocks else True
        self._last_s = at_s if moved else self._last_s
        self._steps = (self._steps + moved) if self._blocks else 1
        worker = about | {
            "role": "worker", "index": 0, "steps": self._steps, "samples": round(self._samples[self._blocks]),
            "last_step_at_s": self._last_s,
        }  # fmt: skip
        return Metrics.model_validate({"replicas": [about | {"role": "ps", "index": 0}, worker]})


def failing(message: str = "it fell over") -> TrialError:
    return TrialError(message)
