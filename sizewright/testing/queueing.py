"""A closed queueing network, solved exactly by mean value analysis: PS training with a known throughput."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd


def throughput(workers: int, ps: int, worker_cpu: float, ps_cpu: float, batch: float = 512, **kind: float) -> float:
    """Return samples/s of `workers` customers that think for Z seconds and then visit each of `ps` queues."""
    per_sample, fixed, service = kind.get("per_sample", 2e-5), kind.get("fixed", 2e-3), kind.get("service", 4e-6)
    think = fixed + batch * per_sample / worker_cpu
    demand = batch * service / ps / ps_cpu + kind.get("call", 1e-4) / ps_cpu
    waiting = 0.0
    rate = 0.0
    for customers in range(1, workers + 1):
        residence = ps * demand * (1 + waiting)
        rate = customers / (think + residence)
        waiting = rate * residence / ps
    return rate * batch


def table(noise: float = 0.0, seed: int = 0, **kind: float) -> pd.DataFrame:
    """Return a trial table of 108 allocations."""
    rng = np.random.default_rng(seed)
    axes = itertools.product((1, 2, 3, 5, 8, 12), (1, 2, 4), (1.0, 2.0, 4.0), (0.5, 2.0))
    rows = [
        {
            "workers": w, "ps": p, "worker_cpu": wc, "ps_cpu": pc, "batch_size": 512,
            "throughput": throughput(w, p, wc, pc, **kind) * rng.lognormal(0, noise),
        }
        for w, p, wc, pc in axes
    ]  # fmt: skip
    return pd.DataFrame(rows)


def sample_trials() -> pd.DataFrame:
    """Return a random third of the trials, with 2 % of noise and their phases."""
    return with_phases(table(0.02, seed=1).sample(36, random_state=0, ignore_index=True))


def with_phases(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with the seconds of their phases and the CPU use of their PS."""
    served = 512 * 4e-6 / trials["ps"] + 1e-4
    return trials.assign(
        phase_data_s=0.0,
        phase_compute_s=2e-3 + 512 * 2e-5 / trials["worker_cpu"],
        phase_pull_s=trials["ps"] * served / trials["ps_cpu"] / 2,
        phase_push_s=trials["ps"] * served / trials["ps_cpu"] / 2,
        ps_cpu_used=trials["throughput"] / 512 * served,
    )
