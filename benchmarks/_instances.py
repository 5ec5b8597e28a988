"""Allocation problems of two kinds: random tables, and jobs with PS whose speed follows a mechanistic curve."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import Problem

KINDS = ("random", "ps")


def instance(jobs: int, columns: int, resources: int, kind: str, seed: int, load: float = 2.0) -> Problem:
    """Return a problem in which every job waits. The mean candidate is `load` times a job's share of the capacity."""
    rng = np.random.default_rng(seed)
    needs, values = (_random if kind == "random" else _with_ps)(rng, jobs, columns, resources)
    capacity = needs.mean(axis=1).sum(axis=0) / load
    if resources == 1:
        needs, capacity = np.maximum(np.round(needs * 10), 1), np.round(capacity * 10)
    needs = np.concatenate([np.zeros((jobs, 1, resources)), needs], axis=1)
    values = np.concatenate([np.zeros((jobs, 1)), values], axis=1)
    names = [f"job-{number}" for number in range(jobs)]
    return Problem(
        names, [f"r{r}" for r in range(resources)], capacity, needs, values, np.ones(values.shape, dtype=bool),
        np.zeros(jobs, dtype=np.intp), np.zeros(jobs),
    )  # fmt: skip


def _random(rng: np.random.Generator, J: int, K: int, R: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw values that grow with all needs together, which is the hardest kind for Lagrangian prices."""
    needs = rng.uniform(0.1, 1, (J, K, R)) * rng.lognormal(0, 0.6, (J, 1, 1))
    values = needs.sum(axis=2) ** 0.7 * rng.uniform(0.6, 1.4, (J, K)) * rng.lognormal(0, 0.5, (J, 1))
    return needs, values


def _with_ps(rng: np.random.Generator, J: int, K: int, R: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw cores, memory and network of workers and PS. Samples/s are w / (a/λ_w + b·w/(p·λ_p) + c)."""
    workers, ps = rng.integers(1, 16, (J, K)), rng.integers(1, 6, (J, K))
    worker_cpu, ps_cpu = rng.choice([0.5, 1, 2, 4, 8], (J, K)), rng.choice([0.5, 1, 2, 4], (J, K))
    cpu = workers * worker_cpu + ps * ps_cpu
    memory = workers * rng.uniform(1, 4, (J, 1)) + rng.uniform(8, 64, (J, 1))
    network = workers * ps * 0.1 + workers * 0.05
    a, b, c = rng.uniform(0.5, 2, (3, J, 1))
    values = workers / (a / worker_cpu + b * workers / (ps * ps_cpu) + 0.1 * c) * rng.lognormal(0, 0.5, (J, 1))
    return np.stack([cpu, memory, network], axis=2)[..., :R].astype(float), values
