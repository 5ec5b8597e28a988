"""Workloads for the simulator."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.simulator.workload import Workload


def workload_of(
    work: object, *, arrived: object = 0.0, power: float = 0.8, sizes: object = (1, 2, 4, 8), elastic: object = True,
    change_s: float = 0.0, restart_s: float = 0.0, start_up_s: float = 0.0, asked: int = 1,
) -> Workload:  # fmt: skip
    """Return jobs of one resource whose speed is size**power; each requests its size number `asked`, from 1."""
    w = np.atleast_1d(np.asarray(work, float))
    N, s = len(w), np.concatenate([[0.0], np.asarray(sizes, float)])
    offered = np.ones((N, len(s)), dtype=bool)
    fixed = ~np.broadcast_to(np.asarray(elastic, dtype=bool), N)
    offered[fixed] = np.isin(np.arange(len(s)), [0, asked])
    return Workload(
        jobs=[f"job-{i}" for i in range(N)], resources=["gpu"],
        arrived_s=np.sort(np.broadcast_to(np.asarray(arrived, float), N).copy()), work=w, known_work=w.copy(),
        speed=np.tile(np.where(s > 0, s**power, 0.0), (N, 1)), needs=np.tile(s[:, None], (N, 1, 1)), offered=offered,
        requested=np.full(N, asked), replicas=np.tile(s.astype(np.intp), (N, 1)),
        base=np.where(fixed, int(s[asked]), int(s[1])), change_s=np.full(N, change_s), restart_s=np.full(N, restart_s),
        start_up_s=np.full(N, start_up_s),
    )  # fmt: skip


def random_workload(seed: int, jobs: int = 30, **options: object) -> Workload:
    rng = np.random.default_rng(seed)
    return workload_of(
        rng.lognormal(5, 1, jobs), arrived=rng.uniform(0, 2000, jobs), elastic=rng.random(jobs) < 0.6, asked=2,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip
