"""Workers that are fed by loader processes of their own: the rate of training, limited by that of loading.

    throughput = (r^-γ + (w·L·λ)^-γ)^(-1/γ)   with   r = 1 / (1 / base + d / (w·m·min(c, 1)))

w workers with c cores each have L loaders, of which each delivers λ = m / (a + b·m) samples/s in batches of m. A worker
itself spends d core seconds on the data of a batch: to load it (L = 0), or to take it over from its loaders. `base`
predicts what the workers would train without any data to wait for: it is fitted to x / (1 - q), where x is the measured
throughput and q the share of a step that goes into data, but not above what the cores allow by the CPU seconds of a
sample where loaders are too few. a and b are fitted to the seconds w·L·m / x of the trials that wait for loaders;
trials that do not wait say only that these are no more. Where a worker uses all its cores, or its limit stops it, more
loaders bring nothing, so that it does not count as waiting. The smooth minimum is that of a pipeline whose stages vary
from step to step.
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
from sizewright.models.table import AXES, QUOTA_COLUMNS, Table, as_columns, filled, stopped_at_quota, successful
from sizewright.spec.metrics import PHASES

Floats = NDArray[np.float64]

_SHARPNESS = 16.0
"""γ: two equal rates give 96 % of each."""
_MIN_WAIT, _MIN_WAIT_OF_IDLE = 0.05, 0.2
"""A trial waits for data if its steps do so for this share of their time. To hand a batch over takes time, too: for
loaders that compute for less than `_HALF` of their time, the share must be larger."""
_HALF = 0.5
_BUSY = 0.9
"""A worker that uses this share of its cores is limited by them."""
_MIN_SD, _UNMEASURED_SD = 0.03, 0.3
_RESERVE = 1.3
"""Loaders for which no trial has waited are taken to deliver so many times what was trained, or until they compute for
`_HALF` of their time."""
_NONE = np.zeros(0)
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
    *QUOTA_COLUMNS,
)
_COLUMNS = tuple(dict.fromkeys((*_OF_BASE, *_OF_LOADING)))


class Loading(NamedTuple):
    """What a worker's loaders can deliver, and the time that it spends on data itself. Pairs are (a, b) of a + b·m."""

    batch_s: tuple[float, float]
    """The seconds that one loader takes for a batch of m samples."""
    sd: float
    """Standard deviation of their logarithm."""
    cpu_s: float | None
    """CPU seconds that loading a sample takes, where trials tell loaders apart."""
    alone_s: tuple[float, float]
    """The core seconds in which a worker without loaders loads a batch: with less than a core it takes longer."""
    handover_s: tuple[float, float]
    """The core seconds in which it takes a batch from its loaders, which do not limit it."""

    def delivered(self, batch: Floats, loaders: Floats) -> Floats:
        """Return the samples/s (n,) that the loaders of one worker deliver; infinite without loaders."""
        a, b = self.batch_s
        with np.errstate(divide="ignore"):  # nothing is known of them
            return np.asarray(np.where(loaders > 0, loaders * batch / (a + b * batch), np.inf))

    def own_s(self, batch: Floats, loaders: Floats, cores: Floats) -> Floats:
        """Return the seconds (n,) that a worker spends on a batch of data itself: to load it, or to take it over."""
        alone, handover = (a + b * batch for a, b in (self.alone_s, self.handover_s))
        return np.where(loaders > 0, handover, alone) / _share_of_core(cores)


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
        self.loading_ = _loading(trials, wait)
        of_known = known[successful(X)]
        rows["throughput"][of_known], rows["worker_cpu_used"][of_known] = _rates_without_data(
            trials, wait, self.loading_
        )
        self.base_ = self.base.fit(rows)
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
        """Return the samples/s (n,) that the workers would train with loaders enough."""
        rates = self.base_.predict(X)
        if self.loading_ is None:
            return rates
        own = np.where(as_columns(X, ("loaders",))["loaders"] == 0, np.inf, self._data_rates(X)[1])
        return 1 / (1 / rates + 1 / own)

    def loading_rates(self, X: Table) -> Floats:
        """Return the samples/s (n,) that loaders deliver, or workers load; infinite where nothing is known of them."""
        if self.loading_ is None:
            return np.full(len(as_columns(X, ("workers",))["workers"]), np.inf)
        delivered, own = self._data_rates(X)
        return np.where(as_columns(X, ("loaders",))["loaders"] == 0, own, delivered)

    def _data_rates(self, X: Table) -> tuple[Floats, Floats]:
        """Return the samples/s (n,) that the loaders deliver, and those of a worker's own time for data alone."""
        assert self.loading_ is not None
        columns = as_columns(X, ("workers", "worker_cpu", "batch_size", "loaders"))
        workers, loaders, cores = (columns[name] for name in ("workers", "loaders", "worker_cpu"))
        batch, known = filled(columns["batch_size"], self.batch_size_), np.isfinite(loaders)
        delivered = workers * self.loading_.delivered(batch, loaders)
        with np.errstate(divide="ignore"):
            own = workers * batch / self.loading_.own_s(batch, loaders, cores)
        return np.where(known, delivered, np.inf), np.where(known, own, np.inf)

    def _limited(self, rates: Floats, X: Table, factor: Floats | float = 1.0) -> Floats:
        """Return rates of training (..., n), limited by data whose rate is changed by a factor."""
        if self.loading_ is None:
            return rates
        delivered, own = (data_rates * factor for data_rates in self._data_rates(X))
        in_turn = 1 / (1 / rates + 1 / own)
        slower = np.minimum(in_turn, delivered)
        return slower * (1 + (slower / np.maximum(in_turn, delivered)) ** _SHARPNESS) ** (-1 / _SHARPNESS)

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


def _share_of_core(cores: Floats) -> Floats:
    """Return what one thread of a worker (n,) has of a core; all of it where the cores are not known."""
    return np.minimum(filled(cores, np.inf), 1.0)


def _is_limited_by_cores(trials: dict[str, Floats]) -> NDArray[np.bool_]:
    """Return which workers (n,) use all their cores, or are stopped at their limit; none of those without records."""
    uses_all = filled(trials["worker_cpu_used"] / trials["worker_cpu"], 0.0) >= _BUSY
    return np.asarray(uses_all | stopped_at_quota(trials))


def _waits_for_loaders(trials: dict[str, Floats], wait: Floats) -> NDArray[np.bool_]:
    """Return which trials (n,) wait for loaders, although their workers have cores to spare."""
    waits = wait >= np.where(_busy(trials) < _HALF, _MIN_WAIT_OF_IDLE, _MIN_WAIT)
    return np.asarray((trials["loaders"] > 0) & waits & ~_is_limited_by_cores(trials))


def _busy(trials: dict[str, Floats]) -> Floats:
    """Return the share of the time for which each loader (n,) computes; 1 where it is not known."""
    return filled(trials["loader_cpu_used"] / np.maximum(trials["loaders"], 1), 1.0)


def _rates_without_data(trials: dict[str, Floats], wait: Floats, loading: Loading) -> tuple[Floats, Floats]:
    """Return the samples/s (n,) that the trials would have had without waiting, and the cores that they would use.

    With loaders enough a sample takes the same CPU seconds. What a worker does with data itself takes its share of the
    CPU seconds, too. Where the limit stops a worker, its processes push each other out of caches: the CPU seconds tell
    nothing of the host then, so the cores are unknown.
    """
    rates, used = trials["throughput"], trials["worker_cpu_used"]
    loaded = trials["workers"] * loading.delivered(trials["batch_size"], trials["loaders"])
    waits = _waits_for_loaders(trials, wait) & (loaded <= _RESERVE * rates)
    cores_allow = filled(trials["worker_cpu"] / used, np.inf) * rates
    fed = np.maximum(np.minimum(rates / (1 - wait), cores_allow), rates)
    used = np.where(stopped_at_quota(trials), np.nan, used)
    return np.where(waits, fed, rates / (1 - wait)), np.where(waits, used * fed / rates, used)


def _loading(trials: dict[str, Floats], wait: Floats) -> Loading:
    """Return how loaders deliver: by the trials that wait for data, and at least as fast as those that do not."""
    fed, waits = trials["loaders"] > 0, _waits_for_loaders(trials, wait)
    per_worker, batch = trials["throughput"] / trials["workers"], trials["batch_size"]
    batch_s = trials["loaders"] * batch / per_worker  # of one loader
    of_loader, sd = (0.0, 0.0), _UNMEASURED_SD
    if waits.any():
        of_loader, sd = _batch_seconds(batch[waits], batch_s[waits], batch[fed & ~waits], batch_s[fed & ~waits])
    elif fed.any():
        spare = np.maximum(_HALF / np.maximum(_busy(trials), 1e-3), _RESERVE)
        of_loader = (0.0, float((batch_s / batch / spare)[fed].min()))
    own_s = filled(trials["phase_data_s"], 0.0) * _share_of_core(trials["worker_cpu"])
    alone_s, handover_s = (
        _batch_seconds(batch[rows], own_s[rows])[0] if (rows := group & (own_s > 0)).any() else None
        for group in (~fed, fed & ~waits)
    )
    cpu = (trials["loader_cpu_used"] / per_worker)[fed & np.isfinite(trials["loader_cpu_used"])]
    return Loading(
        batch_s=of_loader if fed.any() else alone_s or of_loader,
        sd=sd,
        cpu_s=float(np.median(cpu)) if len(cpu) else None,
        alone_s=alone_s or of_loader,
        handover_s=handover_s or (0.0, 0.0),
    )


def _batch_seconds(
    batch: Floats, seconds: Floats, faster_batch: Floats = _NONE, at_most_s: Floats = _NONE
) -> tuple[tuple[float, float], float]:
    """Return the seconds of a batch (a, b) as a + b·m, and the standard deviation of their logarithm about it.

    They are those of some trials (n,), but no more than others (k,) show. a is 0 where all batches are of one size.
    """
    binding = np.zeros(len(at_most_s), bool)
    while True:
        at, of = np.append(batch, faster_batch[binding]), np.append(seconds, at_most_s[binding])
        if np.ptp(at) > 0:
            (a, b), _ = nnls(np.column_stack([np.ones_like(at), at]) / of[:, None], np.ones(len(at)))
        else:
            a, b = 0.0, float(np.exp(np.log(of / at).mean()))
        slower = (a + b * faster_batch > at_most_s) & ~binding
        if not slower.any():
            break
        binding |= slower
    deviation = np.log(of / (a + b * at))
    return (float(a), float(b)), max(float(deviation.std()), _MIN_SD)
