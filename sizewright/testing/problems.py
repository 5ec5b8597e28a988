"""Allocation problems to try allocators on, and the best choice by trying all."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Floats, Ints, Problem


def problem_of(
    needs: ArrayLike, values: ArrayLike, capacity: ArrayLike, *, current: ArrayLike | None = None, price: float = 0.0,
    facts: bool = False, stays: ArrayLike | None = None,
) -> Problem:  # fmt: skip
    """Candidates (J, K, R) and values (J, K) without the column of nothing, which is put before them.

    `current` (J,) are the columns that jobs have now, `price` is that of a change, and jobs of `stays` (J,) may not be
    put off. With `facts` speeds follow from the values; what else is known of the jobs is drawn.
    """
    n, v = np.asarray(needs, float), np.asarray(values, float)
    if n.ndim == 2:
        n = n[:, :, None]
    J, K, R = n.shape
    n = np.concatenate([np.zeros((J, 1, R)), n], axis=1)
    v = np.concatenate([np.zeros((J, 1)), v], axis=1)
    held = np.zeros(J, dtype=np.intp) if current is None else np.asarray(current, dtype=np.intp)
    offered = np.ones((J, K + 1), dtype=bool)
    if stays is not None:
        offered[:, 0] = ~np.asarray(stays, dtype=bool)
    return Problem(
        [f"job-{j}" for j in range(J)], [f"r{r}" for r in range(R)], np.asarray(capacity, float).reshape(R), n, v,
        offered, held, np.full(J, price), facts_of(n, v, held) if facts else None,
    )  # fmt: skip


def facts_of(needs: Floats, values: Floats, current: Ints, seed: int = 0) -> Facts:
    """Of jobs with candidates (J, K, R) that are as fast as their values (J, K) say; the rest is drawn."""
    rng, J = np.random.default_rng(seed), len(values)
    speed = np.maximum(values, 0.0) + 1e-3 * (needs.sum(axis=2) > 0)
    work: Floats = rng.lognormal(8, 1, J)
    requested = np.minimum(2, values.shape[1] - 1) * np.ones(J, dtype=np.intp)
    return Facts(
        now_s=1000.0, window_s=300.0, speed=speed, remaining=work * rng.random(J), work=work,
        arrived_s=rng.random(J) * 1000, started_s=np.where(current > 0, 500.0, np.nan),
        attained=rng.random(J) * 8000 * (current > 0), restart_s=np.full(J, 10.0), requested=requested,
    )  # fmt: skip


def random_problem(
    seed: int, jobs: int = 5, columns: int = 3, resources: int = 1, load: float = 2.0, **options: Any
) -> Problem:
    """Needs are whole numbers, values grow with them; the capacity is the `load`th part of what all jobs ask for on
    average. The options are those of `problem_of`."""
    rng = np.random.default_rng(seed)
    needs = rng.integers(1, 9, (jobs, columns, resources)).astype(float)
    values = needs.sum(axis=2) ** rng.uniform(0.3, 1.0, (jobs, 1)) * rng.uniform(0.5, 2.0, (jobs, columns))
    capacity = np.ceil(needs.mean(axis=1).sum(axis=0) / load)
    return problem_of(needs, values, capacity, **options)


def best_of(problem: Problem) -> float:
    """Worth of the best choice, by trying all."""
    J, K, _ = problem.shape
    rows, best = np.arange(J), -np.inf
    for choice in itertools.product(range(K), repeat=J):
        columns = np.array(choice)
        if problem.offered[rows, columns].all() and problem.fits(columns):
            best = max(best, problem.total(columns))
    return best
