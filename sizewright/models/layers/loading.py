"""Workers that are fed by loader processes of their own: the rate of training, limited by that of loading.

    throughput = (base^-γ + (w·L·λ)^-γ)^(-1/γ),  or 1 / (1 / base + 1 / (w·λ₀)) where a worker loads itself (L = 0)

w workers have L loaders each, of which each delivers λ = m / (a + b·m) samples/s in batches of m. `base` predicts what
the workers would train if they never waited for data: it is fitted to x / (1 - q), where x is the measured throughput
and q the share of a step that waits for data, but not above what the cores allow by the CPU seconds of a sample. Where
a worker uses all its cores, more loaders bring nothing, so x itself is taken. a and b are fitted to the seconds
w·L·m / x of the trials that wait; trials that do not wait say only that these are no more. The smooth minimum is that
of a pipeline whose stages vary from step to step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.default.predictor import AUXILIARY_COLUMNS
from sizewright.models.table import AXES, Table, as_columns, filled, successful
from sizewright.spec.metrics import PHASES

Floats = NDArray[np.float64]

_SHARPNESS = 16.0
"""γ: two equal rates give 96 % of each."""
_MIN_WAIT = 0.05
"""A trial waits for data if its steps do so for this share of their time."""
_BUSY = 0.9
"""A worker that uses this share of its cores is limited by them."""
_MIN_SD, _UNMEASURED_SD = 0.03, 0.3
_RESERVE = 1.3
"""Loaders for which no trial has waited are taken to deliver so many times what was trained."""
_OF_LOADING = ("loaders", "loader_cpu_used", *(f"phase_{name}" for name in PHASES))
_OF_BASE = (
    *AXES,
    "worker_gpu",
    "sync",
    "table_scale",
    "throughput",
    *AUXILIARY_COLUMNS,
    "worker_cpu_used",
    "ps_cpu_used",
)
_COLUMNS = tuple(dict.fromkeys((*_OF_BASE, *_OF_LOADING)))


class Loading(NamedTuple):
    """What a worker's loaders can deliver."""

    batch_s: tuple[float, float]
    """The seconds a + b·m that one loader takes for a batch of m samples, as (a, b)."""
    sd: float
    """Standard deviation of their logarithm."""
    cpu_s: float | None
    """CPU seconds that loading a sample takes, where trials tell loaders apart."""
    alone_batch_s: tuple[float, float]
    """The same of a worker that loads itself."""

    def rates(self, batch: Floats, loaders: Floats) -> Floats:
        """Return the samples/s (n,) that the loaders of one worker deliver, or that it loads itself."""
        (a, b), (own_a, own_b) = self.batch_s, self.alone_batch_s
        with np.errstate(divide="ignore"):  # nothing is known of them
            fed, alone = loaders * batch / (a + b * batch), batch / (own_a + own_b * batch)
        return np.asarray(np.where(loaders > 0, fed, alone))


class LoadingModel(BaseThroughputModel):
    """The rate of `base` with loaders that may be too few; without trials that record loaders it is `base` itself."""

    name = "loading"

    def __init__(self, base: BaseThroughputModel) -> None:
        self.base = base
        self.min_trials = base.min_trials
        self.prior_ranges = base.prior_ranges

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from successful trials. Raises what the `fit` of `base` raises."""
        columns = as_columns(X, _COLUMNS)
        if y is not None:
            columns["throughput"] = np.asarray(y, float)
        has_phases = np.isfinite(columns["phase_data_s"]) | np.isfinite(columns["phase_compute_s"])
        known = successful(X) & np.isfinite(columns["loaders"]) & has_phases & (columns["throughput"] > 0)
        self.loading_: Loading | None = None
        if not known.any():
            self.base_ = self.base.fit(X, y)
            return self
        rows = {name: column[successful(X)] for name, column in columns.items()}
        trials = {name: column[known] for name, column in columns.items()}
        wait = waiting_share(trials)
        faster = np.ones(len(known))
        faster[known] = _rates_without_waiting(trials, wait) / trials["throughput"]
        for name in ("throughput", "worker_cpu_used"):  # a sample takes the same CPU seconds
            rows[name] = rows[name] * faster[successful(X)]
        self.base_ = self.base.fit(rows)
        self.loading_ = _loading(trials, wait)
        self.batch_size_ = float(np.median(trials["batch_size"]))
        return self

    def predict(self, X: Table) -> Floats:  # noqa: D102
        return self._limited(self.base_.predict(X), X)

    def predict_interval(  # noqa: D102
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[Floats, Floats]:
        check_interval(coverage, kind)
        lower, upper = self.base_.predict_interval(X, coverage, kind)
        spread = self._spread(coverage)
        return self._limited(lower, X, 1 / spread), self._limited(upper, X, spread)

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Floats, Floats, Floats]:  # noqa: D102
        rates, lower, upper = self.base_.predict_with_interval(X, coverage)
        spread = self._spread(coverage)
        return self._limited(rates, X), self._limited(lower, X, 1 / spread), self._limited(upper, X, spread)

    def curves(self, X: Table, count: int, rng: np.random.Generator) -> Floats:  # noqa: D102
        curves = self.base_.curves(X, count, rng)
        if self.loading_ is None:
            return curves
        factors = np.exp(self.loading_.sd * rng.standard_normal((len(curves), 1)))
        return self._limited(curves, X, factors)

    def support(self, X: Table) -> Floats:  # noqa: D102
        return self.base_.support(X)

    def within_run(self) -> LoadingModel:  # noqa: D102
        return LoadingModel(self.base.within_run())

    def explain(self) -> Explanation:  # noqa: D102
        explanation = self.base_.explain()
        if self.loading_ is None:
            return explanation
        fixed_s, sample_s = self.loading_.batch_s
        parameters = {"loader_batch_s": fixed_s, "loader_sample_s": sample_s}
        equations = dict.fromkeys(parameters, "throughput ≤ w·L·m / (a + b·m)")
        return replace(
            explanation,
            parameters=explanation.parameters | parameters,
            equations=explanation.equations | equations,
        )

    def training_rates(self, X: Table) -> Floats:
        """Return the samples/s (n,) that the workers would train if they never waited for data."""
        return self.base_.predict(X)

    def loading_rates(self, X: Table) -> Floats:
        """Return the samples/s (n,) that the loaders deliver; infinite where nothing is known of them."""
        columns = as_columns(X, ("workers", "batch_size", "loaders"))
        workers, loaders = columns["workers"], columns["loaders"]
        if self.loading_ is None:
            return np.full(len(workers), np.inf)
        per_worker = self.loading_.rates(filled(columns["batch_size"], self.batch_size_), loaders)
        return np.asarray(np.where(np.isfinite(loaders), workers * per_worker, np.inf))

    def _limited(self, rates: Floats, X: Table, factor: Floats | float = 1.0) -> Floats:
        """Return rates of training (..., n), limited by loaders whose rate is changed by a factor."""
        if self.loading_ is None:
            return rates
        loading = self.loading_rates(X) * factor
        alone = as_columns(X, ("loaders",))["loaders"] == 0
        in_turn = 1 / (1 / rates + 1 / loading)
        slower = np.minimum(rates, loading)
        at_once = slower * (1 + (slower / np.maximum(rates, loading)) ** _SHARPNESS) ** (-1 / _SHARPNESS)
        return np.asarray(np.where(alone, in_turn, at_once))

    def _spread(self, coverage: float) -> float:
        """Return the factor by which the rate of loaders may be higher, at the end of an interval."""
        return float(np.exp(ndtri(0.5 + coverage / 2) * self.loading_.sd)) if self.loading_ else 1.0


def waiting_share(X: Table) -> Floats:
    """Return the share of a step (n,) in which a worker of each trial waits for data, or loads it; 0 where unknown.

    A step lasts as long as its phases; where only reading is reported, as long as the throughput says.
    """
    columns = as_columns(X, ("workers", "batch_size", "throughput", *(f"phase_{name}" for name in PHASES)))
    data = filled(columns["phase_data_s"], 0.0)
    others = sum(filled(columns[f"phase_{name}"], 0.0) for name in PHASES if name != "data_s")
    by_rate = columns["workers"] * columns["batch_size"] / columns["throughput"]
    step_s = np.where(others > 0, data + others, by_rate)
    return np.asarray(np.clip(filled(data / np.maximum(step_s, 1e-9), 0.0), 0.0, 0.99))


def _is_limited_by_cores(trials: dict[str, Floats]) -> NDArray[np.bool_]:
    """Return which workers (n,) use all their cores; none of those whose use is not known."""
    return np.asarray(filled(trials["worker_cpu_used"] / trials["worker_cpu"], 0.0) >= _BUSY)


def _rates_without_waiting(trials: dict[str, Floats], wait: Floats) -> Floats:
    """Return the samples/s (n,) that the trials would have had with loaders enough."""
    rates = trials["throughput"]
    cores_allow = filled(trials["worker_cpu"] / trials["worker_cpu_used"], np.inf) * rates
    without = np.maximum(np.minimum(rates / (1 - wait), cores_allow), rates)
    limited = (wait < _MIN_WAIT) | _is_limited_by_cores(trials)
    return np.where(limited, rates, without)


def _loading(trials: dict[str, Floats], wait: Floats) -> Loading:
    """Return how loaders deliver: by the trials that wait for data, or at least as fast as the fastest one."""
    fed, idle_cores = trials["loaders"] > 0, ~_is_limited_by_cores(trials)
    per_worker, batch = trials["throughput"] / trials["workers"], trials["batch_size"]
    batch_s = trials["loaders"] * batch / per_worker  # of one loader
    waits = fed & idle_cores & (wait >= _MIN_WAIT)
    if waits.any():
        of_loader, sd = _batch_seconds(batch[waits], batch_s[waits])
    elif fed.any():
        of_loader, sd = (0.0, float((batch_s / batch)[fed].min()) / _RESERVE), _UNMEASURED_SD
    else:
        of_loader, sd = None, _UNMEASURED_SD
    reads = ~fed & (wait > 0)
    alone = _batch_seconds(batch[reads], trials["phase_data_s"][reads])[0] if reads.any() else of_loader
    cpu = (trials["loader_cpu_used"] / per_worker)[fed & np.isfinite(trials["loader_cpu_used"])]
    return Loading(
        batch_s=of_loader or alone or (0.0, 0.0),
        sd=sd,
        cpu_s=float(np.median(cpu)) if len(cpu) else None,
        alone_batch_s=alone or (0.0, 0.0),
    )


def _batch_seconds(batch: Floats, seconds: Floats) -> tuple[tuple[float, float], float]:
    """Return the seconds of a batch (a, b) as a + b·m, and the standard deviation of their logarithm about it.

    a is 0 where all batches (n,) are of one size.
    """
    if np.ptp(batch) > 0:
        (a, b), _ = nnls(np.column_stack([np.ones_like(batch), batch]) / seconds[:, None], np.ones(len(batch)))
    else:
        a, b = 0.0, float(np.exp(np.log(seconds / batch).mean()))
    deviation = np.log(seconds / (a + b * batch))
    return (float(a), float(b)), max(float(deviation.std()), _MIN_SD)
