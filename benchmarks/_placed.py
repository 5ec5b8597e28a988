"""Allocation with placement in a large cluster, and rivals that choose the same candidates without placing them.

POP (Narayanan et al., SOSP 2021) deals jobs and capacity to parts, and solves each part with HiGHS.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks._solvers import Solved, highs
from sizewright.cluster.allocate import allocate_capacity
from sizewright.cluster.allocators.default import Default
from sizewright.cluster.placement.layout import place_choice, place_running_jobs, places_of
from sizewright.cluster.placement.placement import Servers
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.replicas import ReplicaGroups
from sizewright.cluster.problem.tables import JobTables
from sizewright.formatting import GIB
from sizewright.spec import ROLES

RESOURCES = ("gpu:a100", "gpu:v100", "gpu:t4", "cpu", "memory_bytes")
HOSTS = (
    ("cpu", 0.5, "", (0, 0, 0, 64, 256)), ("a100", 0.15, "a100", (8, 0, 0, 96, 1024)),
    ("v100", 0.2, "v100", (0, 8, 0, 64, 512)), ("t4", 0.15, "t4", (0, 0, 4, 48, 192)),
)  # fmt: skip
"""Servers: name, share of all servers, kind of GPUs, and amounts of the resources (memory in GiB)."""
GPU_SPEEDUP = (12.0, 6.0, 3.0)
"""Speed of a worker with GPUs of each kind over that of its cores."""
LOAD = 2.0
SOLVED = 4
"""POP is measured on a sample of its parts, each with a fourth of the time limit."""


def servers_of(count: int) -> Servers:
    """Return so many servers, about half of them without GPUs."""
    numbers = [round(share * count) for _, share, _, _ in HOSTS]
    numbers[0] += count - sum(numbers)
    names = [f"{host[0]}-{i}" for host, number in zip(HOSTS, numbers, strict=True) for i in range(number)]
    kinds = [host[2] for host, number in zip(HOSTS, numbers, strict=True) for _ in range(number)]
    capacity = np.array([host[3] for host in HOSTS], dtype=float)
    capacity[:, -1] *= GIB
    return Servers(names, kinds, np.repeat(capacity, numbers, axis=0))


def placed_instance(jobs: int, servers: int, seed: int, columns: int = 16) -> tuple[JobTables, Servers]:
    """Return jobs with workers and PS, a fifth with an evaluator, two in five with GPUs of one kind or of several.

    The speed follows workers / (a/λ_w + b·workers/(ps·λ_p) + c) and grows with the GPUs. The memory of the replicas
    differs from job to job. The mean candidates take `LOAD` times the scarcest resource. Three jobs in ten run; their
    servers are spread at random over the cluster.
    """
    rng = np.random.default_rng(seed)
    J, K, R = jobs, columns, len(RESOURCES)
    cluster = servers_of(servers)
    capacity = cluster.capacity.sum(axis=0)
    on_gpus, one_kind, has_evaluator = rng.random((3, J, 1)) < [[[0.4]], [[0.5]], [[0.2]]]
    kind = rng.choice(3, (J, K), p=capacity[:3] / capacity[:3].sum())
    kind = np.where(one_kind, kind[:, :1], kind)
    gpus = np.where(on_gpus, rng.choice([1, 2, 4], (J, 1), p=[0.6, 0.3, 0.1]), 0)
    need = np.zeros((J, K + 1, 3, R))
    need[:, 1:, 0, :3] = gpus[..., None] * (kind[..., None] == np.arange(3))
    need[:, 1:, 0, 3] = np.where(on_gpus, 4.0 * gpus, rng.choice([2.0, 4.0, 8.0], (J, K)))
    need[:, 1:, 0, 4] = need[:, 1:, 0, 3] * rng.uniform(0.5, 3, (J, 1))
    need[:, 1:, 1, 3] = rng.choice([1.0, 2.0, 4.0], (J, K))
    need[:, 1:, 1, 4] = rng.uniform(4, 48, (J, 1))
    need[:, 1:, 2, 3:] = 2.0, 4.0
    need[..., 4] = np.ceil(need[..., 4] * 64) / 64 * GIB  # in steps of 16 MiB
    workers, ps_share = rng.lognormal(0, 0.7, (J, 1)) * rng.uniform(1, 12, (J, K)), rng.uniform(0.1, 0.5, (J, K))
    demand = (workers[..., None] * (need[:, 1:, 0] + ps_share[..., None] * need[:, 1:, 1])).mean(axis=1).sum(axis=0)
    workers = np.maximum(np.round(workers * LOAD / (demand / capacity).max()), 1)
    count = np.zeros((J, K + 1, 3), dtype=np.int32)
    count[:, 1:, 0] = workers
    count[:, 1:, 1] = np.maximum(np.round(workers * ps_share), 1)
    count[:, 1:, 2] = has_evaluator

    a, b, c = rng.uniform(0.5, 2, (3, J, 1))
    power = need[:, 1:, 0, 3] * np.where(on_gpus, np.array(GPU_SPEEDUP)[kind], 1.0)
    ps_power = count[:, 1:, 1] * need[:, 1:, 1, 3] * np.where(on_gpus, 16.0, 4.0)
    values = np.zeros((J, K + 1))
    values[:, 1:] = workers / (a / power + b * workers / ps_power + 0.02 * c) * rng.lognormal(0, 0.5, (J, 1))
    current = np.where(rng.random(J) < 0.3, (count[:, 1:, 0] / workers.max()).argmin(axis=1) + 1, 0)
    problem = Problem(
        [f"job-{j}" for j in range(J)], RESOURCES, capacity, (count[..., None] * need).sum(axis=2), values,
        np.ones(values.shape, dtype=bool), current, 0.05 * values[np.arange(J), current],
    )  # fmt: skip
    replicas = ReplicaGroups(
        need.reshape(-1, R), np.arange(need.size // R, dtype=np.int32).reshape(count.shape), count,
        np.broadcast_to(np.array([ROLES.index(role) for role in ("worker", "ps", "evaluator")], np.int8), count.shape),
    )  # fmt: skip
    tables = JobTables(problem, ((),) * J, replicas, ({},) * J, ("",) * J, ())
    return _run(tables, cluster, rng), cluster


def _run(tables: JobTables, cluster: Servers, rng: np.random.Generator) -> JobTables:
    """Return the tables with the servers of the jobs that run: equal servers change places at random."""
    layout = place_choice(tables, tables.problem.current, place_running_jobs(tables, cluster, mixes=False))
    kinds = np.array(cluster.kinds)
    shuffled = np.lexsort((rng.random(len(kinds)), np.unique(kinds, return_inverse=True)[1]))
    moved = np.empty(len(kinds), dtype=np.intp)
    moved[np.argsort(kinds, kind="stable")] = shuffled
    servers: list[dict[str, dict[str, int]]] = [{} for _ in tables.servers]
    for job, groups in places_of(tables, layout).items():
        for role, where in groups:
            for server, count in where.items():
                servers[job].setdefault(cluster.names[moved[server]], {})[role] = count
    return replace(tables, problem=replace(tables.problem, current=layout.choice), servers=tuple(servers))


def placed(jobs: int, seed: int, limit_s: float) -> dict[str, float]:
    """Allocate as many servers as `jobs`, and return the seconds and the gap of the answer that is placed."""
    tables, cluster = placed_instance(jobs, jobs, seed)
    start = time.perf_counter()
    answer, places = allocate_capacity(tables, cluster, Default(), limit_s)
    seconds = time.perf_counter() - start
    assert answer.bound is not None
    kept = int(((answer.choice == tables.problem.current) & (answer.choice > 0)).sum())
    print(f"{jobs:>7} jobs on {jobs} servers: {seconds:7.2f} s, gap {answer.gap:.3%}, {len(places)} placed", flush=True)
    return {
        "jobs": jobs, "seconds": seconds, "value": answer.value, "bound": answer.bound, "gap": answer.gap or 0.0,
        "placed": len(places), "kept": kept,
    }  # fmt: skip


def pop(problem: Problem, parts: int, limit_s: float, seed: int = 0) -> Solved:
    """Return the value of all parts, and their seconds one after the other, both from a sample of `SOLVED` parts."""
    shuffled = np.random.default_rng(seed).permutation(len(problem.jobs))
    sample = np.array_split(shuffled, parts)[:SOLVED]
    solved = [highs(_part(problem, np.sort(jobs), parts), limit_s / len(sample)) for jobs in sample]
    scale = parts / len(sample)
    value, seconds = sum(s.value for s in solved) * scale, sum(s.seconds for s in solved) * scale
    return Solved(value, seconds, all(s.proved for s in solved))


def _part(problem: Problem, jobs: np.ndarray, parts: int) -> Problem:
    """Return the problem of some jobs with an equal part of the capacity."""
    return Problem(
        [problem.jobs[j] for j in jobs], problem.resources, problem.capacity / parts, problem.needs[jobs],
        problem.values[jobs], problem.offered[jobs], problem.current[jobs], problem.change_price[jobs],
    )  # fmt: skip


def compare_rivals(jobs: int, placed_row: dict[str, float], limit_s: float) -> dict[str, dict[str, float]]:
    """Return for each rival the share of the bound that its choice is worth, and its seconds.

    All choose candidates within the sums of the servers' resources; `placed` is our answer with the replicas placed.
    """
    problem = placed_instance(jobs, jobs, 0)[0].problem
    bound = placed_row["bound"]
    ours = Default()(problem, limit_s)
    rows = {
        "placed": {"of_bound": placed_row["value"] / bound, "seconds": placed_row["seconds"]},
        "default": {"of_bound": ours.value / bound, "seconds": ours.seconds},
    }
    parts = max(jobs // 250, 4)
    for name, solved in (("highs", highs(problem, limit_s)), ("pop", pop(problem, parts, limit_s))):
        rows[name] = {"of_bound": solved.value / bound, "seconds": solved.seconds}
    for name, row in rows.items():
        print(f"{jobs:>7} jobs  {name:<8}{row['of_bound']:9.3%} of the bound, {row['seconds']:8.2f} s", flush=True)
    return rows
