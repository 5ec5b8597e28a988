"""Validation of the simulated mix: tuned jobs that really train, compared with the same jobs in simulation.

The curves were measured on a host of another speed. The relative speed of this host is therefore measured for each job
at the best allocation, once before and once after the tuned run and over as many samples: the host's speed drifts, and
a job whose tables still fill trains slower at its start.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks._report import choose
from benchmarks._stages_mix import LIVE_COST, simulated
from benchmarks._stages_run import Setting, train
from benchmarks.warm_start import Truth, truths_of
from sizewright.spec import Allocation, Cluster, HostKind, Quota

BASES = ("criteo-dlrm", "wide-and-deep", "xdeepfm-small", "criteo-dcn", "mlperf-dlrm", "rm1", "deep-dcn", "ncf")
_QUOTA = Quota(cpu=choose(1.6, 1.6, 0.6))
CLUSTER = Cluster(name="host", hosts=(HostKind(kind="host", cpu=2.0, memory_bytes=16 << 30),), quota=_QUOTA)
_RUN_S, _SPEED_S = choose(60.0, 20.0, 2.0), choose(20.0, 5.0, 0.5)
_UNDERSIZED = (1, 1, 0.2, 0.1)


def validation() -> dict[str, Any]:
    """Return the seconds of under-sized jobs, trained and simulated on the curve of their measured trials."""
    rows = [_compared(truths_of(base)[0]) for base in BASES[: choose(len(BASES), 1, 1)]]
    gaps = [abs(row["simulated_s"] / row["trained_s"] - 1) for row in rows]
    return {"jobs": rows, "mean_gap": float(np.mean(gaps)), "most_gap": max(gaps)}


def _compared(truth: Truth) -> dict[str, Any]:
    start = Allocation.of(*_UNDERSIZED, truth.job.training.batch_size)
    fits = truth.grid.workers * truth.grid.worker_cpu + truth.grid.ps * truth.grid.ps_cpu <= CLUSTER.cpu_limit
    best = truth.grid.allocation(int(np.flatnonzero(fits)[np.argmin(truth.objective[fits])]))
    samples = round(truth.rate(best) * _host_speed(truth, best, round(truth.rate(best) * _SPEED_S)) * _RUN_S)
    training = truth.job.training.model_copy(update={"samples": samples})
    job = truth.job.model_copy(update={"training": training})
    prior_curve = truth.prior.curve(job)
    setting = Setting(job, start, samples, prior_curve=prior_curve, cluster=CLUSTER)
    before = _host_speed(truth, best, samples)
    ran = train(setting, "auto")
    after = _host_speed(truth, best, samples)
    speed = math.sqrt(before * after)
    simulation = simulated(truth, job, start, prior_curve, noise=speed, cost=LIVE_COST, turn_s=1.0, cluster=CLUSTER)
    took = f"trained {ran.jct_s:.0f} s, simulated {simulation.seconds:.0f} s"
    print(f"{truth.job.name:<18} {took}; {ran.final}; host {before:.2f}, {after:.2f}", flush=True)
    return {
        "job": truth.job.name, "host_speed": [before, after], "trained_s": ran.jct_s, "simulated_s": simulation.seconds,
        "trained_at": ran.final, "simulated_at": simulation.spans[-1][0].describe(),
        "changes": [len(ran.changes), simulation.changes],
    }  # fmt: skip


def _host_speed(truth: Truth, at: Allocation, samples: int) -> float:
    """Return this host's samples/s over a run of so many samples, relative to the curve."""
    ran = train(Setting(truth.job, at, samples), "queue")
    return ran.samples / ran.jct_s / truth.rate(at)
