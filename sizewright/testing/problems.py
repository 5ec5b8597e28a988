"""Allocation problems for tests of allocators, and the best choice by enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.problem.solution import Solution


def problem_of(
    needs: ArrayLike,
    values: ArrayLike,
    capacity: ArrayLike,
    *,
    current: ArrayLike | None = None,
    price: float = 0.0,
    scheduler_state: bool = False,
    stays: ArrayLike | None = None,
) -> Problem:
    """Return a problem with the needs (J, K, R) and values (J, K) of candidates; column 0 is added.

    `current` (J,) are the columns that jobs have now, `price` is the price of a change, and jobs in `stays` (J,) must
    run. With `scheduler_state` speeds follow from the values, and the other fields are random.
    """
    needs, values = np.asarray(needs, float), np.asarray(values, float)
    if needs.ndim == 2:
        needs = needs[:, :, None]
    J, K, R = needs.shape
    needs = np.concatenate([np.zeros((J, 1, R)), needs], axis=1)
    values = np.concatenate([np.zeros((J, 1)), values], axis=1)
    columns = np.zeros(J, dtype=np.intp) if current is None else np.asarray(current, dtype=np.intp)
    offered = np.ones((J, K + 1), dtype=bool)
    if stays is not None:
        offered[:, 0] = ~np.asarray(stays, dtype=bool)
    return Problem(
        jobs=[f"job-{j}" for j in range(J)],
        resources=[f"r{r}" for r in range(R)],
        capacity=np.asarray(capacity, float).reshape(R),
        needs=needs,
        values=values,
        offered=offered,
        current=columns,
        change_price=np.full(J, price),
        scheduler_state=random_scheduler_state(needs, values, columns) if scheduler_state else None,
    )


def random_scheduler_state(needs: Floats, values: Floats, current: Ints, seed: int = 0) -> SchedulerState:
    """Return a scheduler state whose speeds follow from `values` (J, K); the other fields are random."""
    rng, J = np.random.default_rng(seed), len(values)
    speed = np.maximum(values, 0.0) + 1e-3 * (needs.sum(axis=2) > 0)
    work: Floats = rng.lognormal(8, 1, J)
    requested = np.minimum(2, values.shape[1] - 1) * np.ones(J, dtype=np.intp)
    return SchedulerState(
        now_s=1000.0, window_s=300.0, speed=speed, remaining=work * rng.random(J), work=work,
        arrived_s=rng.random(J) * 1000, started_s=np.where(current > 0, 500.0, np.nan),
        attained=rng.random(J) * 8000 * (current > 0), restart_s=np.full(J, 10.0), requested=requested,
    )  # fmt: skip


def random_problem(
    seed: int, jobs: int = 5, columns: int = 3, resources: int = 1, load: float = 2.0, **options: Any
) -> Problem:
    """Return a random problem with whole needs and values that grow with them.

    The capacity is the mean need of all jobs divided by `load`. The options are those of `problem_of`.
    """
    rng = np.random.default_rng(seed)
    needs = rng.integers(1, 9, (jobs, columns, resources)).astype(float)
    values = needs.sum(axis=2) ** rng.uniform(0.3, 1.0, (jobs, 1)) * rng.uniform(0.5, 2.0, (jobs, columns))
    capacity = np.ceil(needs.mean(axis=1).sum(axis=0) / load)
    return problem_of(needs, values, capacity, **options)


def best_of(problem: Problem) -> float:
    """Return the value of the best choice, by enumeration."""
    J, K, _ = problem.shape
    rows, best = np.arange(J), -np.inf
    for choice in itertools.product(range(K), repeat=J):
        columns = np.array(choice)
        if problem.offered[rows, columns].all() and problem.fits(columns):
            best = max(best, problem.total(columns))
    return best


def random_kinds_problem(seed: int, *, jobs: int | None = None, kinds: int | None = None) -> Problem:
    """Return a random problem with cores and two or three kinds of GPUs, of which each job can use some.

    Jobs run with what fits or wait, speeds grow with the GPUs and depend on the kind, and the cores may run short.
    """
    rng = np.random.default_rng(seed)
    J = int(rng.integers(1, 13)) if jobs is None else jobs
    G = int(rng.integers(2, 4)) if kinds is None else kinds
    sizes = [(kind, count) for kind in range(G) for count in (1, 2, 4)]
    needs = np.zeros((J, len(sizes), 1 + G))
    values = np.zeros((J, len(sizes)))
    offered = np.zeros((J, len(sizes)), dtype=bool)
    for j in range(J):
        power, base, cores = rng.uniform(0.5, 1.0), rng.lognormal(0, 1), rng.integers(1, 4)
        usable, factor = rng.random(G) < 0.7, rng.lognormal(0, 0.7, G)
        usable[rng.integers(G)] = True
        for k, (kind, count) in enumerate(sizes):
            needs[j, k, 0], needs[j, k, 1 + kind] = cores * count, count
            values[j, k] = base * factor[kind] * count**power
            offered[j, k] = usable[kind] and (count == 1 or rng.random() < 0.7)
    gpus = rng.integers(1, 2 + J, G)
    capacity = np.array([rng.choice([1.5, 4.0]) * gpus.sum(), *gpus])
    problem = problem_of(needs, values, capacity, price=float(rng.choice([0.0, 0.05])), scheduler_state=True)
    running = _random_choice(problem, offered, rng)
    problem = replace(
        problem, resources=["cpu", *(f"gpu:{'abc'[kind]}" for kind in range(G))],
        offered=np.concatenate([np.ones((J, 1), dtype=bool), offered], axis=1), current=running,
        scheduler_state=random_scheduler_state(problem.needs, problem.values, running, seed),
    )  # fmt: skip
    requested = np.array([rng.choice(np.flatnonzero(row)) for row in problem.offered[:, 1:]]) + 1
    return replace(problem, scheduler_state=replace(_state(problem), requested=requested))


def _random_choice(problem: Problem, offered: NDArray[np.bool_], rng: np.random.Generator) -> Ints:
    """Return a choice (J,) that fits: half of the jobs run with something, as far as there is room."""
    choice = np.zeros(len(problem.jobs), dtype=np.intp)
    for j in np.flatnonzero(rng.random(len(choice)) < 0.5):
        choice[j] = rng.choice(np.flatnonzero(offered[j])) + 1
        if not problem.fits(choice):
            choice[j] = 0
    return choice


def _state(problem: Problem) -> SchedulerState:
    assert problem.scheduler_state is not None
    return problem.scheduler_state


def waiting_with_room(problem: Problem, answer: Solution, columns: Ints | None = None) -> Ints:
    """Return the jobs that wait although a better candidate of theirs fits into what is left.

    With `columns` (J, O) only these count, −1 for none.
    """
    slack = problem.capacity * (1 + ROUNDING) - problem.used(answer.choice)
    better = problem.offered & (answer.utilities > answer.utilities[:, :1])
    fits = better & (problem.needs <= slack).all(axis=2)
    fits[:, 0] = False
    if columns is not None:
        counts = np.zeros(fits.shape, dtype=bool)
        rows = np.repeat(np.arange(len(columns)), columns.shape[1])
        counts[rows, np.maximum(columns.ravel(), 0)] = True
        fits &= counts
    return np.flatnonzero((answer.choice == 0) & fits.any(axis=1))
