"""Whether the simulation of the mix is right: jobs that really train here, tuned, beside the same in simulation.

Curves were measured on a host of another speed: how fast this one is beside it is measured first, for each job, at the
best allocation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._report import choose
from benchmarks._stages_mix import LIVE_COST, simulated
from benchmarks._stages_run import Setting, train
from benchmarks.warm_start import Truth, truths_of
from sizewright.spec import Allocation, Cluster, HostKind, Quota

BASES = ("criteo-dlrm", "wide-and-deep", "xdeepfm-small", "criteo-dcn", "mlperf-dlrm", "rm1", "deep-dcn", "ncf")
_QUOTA = Quota(cpu=choose(1.6, 1.6, 0.6))
ROOM = Cluster(name="host", hosts=(HostKind(kind="host", cpu=2.0, memory_bytes=16 << 30),), quota=_QUOTA)
_RUN_S, _SPEED_S = choose(60.0, 60.0, 2.0), choose(20.0, 20.0, 0.5)
_TOO_LITTLE = (1, 1, 0.2, 0.1)


def validation() -> dict[str, Any]:
    """Seconds of each job, which asked for too little: really, and simulated on the curve of its measured trials."""
    rows = [_compared(truths_of(base)[0]) for base in BASES[: choose(len(BASES), len(BASES), 1)]]
    gaps = [abs(row["simulated_s"] / row["trained_s"] - 1) for row in rows]
    return {"jobs": rows, "mean_gap": float(np.mean(gaps)), "most_gap": max(gaps)}


def _compared(truth: Truth) -> dict[str, Any]:
    start = Allocation.of(*_TOO_LITTLE, truth.job.training.batch_size)
    room = truth.grid.workers * truth.grid.worker_cpu + truth.grid.ps * truth.grid.ps_cpu <= ROOM.cpu_limit
    best = truth.grid.allocation(int(np.flatnonzero(room)[np.argmin(truth.objective[room])]))
    speed = _speed_here(truth, best)
    samples = round(truth.rate(best) * speed * _RUN_S)
    training = truth.job.training.model_copy(update={"samples": samples})
    job = truth.job.model_copy(update={"training": training})
    foretold = truth.prior.curve(job)
    setting = Setting(job, start, samples, foretold=foretold, cluster=ROOM)
    ran = train(setting, "auto")
    told = simulated(truth, job, start, foretold, noise=speed, cost=LIVE_COST, turn_s=1.0, cluster=ROOM)
    took = f"trained {ran.jct_s:.0f} s, simulated {told.seconds:.0f} s"
    print(f"{truth.job.name:<18} {took}; {ran.final}; host {speed:.2f}", flush=True)
    return {
        "job": truth.job.name, "host_speed": speed, "trained_s": ran.jct_s, "simulated_s": told.seconds,
        "trained_at": ran.final, "simulated_at": told.spans[-1][0].describe(),
        "changes": [len(ran.changes), told.changes],
    }  # fmt: skip


def _speed_here(truth: Truth, at: Allocation) -> float:
    """Samples/s over those of the curve."""
    samples = round(truth.rate(at) * _SPEED_S)
    ran = train(Setting(truth.job, at, samples), "queue")
    return ran.samples / ran.jct_s / truth.rate(at)
