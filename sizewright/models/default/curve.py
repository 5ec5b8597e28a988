"""Throughput of PS training as a curve of few mechanistic parameters, each with a prior.

A worker's step takes a time Z of its own, and every exchange occupies the PS for S. With w workers in a closed loop the
cycle is at least Z + S (nobody waits), w·S (the PS never rest; bounds of a closed queueing network, Denning and Buzen
1978), and the time of an input that all workers share. The limits are joined smoothly (as Pollux, Qiao et al., OSDI
2021, joins computation and network):

    T = ((Z + S)^γ + (w·S)^γ + (w·m·R)^γ)^(1/γ) + c·w²         throughput = w·m / T
    Z = m·(s + (1 − s)/(λ_w·g)) + f + k·ln w + n·p             S = (1 − b + b·m)·e^δ / (p^α · λ_p^β)

w workers with λ_w cores and g GPUs, p PS with λ_p cores, m samples a step of one worker, e bytes of embeddings. Where
workers wait for each other, T is multiplied by a factor and has a part that grows with w. Axes are relative to one
allocation, the geometric mean of the trials, except w, and p in Z. S, R and c are relative to Z at that allocation: so
T has no unit and the priors hold for any job. The scale is fitted separately. Except for the bounds and their smooth
join, the form is ours.

These parameters are fitted to the trials of one job. `prior/mechanistic.py` has another formula, with coefficients that
are fitted once to many jobs and count the work of a step, so that it predicts a job without trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.models.axes import Axes

Floats = NDArray[np.float64]


class Parameter(NamedTuple):
    """A parameter with a normal prior on the real line."""

    mean: float
    sd: float
    scale: str
    """`log`, or `logit` for a share."""
    equation: str


PARAMETERS: dict[str, Parameter] = {
    "fixed": Parameter(-1.1, 1.5, "log", "f: part of a step that neither batch nor cores change"),
    "serial": Parameter(-0.65, 2.25, "logit", "s: share of computing that more cores do not speed up"),
    "straggle": Parameter(-2.0, 0.67, "log", "k: waiting for the slowest worker, which grows with ln w"),
    "fan": Parameter(-3.4, 1.0, "log", "n: cost of each further PS per step"),
    "service": Parameter(-1.9, 1.5, "log", "w·S over Z at the mean allocation: how near the PS are to their limit"),
    "service_batch": Parameter(0.5, 1.5, "logit", "b: share of the PS's work that grows with the batch"),
    "even": Parameter(1.5, 1.5, "logit", "α: how evenly more PS share the work"),
    "service_cores": Parameter(-0.6, 0.5, "log", "β: how much more cores speed a PS up"),
    "service_size": Parameter(-2.5, 0.7, "log", "δ: how much larger tables slow a PS down"),
    "input": Parameter(-1.8, 1.2, "log", "w·m·R over Z at the mean allocation: an input that all workers share"),
    "smooth": Parameter(1.0, 0.5, "log", "γ: how sharply one limit gives way to another"),
    "contention": Parameter(-4.4, 2.25, "log", "c·w²: contention among workers"),
    "sync_factor": Parameter(0.0, 0.5, "log", "how much longer a step is where workers wait for each other"),
    "sync_workers": Parameter(-2.1, 1.0, "log", "the part of it that grows with w - 1"),
    "phases": Parameter(1.0, 1.5, "logit", "share of measured phases in the curve, where trials have phases"),
    "residual": Parameter(float(np.log(0.12)), 0.6, "log", "standard deviation of the truth about the curve, in log"),
    "noise": Parameter(float(np.log(0.03)), 0.7, "log", "standard deviation of repeats, in log"),
}
NAMES = tuple(PARAMETERS)


def prior_of(changed: Mapping[str, tuple[float, float]] | None = None) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (k,) of each parameter, with the `changed` ones replaced.

    Raises InputError for an unknown name, or an invalid mean or standard deviation.
    """
    pairs = {name: (parameter.mean, parameter.sd) for name, parameter in PARAMETERS.items()}
    for name, pair in (changed or {}).items():
        if name not in pairs:
            raise InputError(f"{name!r} is not a parameter of the model.", f"Give one of: {', '.join(NAMES)}.")
        try:
            mean, sd = (float(number) for number in pair)
        except (TypeError, ValueError):
            mean = sd = float("nan")
        if not (np.isfinite([mean, sd]).all() and sd > 0):
            raise InputError(
                f"The prior of {name} must be a mean and a standard deviation above 0, got {pair!r}.", "Correct it."
            )
        pairs[name] = (mean, sd)
    means, sds = np.array(list(pairs.values())).T
    return means, sds


def natural(name: str, value: Floats) -> Floats:
    """Return a parameter's values as they enter the equations."""
    values: Floats = np.exp(value) if PARAMETERS[name].scale == "log" else 1 / (1 + np.exp(-value))
    return values


def reference(axes: Axes) -> Axes:
    """Return the geometric mean of allocations, as one row."""
    return Axes(*(np.array([column.mean()]) for column in axes))


def log_throughput(draws: Floats, axes: Axes, at: Axes) -> Floats:
    """Return log samples/s (d, n), up to a constant, of allocations (n,) for each row of `draws` (d, k).

    It is computed in single precision, which is up to four times as fast; the error is about 1e-6.
    """
    draws, axes, at = single(draws), Axes(*map(single, axes)), Axes(*map(single, at))
    q = {name: natural(name, draws[:, i])[:, None] for i, name in enumerate(NAMES)}
    # axes.workers is ln w, and axes.ps is ln p.
    w, batch = np.exp(axes.workers), np.exp(axes.batch_size - at.batch_size)
    speed_up = np.exp(-(axes.worker_cpu - at.worker_cpu) - (axes.worker_gpu - at.worker_gpu))
    worker_time = (
        batch * (q["serial"] + (1 - q["serial"]) * speed_up)
        + q["fixed"]
        + q["straggle"] * axes.workers
        + q["fan"] * np.exp(axes.ps)
    )
    reference_time = 1 + q["fixed"] + q["straggle"] * at.workers + q["fan"] * np.exp(at.ps)
    log_service = (
        q["service_size"] * (axes.embedding_bytes - at.embedding_bytes)
        - q["even"] * (axes.ps - at.ps)
        - q["service_cores"] * (axes.ps_cpu - at.ps_cpu)
    )
    relative_workers = np.exp(axes.workers - at.workers)
    service = (
        reference_time * q["service"] * (1 - q["service_batch"] + q["service_batch"] * batch) * np.exp(log_service)
    )
    shared_input = reference_time * q["input"] * relative_workers * batch
    smooth = q["smooth"]
    limits = (worker_time + service / np.exp(at.workers), relative_workers * service, shared_input)
    longest = np.maximum(np.maximum(limits[0], limits[1]), limits[2])
    with np.errstate(divide="ignore"):  # a limit may be as little as nothing
        total = sum(np.exp(smooth * np.log(limit / longest)) for limit in limits)
    cycle = longest * np.exp(np.log(total) / smooth) + q["contention"] * reference_time * w**2
    if axes.sync.any():
        waiting = cycle + q["sync_workers"] * reference_time * (w - 1) / np.exp(at.workers)
        cycle = np.where(axes.sync > 0, waiting * q["sync_factor"], cycle)
    log_rates: Floats = axes.workers + axes.batch_size - np.log(cycle)
    return log_rates


def single(numbers: Floats) -> Floats:
    """Return numbers in single precision."""
    converted: Floats = numbers.astype(np.float32)
    return converted
