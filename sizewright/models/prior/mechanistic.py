"""Throughput of any job from the work of its steps: one set of coefficients for all jobs.

It predicts a job without trials. `default/curve.py` has another formula, whose parameters are fitted to the trials of
one job and say nothing about another.

CPU seconds of a step of one worker, and of all p PS for that step:

    W = (a · work) · λ_w^-e          S = (b · work) · λ_s^-f · (1 where asynchronous, else c)

`work` is counted from the job (`work.py`); a and b are not negative. In a synchronous step a PS joins the pushes of all
workers before it applies them; c is the factor of that. With a quota of λ cores per period τ, a burst of x CPU seconds
takes a replica that has saved up part of a period's quota

    wall(x, λ) = max(x, x/λ - h·τ·(1 - λ))

An idle PS uses z cores, so ζ = max(λ_s - z, λ_s/5) cores remain for its service. With w workers, each with a batch
of m, an asynchronous worker's pull travels while it computes, so the slower of the two limits the step. In a
synchronous step computation and exchange follow each other, and no replica can use more than its quota:

    async   T = ((W/λ_w)^γ + (w·S/(p·ζ))^γ)^(1/γ)                         γ = g · w^k
    sync    T = ((W/λ_w)^γ + (w·S/(p·ζ))^γ + U^γ)^(1/γ)                   γ = g'
            U = wall(W, λ_w) · (1 + s·ln w) + wall(w·S/p, ζ) · (1 + q·ln p)
    samples/s = w·m / T

where γ is clipped to 1 … 50.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.prior.work import Work

Floats = NDArray[np.float64]

PERIOD_S = 0.02

EQUATIONS = {
    "worker": "W = (a · work) · λ_w^-e",
    "ps": "S = (b · work) · λ_s^-f · (1 where asynchronous, else c)",
    "wall": "wall(x, λ) = max(x, x/λ - h·τ·(1 - λ))",
    "async": "T = ((W/λ_w)^γ + (w·S/(p·ζ))^γ)^(1/γ), γ = g · w^k",
    "sync": "T = ((W/λ_w)^γ + (w·S/(p·ζ))^γ + U^γ)^(1/γ), γ = g'",
    "full_quota": "U = wall(W, λ_w) · (1 + s·ln w) + wall(w·S/p, ζ) · (1 + q·ln p)",
    "throughput": "samples/s = w·m / T",
}
"""The equations of the module docstring, by name."""

# Prior of each coefficient: its value, where fitting starts, and the standard deviation of its logarithm. For the
# shape: the mean and standard deviation of the logarithm or, for exponents, of the plain number.
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
# Standard deviations of the residuals of log CPU seconds and of log samples/s, and of a group's offset.
_CPU_SD, _RATE_SD = 0.2, 0.15
_GROUP_SD = 0.05
_MAX_EVALUATIONS = 60
_DIFFERENCE = 1e-7  # step of the finite differences
_MIN_FREE_SHARE = 0.2  # of a PS's cores, whatever it uses when idle
# An outer product is written, rearranged and read, forward and back: four times as often as the output of a layer.
_OUTER, _LAYER = NAMES.index("worker_outer_floats"), NAMES.index("worker_layer_floats")
_OUTER_PASSES = 4.0


class Configurations(NamedTuple):
    """Allocations (n,) of jobs, with the work of their steps."""

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    sync: Floats
    work: Work


class Seconds(NamedTuple):
    """CPU seconds (n,) of a worker's step, and of all PS for that step."""

    worker: Floats
    ps: Floats


class Observations(NamedTuple):
    """Measurements of trials (n,): log samples/s, and CPU seconds of a step, NaN where unknown."""

    log_rates: Floats
    cpu: Seconds


Groups = Sequence[NDArray[np.int64]]
"""Ways to group rows: for each of them the group number of every row (n,)."""


def log_rates(parameters: Floats, configs: Configurations) -> Floats:
    """Return log samples/s (n,)."""
    cpu = cpu_seconds(parameters, configs)
    return np.log(configs.workers * configs.work.samples) - np.log(_cycle(_shape(parameters), configs, cpu))


def cpu_seconds(parameters: Floats, configs: Configurations) -> Seconds:
    """Return the CPU seconds (n,) of a step."""
    return _cpu(parameters, configs, _Terms.of(configs))


def fit(configs: Configurations, observations: Observations, groups: Groups, guess: Floats = START) -> Floats:
    """Return parameters (k,) by least squares of logarithms, robust against single outliers.

    Each group of rows (a job, a family) has an offset: it may be slower or faster as a whole than the shared curve, so
    that jobs that differ from the others, or were measured more often, do not bend the curve. A good `guess` shortens
    the search.
    """
    from scipy.optimize import least_squares  # takes half a second to import, and only learning needs it

    problem = _LeastSquares.of(configs, observations, groups)
    offsets = problem.first_offset[-1]
    solution = least_squares(
        problem.residuals,
        np.concatenate([guess, np.zeros(offsets)]),
        jac=problem.jacobian,
        method="trf",
        max_nfev=_MAX_EVALUATIONS,
        x_scale=np.concatenate([_SDS, np.full(offsets, _GROUP_SD)]),
        ftol=1e-4,
    )
    return np.asarray(solution.x[: len(START)])


class _Terms(NamedTuple):
    """Columns (n, k) that the coefficients multiply."""

    worker: Floats
    ps: Floats

    @classmethod
    def of(cls, configs: Configurations) -> _Terms:
        columns = configs.work._asdict() | {"step": np.ones_like(configs.ps), "ps": configs.ps}
        return cls(*(np.column_stack([columns[name] for name in names]) for names in (WORKER_TERMS, PS_TERMS)))


@dataclass(frozen=True)
class _LeastSquares:
    """The problem that `fit` solves; its unknowns are the parameters (k,), then the offset of each group.

    Residuals are those of the observations (first log samples/s, then known CPU seconds of workers, then of PS), the
    offsets, and the distances of the parameters from their prior.
    """

    configs: Configurations
    observations: Observations
    terms: _Terms
    known_cpu: Sequence[NDArray[np.bool_]]
    """Rows (n,) whose CPU seconds are known, of workers and of PS."""
    group_of: Groups
    """For each grouping the group of each row (n,), numbered from 0."""
    first_offset: NDArray[np.int64]
    """Index of the first offset of each grouping, then the number of all offsets."""

    @classmethod
    def of(cls, configs: Configurations, observations: Observations, groups: Groups) -> _LeastSquares:
        group_of = [np.unique(group, return_inverse=True)[1] for group in groups]
        return cls(
            configs=configs,
            observations=observations,
            terms=_Terms.of(configs),
            known_cpu=[np.isfinite(column) for column in observations.cpu],
            group_of=group_of,
            first_offset=np.cumsum([0, *(numbers.max() + 1 for numbers in group_of)]),
        )

    def residuals(self, unknowns: Floats) -> Floats:
        parameters, offsets = np.split(unknowns, [len(START)])
        prior = START.copy()
        prior[_OUTER] = parameters[_LAYER] + np.log(_OUTER_PASSES)
        robust = _soften(np.concatenate([self._errors(parameters, offsets), offsets / _GROUP_SD]))
        return np.concatenate([robust, (parameters - prior) / _SDS])

    def _errors(self, parameters: Floats, offsets: Floats) -> Floats:
        """Return the errors of the observations, in standard deviations."""
        configs, observations = self.configs, self.observations
        shape = _shape(parameters)
        log_factors = sum(
            offsets[first + numbers] for first, numbers in zip(self.first_offset, self.group_of, strict=False)
        )
        slowdown = np.exp(-log_factors)
        cpu = Seconds(*(column * slowdown for column in _cpu(parameters, configs, self.terms)))
        rates = np.log(configs.workers * configs.work.samples) - np.log(_cycle(shape, configs, cpu))
        # A PS also uses its idle cores in the time from the step of one worker to that of the next.
        between_steps = configs.work.samples / np.exp(observations.log_rates)
        used = Seconds(cpu.worker, cpu.ps + np.exp(shape["idle"]) * configs.ps * between_steps)
        cpu_errors = [
            (np.log(measured) - np.log(predicted))[known] / _CPU_SD
            for measured, predicted, known in zip(observations.cpu, used, self.known_cpu, strict=True)
        ]
        return np.concatenate([(observations.log_rates - rates) / _RATE_SD, *cpu_errors])

    def jacobian(self, unknowns: Floats) -> Floats:
        """Return the slopes of the residuals by finite differences.

        A row depends on one offset of each grouping, so all offsets of a grouping are moved at once.
        """
        unmoved = self.residuals(unknowns)
        slopes = np.zeros((len(unmoved), len(unknowns)))

        def slope(start: int, stop: int) -> Floats:
            moved = unknowns.copy()
            moved[start:stop] += _DIFFERENCE
            difference: Floats = (self.residuals(moved) - unmoved) / _DIFFERENCE
            return difference

        for k in range(len(START)):
            slopes[:, k] = slope(k, k + 1)
        row_of = np.concatenate([np.arange(len(self.observations.log_rates)), *map(np.flatnonzero, self.known_cpu)])
        ends = self.first_offset + len(START)
        for start, stop, numbers in zip(ends, ends[1:], self.group_of, strict=False):
            column = slope(start, stop)
            slopes[np.arange(len(row_of)), start + numbers[row_of]] = column[: len(row_of)]
            penalties = len(row_of) - len(START) + np.arange(start, stop)
            slopes[penalties, np.arange(start, stop)] = column[penalties]
        return slopes


def _soften(errors: Floats) -> Floats:
    """Return errors under the soft-L1 loss: large ones count by their size, not by their square."""
    return np.asarray(np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1)))


def as_record(parameters: Floats) -> dict[str, float]:
    """Return the parameters by name."""
    return dict(zip(NAMES, parameters.tolist(), strict=True))


def from_record(record: Mapping[str, float]) -> Floats:
    """Return parameters (k,) from their names. Raises KeyError where one is missing."""
    return np.array([float(record[name]) for name in NAMES])


def _shape(parameters: Floats) -> dict[str, float]:
    return dict(zip(SHAPE, parameters[-len(SHAPE) :].tolist(), strict=True))


def _cpu(parameters: Floats, configs: Configurations, terms: _Terms) -> Seconds:
    """Return W and S of the equations above."""
    coefficients, shape = np.exp(parameters), _shape(parameters)
    of_worker, of_ps = coefficients[: len(WORKER_TERMS)], coefficients[len(WORKER_TERMS) : -len(SHAPE)]
    worker = terms.worker @ of_worker * configs.worker_cpu ** -shape["worker_quota"]
    ps = terms.ps @ of_ps * configs.ps_cpu ** -shape["ps_quota"] * np.exp(shape["ps_sync"] * configs.sync)
    return Seconds(worker, ps)


def _cycle(shape: Mapping[str, float], configs: Configurations, cpu: Seconds) -> Floats:
    """Return the seconds T of a step (n,)."""
    workers, ps, sync = configs.workers, configs.ps, configs.sync > 0
    free_cores = np.maximum(configs.ps_cpu - np.exp(shape["idle"]), _MIN_FREE_SHARE * configs.ps_cpu)
    compute = cpu.worker / configs.worker_cpu
    service = workers * cpu.ps / (ps * free_cores)

    saved = np.exp(shape["saved"])
    compute_burst = _wall(cpu.worker, configs.worker_cpu, saved) * (1 + np.exp(shape["straggle"]) * np.log(workers))
    exchange_burst = _wall(workers * cpu.ps / ps, free_cores, saved) * (1 + np.exp(shape["straggle_ps"]) * np.log(ps))
    in_sequence = np.where(sync, compute_burst + exchange_burst, 1e-12)

    async_sharpness = np.exp(shape["smooth"] + shape["smooth_workers"] * np.log(workers))
    sharpness = np.clip(np.where(sync, np.exp(shape["smooth_sync"]), async_sharpness), 1.0, 50.0)
    logs = sharpness * np.log(np.array([compute, service, in_sequence]))
    return np.asarray(np.exp(np.logaddexp.reduce(logs, axis=0) / sharpness))


def _wall(cpu: Floats, cores: Floats, saved: float) -> Floats:
    return np.asarray(np.maximum(cpu, cpu / cores - saved * PERIOD_S * np.maximum(1 - cores, 0.0)))
