"""Jobs that are small enough to enumerate, and trials that follow a known form."""

from __future__ import annotations

import itertools
import random
from typing import Any

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import GIB, MIB
from sizewright.spec import Bounds, Job, Model, Optimizer, RoleBounds, Tables, Training

ROW_BYTES = 4 * (8 + 1)
EMBEDDING_BYTES = 200_000 * ROW_BYTES
BOUNDS = Bounds(
    worker=RoleBounds(replicas=(1, 4), cpu=(0.5, 1.0), memory=(0, 4 * GIB)),
    ps=RoleBounds(replicas=(1, 3), cpu=(0.25, 0.5), memory=(0, 4 * GIB)),
)
# All numbers of cores that the bounds above allow.
WORKER_CPU = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]
PS_CPU = [0.25, 0.3, 0.35, 0.4, 0.45, 0.5]
COEFFICIENTS = (0.003, 4e-5, 0.002, 0.001)


def small_job(**change: Any) -> Job:
    job = Job(
        name="small",
        model=Model(
            tables=Tables(count=2, rows=100_000, dim=8),
            optimizer=Optimizer(name="rowwise_adagrad"),
            bottom_mlp=(16,),
            top_mlp=(16,),
        ),
        training=Training(batch_size=256, samples=10_000_000),
        bounds=BOUNDS,
    )
    return Job.model_validate(job.model_dump() | change)


def rate(
    w: float, p: float, wc: float, pc: float, m: float = 256, coefficients: tuple[float, ...] = COEFFICIENTS
) -> float:
    beta, compute, update, synchronisation = coefficients
    return w * m / (beta + compute * m / wc + update * w / (p * pc) + synchronisation * w / p)


def trials(
    noise: float = 0.0, seed: int = 0, coefficients: tuple[float, ...] = COEFFICIENTS, count: int = 24, **change: Any
) -> list[Trial]:
    rng = random.Random(seed)
    corners = list(itertools.product((1, 2, 4), (1, 3), (0.5, 1.0), (0.25, 0.5)))
    rng.shuffle(corners)
    rows = []
    for w, p, wc, pc in corners[:count]:
        measured = rate(w, p, wc, pc, coefficients=coefficients) * rng.lognormvariate(0, noise)
        row = {
            "workers": w, "ps": p, "worker_cpu": wc, "ps_cpu": pc, "batch_size": 256, "throughput": measured,
            "embedding_bytes": EMBEDDING_BYTES, "worker_memory_bytes": 300 * MIB, "ps_memory_bytes": 200 * MIB,
            "worker_cpu_used": 0.5 * wc, "ps_cpu_used": 0.2 * pc, "host": "h1", "limited_by": "cgroup", "sync": "async",
        }  # fmt: skip
        rows.append(Trial.model_validate(row | change))
    return rows
