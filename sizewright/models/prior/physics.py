"""Throughput of any job from what its steps have to do: one set of coefficients for all jobs.

CPU seconds of a step of one worker, and of all p PS for it:

    W = (a · work) · λ_w^-e          S = (b · work) · λ_s^-f · (1 where asynchronous, else c)

`work` is counted from the job (`work.py`); a and b are not negative. In a synchronous step a PS joins the pushes of all
workers before it applies them, which c stands for. With quotas λ_w and λ_s cores over periods τ,
x CPU seconds at a stretch take a replica that has saved up a period's quota

    wall(x, λ) = max(x, x/λ - h·τ·(1 - λ))

With nothing to do a PS uses z cores, so ζ = max(λ_s - z, λ_s/5) are left for its service. With w workers, each with a
batch of m, an asynchronous worker's pull travels while it computes, so the slower binds; in
a synchronous step computing and exchanging follow each other, and no replica can use more than its quota:

    async   T = ((W/λ_w)^γ + (w·S/(p·ζ))^γ)^(1/γ)                         γ = g · w^k
    sync    T = ((W/λ_w)^γ + (w·S/(p·ζ))^γ + U^γ)^(1/γ)                   γ = g'
            U = wall(W, λ_w) · (1 + s·ln w) + wall(w·S/p, ζ) · (1 + q·ln p)
    samples/s = w·m / T

where γ is kept within 1 and 50.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.prior.work import Work

Floats = NDArray[np.float64]

PERIOD_S = 0.02

# Where fitting starts and how sure that is: coefficients, and standard deviations of their logarithms; of the shape,
# the logarithms or plain numbers themselves.
WORKER_TERMS = {
    "step": (5e-4, 1.5),
    "ps": (1e-4, 1.5),
    "samples": (2e-7, 1.5),
    "numeric": (2e-8, 1.5),
    "ids": (1e-7, 1.5),
    "rows": (2e-7, 1.5),
    "row_floats": (3e-9, 1.5),
    "id_floats": (3e-9, 1.5),
    "flops": (2e-11, 1.5),
    "layer_floats": (5e-9, 1.5),
    "outer_floats": (2e-8, 1.5),
    "large_floats": (2e-8, 1.5),
    "weights": (5e-9, 1.5),
}
PS_TERMS = {
    "step": (1e-4, 1.5),
    "ps": (3e-4, 1.5),
    "rows": (2e-7, 1.5),
    "row_floats": (5e-9, 1.5),
    "row_state": (5e-9, 1.5),
    "weights": (3e-9, 1.5),
    "weight_state": (3e-9, 1.5),
}
SHAPE = {
    "worker_quota": (0.1, 0.1),
    "ps_quota": (0.1, 0.1),
    "ps_sync": (0.0, 0.5),
    "idle": (float(np.log(0.005)), 1.0),
    "saved": (float(np.log(0.5)), 0.5),
    "smooth": (float(np.log(4.0)), 0.7),
    "smooth_workers": (0.0, 0.3),
    "smooth_sync": (float(np.log(4.0)), 0.7),
    "straggle": (float(np.log(0.1)), 1.0),
    "straggle_ps": (float(np.log(0.1)), 1.0),
}
NAMES = (*(f"worker_{name}" for name in WORKER_TERMS), *(f"ps_{name}" for name in PS_TERMS), *SHAPE)
START = np.array(
    [*(np.log(mean) for mean, _ in (*WORKER_TERMS.values(), *PS_TERMS.values())), *(mean for mean, _ in SHAPE.values())]
)
_SDS = np.array([sd for _, sd in (*WORKER_TERMS.values(), *PS_TERMS.values(), *SHAPE.values())])
# How far logarithms of CPU seconds and of samples/s stray from these equations.
_CPU_SD, _RATE_SD = 0.2, 0.15
_GROUP_SD = 0.05
_STEPS = 60
_MOVE = 1e-7  # of logarithms, to see slopes
_LEAST_FREE = 0.2
# An outer product is written, laid out anew and read, forward and back: four times as often as what a layer puts out.
_OUTER, _LAYER = NAMES.index("worker_outer_floats"), NAMES.index("worker_layer_floats")
_PASSES = 4.0


class Places(NamedTuple):
    """Allocations (n,) of jobs, with what their steps have to do."""

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    sync: Floats
    work: Work


class Seconds(NamedTuple):
    """CPU seconds (n,) of a worker's step, and of all PS for it."""

    worker: Floats
    ps: Floats


class Told(NamedTuple):
    """What trials (n,) told: logarithm of samples/s, and CPU seconds, NaN where they are not known."""

    log_rates: Floats
    cpu: Seconds


Groups = Sequence[NDArray[np.int64]]
"""Ways to group rows: the number of its group for each row (n,)."""


class _Terms(NamedTuple):
    """What coefficients multiply, columns (n, k)."""

    worker: Floats
    ps: Floats

    @classmethod
    def of(cls, at: Places) -> _Terms:
        columns = at.work._asdict() | {"step": np.ones_like(at.ps), "ps": at.ps}
        return cls(*(np.column_stack([columns[name] for name in names]) for names in (WORKER_TERMS, PS_TERMS)))


def log_rates(parameters: Floats, at: Places) -> Floats:
    """Logarithm of samples/s (n,)."""
    shape, cpu = _cpu(parameters, at, _Terms.of(at))
    return np.log(at.workers * at.work.samples) - np.log(_cycle(shape, at, cpu))


def cpu_seconds(parameters: Floats, at: Places) -> Seconds:
    """Of a step."""
    return _cpu(parameters, at, _Terms.of(at))[1]


def fit(at: Places, told: Told, groups: Groups, guess: Floats = START) -> Floats:
    """Parameters (k,) by least squares of logarithms, robust against single trials that are far out.

    Each group of rows (a job, a family) may be slower or faster as a whole than what all share, so that those that are
    unlike the others, or were measured more often, do not bend it. A good `guess` shortens the search.
    """
    from scipy.optimize import least_squares  # half a second, which only learning needs

    known, terms = [np.isfinite(column) for column in told.cpu], _Terms.of(at)
    of_group = [np.unique(group, return_inverse=True)[1] for group in groups]
    ends = np.cumsum([0, *(numbers.max() + 1 for numbers in of_group)])

    def left(parameters: Floats, levels: Floats) -> Floats:
        shape, cpu = _cpu(parameters, at, terms)
        slower = np.exp(-sum(levels[start + numbers] for start, numbers in zip(ends, of_group, strict=False)))
        cpu = Seconds(*(column * slower for column in cpu))
        cycle = _cycle(shape, at, cpu)
        rates = np.log(at.workers * at.work.samples) - np.log(cycle)
        between = at.work.samples / np.exp(told.log_rates)  # seconds from one worker's step to the next one's
        used = Seconds(cpu.worker, cpu.ps + np.exp(shape["idle"]) * at.ps * between)
        of_cpu = [(np.log(m) - np.log(u))[k] / _CPU_SD for u, m, k in zip(used, told.cpu, known, strict=True)]
        return np.concatenate([(told.log_rates - rates) / _RATE_SD, *of_cpu])

    def errors(unknown: Floats) -> Floats:
        parameters, levels = np.split(unknown, [len(START)])
        start = START.copy()
        start[_OUTER] = parameters[_LAYER] + np.log(_PASSES)
        far = _soft(np.concatenate([left(parameters, levels), levels / _GROUP_SD]))
        return np.concatenate([far, (parameters - start) / _SDS])

    rows = np.concatenate([np.arange(len(told.log_rates)), *map(np.flatnonzero, known)])

    def slopes(unknown: Floats) -> Floats:
        """A row depends on one level of each grouping, so all of these are moved at once."""
        here = errors(unknown)
        found = np.zeros((len(here), len(unknown)))
        for k in range(len(START)):
            found[:, k] = (errors(_moved(unknown, slice(k, k + 1))) - here) / _MOVE
        for start, end, numbers in zip(ends + len(START), ends[1:] + len(START), of_group, strict=False):
            slope = (errors(_moved(unknown, slice(start, end))) - here) / _MOVE
            found[np.arange(len(rows)), start + numbers[rows]] = slope[: len(rows)]
            penalties = len(rows) - len(START) + np.arange(start, end)
            found[penalties, np.arange(start, end)] = slope[penalties]
        return found

    guesses = np.concatenate([guess, np.zeros(ends[-1])])
    scale = np.concatenate([_SDS, np.full(ends[-1], _GROUP_SD)])
    found = least_squares(errors, guesses, jac=slopes, method="trf", max_nfev=_STEPS, x_scale=scale, ftol=1e-4)
    return np.asarray(found.x[: len(START)])


def _moved(unknown: Floats, which: slice) -> Floats:
    moved = unknown.copy()
    moved[which] += _MOVE
    return moved


def _soft(far: Floats) -> Floats:
    """What is far out counts by its size, not by its square, so that one outlier stays one."""
    return np.asarray(np.sign(far) * np.sqrt(2 * (np.sqrt(1 + far**2) - 1)))


def as_record(parameters: Floats) -> dict[str, float]:
    """By name."""
    return dict(zip(NAMES, parameters.tolist(), strict=True))


def from_record(record: Mapping[str, float]) -> Floats:
    """Parameters (k,) by name. Raises KeyError where one is missing."""
    return np.array([float(record[name]) for name in NAMES])


def _shape(parameters: Floats) -> dict[str, float]:
    return dict(zip(SHAPE, parameters[-len(SHAPE) :].tolist(), strict=True))


def _cpu(parameters: Floats, at: Places, terms: _Terms) -> tuple[dict[str, float], Seconds]:
    coefficients, shape = np.exp(parameters), _shape(parameters)
    worker, ps = coefficients[: len(WORKER_TERMS)], coefficients[len(WORKER_TERMS) : -len(SHAPE)]
    of_worker = terms.worker @ worker * at.worker_cpu ** -shape["worker_quota"]
    of_ps = terms.ps @ ps * at.ps_cpu ** -shape["ps_quota"] * np.exp(shape["ps_sync"] * at.sync)
    return shape, Seconds(of_worker, of_ps)


def _cycle(shape: Mapping[str, float], at: Places, cpu: Seconds) -> Floats:
    """Seconds of a step (n,)."""
    own = cpu.worker / at.worker_cpu
    free = np.maximum(at.ps_cpu - np.exp(shape["idle"]), _LEAST_FREE * at.ps_cpu)
    served = at.workers * cpu.ps / (at.ps * free)
    saved = np.exp(shape["saved"])
    stretch = _wall(cpu.worker, at.worker_cpu, saved) * (1 + np.exp(shape["straggle"]) * np.log(at.workers))
    exchange = _wall(at.workers * cpu.ps / at.ps, free, saved) * (1 + np.exp(shape["straggle_ps"]) * np.log(at.ps))
    smooth = np.where(
        at.sync > 0,
        np.exp(shape["smooth_sync"]),
        np.exp(shape["smooth"] + shape["smooth_workers"] * np.log(at.workers)),
    )
    smooth = np.clip(smooth, 1.0, 50.0)
    logs = smooth * np.log(np.array([own, served, np.where(at.sync > 0, stretch + exchange, 1e-12)]))
    return np.asarray(np.exp(np.logaddexp.reduce(logs, axis=0) / smooth))


def _wall(cpu: Floats, cores: Floats, saved: float) -> Floats:
    return np.asarray(np.maximum(cpu, cpu / cores - saved * PERIOD_S * np.maximum(1 - cores, 0.0)))
