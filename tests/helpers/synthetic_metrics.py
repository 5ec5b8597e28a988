"""Synthetic metrics of a running job."""

from __future__ import annotations

from typing import Any

from sizewright.spec import Metrics, ReplicaMetrics


def replica(name: str, at_s: float, **sums: Any) -> ReplicaMetrics:
    """Return the metrics of a replica by its name, such as `ps-1`."""
    role, _, index = name.partition("-")
    defaults = {"cpu_s": 0.5 * at_s, "throttled_s": 0.0, "memory_peak_bytes": 10**8}
    return ReplicaMetrics.model_validate({"role": role, "index": int(index), "at_s": at_s} | defaults | sums)


def metrics(at_s: float, workers: int = 3, ps: int = 2, rate: float = 100.0, **sums: dict[str, Any]) -> Metrics:
    """Return metrics of workers that take 10 steps/s each and PS that serve all of them.

    `sums` overrides counters of single replicas, by name with `_` for `-`.
    """
    steps = int(10 * at_s)
    busy = {"steps": steps, "compute_s": 0.8 * at_s, "data_s": 0.05 * at_s}
    served = {"exchanges": steps * workers, "busy_s": 0.3 * at_s, "lookups": steps * 100, "rows": 1000}
    replicas = {f"worker-{i}": dict(busy) for i in range(workers)} | {f"ps-{i}": dict(served) for i in range(ps)}
    for name, changed in sums.items():
        replicas[name.replace("_", "-")] |= changed
    return Metrics(
        replicas=tuple(replica(name, at_s, **each) for name, each in replicas.items()),
        samples_trained=round(rate * at_s), samples_left=10**6,
    )  # fmt: skip
