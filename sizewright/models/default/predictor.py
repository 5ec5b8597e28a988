"""The default model: a mechanistic curve, a Gaussian process for its residual, and Bayesian inference of both.

The posterior given the trials is represented by draws. Each draw is a curve (`curve.py`) with a residual
(`residual_process.py`). The curve is blended with the prediction from the measured phases of the trials (`phases.py`)
where they have phases, and with the prediction of a learned prior (`models/prior/`) where there is one; each draw has
its own shares of these.

The priors of the parameters stand in for what three or eight trials cannot determine, so intervals are sensible from
the start and narrow as trials come. Their ends are Student's t with n + 20 degrees of freedom, since noise has heavier
tails than the normal distribution. The same draws show a planner what another trial may bring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, stdtrit
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.axes import EXTRAPOLATION_SD, MIN_ALLOCATIONS, Axes, count_distinct, prepare_training_data
from sizewright.models.default import curve
from sizewright.models.default.links import Traffic, limit_by_links
from sizewright.models.default.parameter_prior import Normals
from sizewright.models.default.phases import PHASES, PhasesModel
from sizewright.models.default.residual_process import ResidualProcess, ResidualScales, pool_repeats
from sizewright.models.default.speed_normalization import normalize_host_speed
from sizewright.models.host_state import HostState
from sizewright.models.posterior import Effort, sample
from sizewright.models.prior.curve import JobCurve
from sizewright.models.table import Table, as_columns

Floats = NDArray[np.float64]

AUXILIARY_COLUMNS = ("throughput_se", "host_speed", "network_bytes", "embedding_bytes", "worker_cpu_used", *PHASES)
"""Columns of a trial that the model uses in addition to throughput and allocation."""
# The share of a learned prior in the curve: mean and standard deviation of its logit.
PRIOR_SHARE = (4.0, 2.0)
# A learned prior also knows residual and noise, with this sd of their logarithms.
_LEARNED_LOG_SD = 0.5
# The trials that a prior's knowledge of residual and noise is worth.
_FREEDOM, _LEARNED_FREEDOM = 21, 24
_MIN_SD = 0.02
_WITHIN_RUN = {"noise": (float(np.log(0.02)), 0.5)}
# Weights of log E and of the synchronous mode, as distances in the residual's space.
_SIZE_WEIGHT, _SYNC_WEIGHT = 0.25, 1.1
# A parameter is determined where its posterior sd is below this share of its prior sd.
_DETERMINED = 0.7
# Predictions for many rows use fewer draws.
_MAX_CELLS_OF_MOMENTS = 4_000_000  # draws times rows
_MAX_CELLS_OF_CURVES = 1_000_000
_MIN_DRAWS = 16
_BLOCK_ROWS = 4096


class _OtherPredictions(NamedTuple):
    """Log samples/s (n,), up to a constant, that a learned prior and measured phases predict."""

    prior: Floats | None
    phases: Floats | None

    def pick(self, rows: NDArray[np.int64] | slice) -> _OtherPredictions:
        """Return some of the rows."""
        return _OtherPredictions(*(None if column is None else column[rows] for column in self))


class ThroughputModel(BaseThroughputModel):
    """Throughput of an allocation, from three distinct trials up.

    `parameter_priors` maps names of parameters to (mean, sd), in place of those of `curve.PARAMETERS`; a learned prior
    (`parameter_prior.py`) has such pairs.
    `prior_curve` is the curve that a learned prior predicts for the job; then one trial is enough. A planner may use
    fewer than `min_allocations`, since its choices are measured next. Methods raise what `BaseThroughputModel` says.
    """

    name = "default"

    def __init__(
        self,
        parameter_priors: Mapping[str, tuple[float, float]] | None = None,
        seed: int = 0,
        min_allocations: int = MIN_ALLOCATIONS,
        prior_curve: JobCurve | None = None,
    ) -> None:
        self.parameter_priors = parameter_priors
        self.seed = seed
        self.min_allocations = min_allocations
        self.prior_curve = prior_curve

    @property
    def min_trials(self) -> int:  # type: ignore[override]
        """Number of distinct allocations from which `fit` works."""
        return 1 if self.prior_curve else self.min_allocations

    @property
    def prior_ranges(self) -> Mapping[str, tuple[float, float]]:  # type: ignore[override]
        """Ranges of the axes that the learned prior covers."""
        return self.prior_curve.ranges if self.prior_curve else {}

    def within_run(self) -> ThroughputModel:
        """Return an unfitted copy that expects less noise: throughputs of one run share the state of its hosts."""
        priors = _WITHIN_RUN | dict(self.parameter_priors or {})
        return ThroughputModel(priors, self.seed, self.min_allocations, self.prior_curve)

    def fit(self, X: Table, y: ArrayLike | None = None) -> Self:
        """Learn from a trial table X and its throughput y (n,) in samples/s; failed trials are left out.

        Raises NotEnoughDataError with fewer than three distinct allocations (one, with a learned prior), InputError for
        a table that cannot be used.
        """
        trials = prepare_training_data(X, y, min_allocations=self.min_trials)
        self.imputer_ = trials.imputer
        self.distinct_ = count_distinct(trials.axes)
        self.claimed_se_ = trials.relative_se
        self.traffic_ = Traffic.of(X)
        state = HostState.of(X)
        self.host_sd_ = state.sd
        self.phases_ = _fit_phases(X, y, state)

        rates = np.log(trials.throughput) + state.deviation[trials.rows]
        rates, self.speed_exponent_ = normalize_host_speed(trials.axes, rates, trials.host_speed)
        self.mean_rate_ = float(rates.mean())
        self.reference_ = curve.reference(trials.axes)
        self.repeats_ = pool_repeats(trials.axes, rates - self.mean_rate_)
        self._axes = trials.axes.pick(self.repeats_.rows)
        self._others = self._other_predictions(X, trials=True).pick(trials.rows[self.repeats_.rows])
        self._sample(self.repeats_.counts)
        weights = self.process_.tail_weights(self.residuals_, self._scales(self.draws_), self.lengths_)
        if (weights < 1).any():
            self._sample(self.repeats_.counts * weights)
        return self

    def _sample(self, counts: Floats) -> None:
        """Draw from the posterior, where each allocation is the mean of `counts` (n,) trials."""
        rng = np.random.default_rng(self.seed)
        self.process_ = ResidualProcess(_places(self._axes), counts)
        self.draws_ = sample(self._log_likelihood, *self._parameter_priors(), rng, Effort())
        self.residuals_ = self._residuals(self.draws_)
        self.lengths_ = self.process_.draw_lengths(self.residuals_, self._scales(self.draws_), rng)

    def predict(self, X: Table) -> Floats:
        """Return samples/s (n,): the geometric mean over the posterior.

        Raises InputError for a table that cannot be used.
        """
        mean, _ = self._moments(X)
        return np.asarray(np.exp(mean))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,) of another trial, or of the curve (`kind="mean"`).

        The interval holds it with probability `coverage`. Raises InputError for an invalid coverage or kind.
        """
        return self._mean_and_interval(X, coverage, kind)[1:]

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Return samples/s, and lower and upper ends of the interval of another trial, (n,) each.

        The interval holds the trial with probability `coverage`. Raises InputError for an invalid coverage.
        """
        return self._mean_and_interval(X, coverage, "trial")

    def _mean_and_interval(self, X: Table, coverage: float, kind: Kind) -> tuple[Floats, Floats, Floats]:
        check_interval(coverage, kind)
        mean, variance = self._moments(X)
        if kind == "trial":
            variance = variance + float(np.mean(self._scales(self.draws_).noise ** 2)) + self.host_sd_**2
        freedom = self.repeats_.counts.sum() - 1 + (_LEARNED_FREEDOM if self.prior_curve else _FREEDOM)
        half_width = stdtrit(freedom, 0.5 + coverage / 2) * np.sqrt(variance)
        return np.exp(mean), np.exp(mean - half_width), np.exp(mean + half_width)

    def curves(self, X: Table, count: int, rng: np.random.Generator) -> Floats:
        """Return samples/s (d, n) of at most `count` curves drawn from the posterior; fewer curves for many rows.

        Raises InputError for a table that cannot be used.
        """
        self._check_fitted()
        axes = self.imputer_.axes(X)
        step = len(axes.workers) * len(self.draws_) // _MAX_CELLS_OF_CURVES
        step = min(max(1, step), len(self.draws_) // _MIN_DRAWS)
        thinning = slice(None, None, max(step, math.ceil(len(self.draws_) / count)))
        draws = self.draws_[thinning]
        lengths = self.lengths_[thinning]
        residuals = self.process_.paths(self.residuals_[thinning], self._scales(draws), lengths, _places(axes), rng)
        rates = self._blended_log_rates(draws, axes, self._other_predictions(X)) + residuals + self.mean_rate_
        return np.asarray(np.exp(limit_by_links(rates, self._link_limit(X))[0]))

    def support(self, X: Table) -> Floats:
        """Return how far allocations (n,) lie outside the ranges of the trials and of the prior, in e-folds."""
        self._check_fitted()
        return self._outside(X, self.imputer_.axes(X))

    def explain(self) -> Explanation:
        """Return the medians of the mechanistic parameters; those that the trials did not determine are pinned."""
        self._check_fitted()
        _, prior_sds = self._parameter_priors()
        determined = self.draws_.std(axis=0) < _DETERMINED * prior_sds
        return Explanation(
            model=self.name,
            parameters={
                name: float(np.median(curve.natural(name, self.draws_[:, i]))) for i, name in enumerate(curve.NAMES)
            },
            equations={name: parameter.equation for name, parameter in curve.PARAMETERS.items()},
            pinned=tuple(name for name, on in zip(curve.NAMES, determined, strict=False) if not on),
            distinct_allocations=self.distinct_,
            enough=True,
            needed=self.min_trials,
            host_sd=self.host_sd_,
        )

    def _moments(self, X: Table) -> tuple[Floats, Floats]:
        """Return mean and variance (n,) of log samples/s over the posterior."""
        self._check_fitted()
        axes = self.imputer_.axes(X)
        count = len(axes.workers)
        max_draws = max(_MIN_DRAWS, _MAX_CELLS_OF_MOMENTS // max(count, 1))
        thinning = slice(None, None, max(1, len(self.draws_) // max_draws))
        draws, residuals, lengths = self.draws_[thinning], self.residuals_[thinning], self.lengths_[thinning]
        scales = self._scales(draws)
        link_limit, others = self._link_limit(X), self._other_predictions(X)

        mean, variance = np.empty(count), np.empty(count)
        for start in range(0, count, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            block = axes.pick(rows)
            residual_mean, residual_variance = self.process_.moments(residuals, scales, lengths, _places(block))
            rates = self._blended_log_rates(draws, block, others.pick(rows)) + residual_mean + self.mean_rate_
            rates, link_variance = limit_by_links(rates, link_limit[rows])
            mean[rows] = rates.mean(axis=0)
            variance[rows] = residual_variance.mean(axis=0) + rates.var(axis=0) + link_variance
        return mean, variance + (EXTRAPOLATION_SD * self._outside(X, axes)) ** 2

    def _outside(self, X: Table, axes: Axes) -> Floats:
        """Return the e-folds (n,) by which the rows of X, whose axes these are, lie outside trials and prior."""
        outside = _weighted_distance_outside(axes, self._axes)
        return np.minimum(outside, self.prior_curve.extrapolation(X)) if self.prior_curve else outside

    def _blended_log_rates(self, draws: Floats, axes: Axes, others: _OtherPredictions) -> Floats:
        """Return log samples/s (d, n), up to a constant: the curve, blended with other predictions."""
        rates = curve.log_throughput(draws, axes, self.reference_)
        if others.prior is not None:
            share = expit(draws[:, -1:])
            rates = (1 - share) * rates + share * others.prior
        if others.phases is not None:
            share = curve.natural("phases", draws[:, curve.NAMES.index("phases")])[:, None]
            rates = (1 - share) * rates + share * others.phases
        return rates

    def _other_predictions(self, X: Table, *, trials: bool = False) -> _OtherPredictions:
        return _OtherPredictions(
            prior=self.prior_curve.log_rates(X) - self.mean_rate_ if self.prior_curve else None,
            phases=self.phases_.log_rates(X, trials=trials) - self.mean_rate_ if self.phases_ else None,
        )

    def _parameter_priors(self) -> tuple[Floats, Floats]:
        """Return mean and sd (k,) of the parameters; with a learned prior the last one is its share, a logit."""
        if self.prior_curve is None:
            return curve.prior_of(self.parameter_priors)
        learned_sds = {
            "residual": self.prior_curve.calibration_factor * self.prior_curve.shape_sd,
            "noise": self.prior_curve.corrected_noise_sd if self.host_sd_ else self.prior_curve.noise_sd,
        }
        learned = {name: (float(np.log(max(sd, _MIN_SD))), _LEARNED_LOG_SD) for name, sd in learned_sds.items()}
        means, sds = curve.prior_of(learned | dict(self.parameter_priors or {}))
        return np.append(means, PRIOR_SHARE[0]), np.append(sds, PRIOR_SHARE[1])

    def _link_limit(self, X: Table) -> Floats:
        """Return the log samples/s (n,) that links allow; infinite where the trials do not record their traffic."""
        if self.traffic_ is None:
            return np.full(len(as_columns(X, ("workers",))["workers"]), np.inf)
        return self.traffic_.log_limit(X)

    def _residuals(self, draws: Floats) -> Floats:
        residuals = self.repeats_.rates - self._blended_log_rates(draws, self._axes, self._others)
        return np.where(np.isfinite(residuals), residuals, 1e3)

    def _log_likelihood(self, draws: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # a proposal far out is merely unlikely
            residuals = self._residuals(draws)
        scales = self._scales(draws)
        return self.process_.log_likelihood(residuals, scales) + self.repeats_.log_likelihood(scales.noise)

    def _scales(self, draws: Floats) -> ResidualScales:
        noise = np.exp(draws[:, curve.NAMES.index("noise")])
        return ResidualScales(np.exp(draws[:, curve.NAMES.index("residual")]), np.sqrt(noise**2 + self.claimed_se_**2))


def posterior_draws(trials: Table, normals: Normals) -> Floats:
    """Return draws (d, k) of the parameters given trials, under a prior. Raises what `ThroughputModel.fit` raises."""
    return ThroughputModel(normals).fit(trials).draws_


def _fit_phases(X: Table, y: ArrayLike | None, state: HostState) -> PhasesModel | None:
    """Return a model of the trials' phases; None where fewer than three allocations have phases."""
    try:
        return PhasesModel().fit(X, y, state)
    except NotEnoughDataError:
        return None


def _weighted_distance_outside(axes: Axes, measured: Axes) -> Floats:
    """Return how far allocations (n,) lie outside the measured ranges, in e-folds summed over all axes.

    Table size counts with its weight in the residual's space, since rows that are never met slow nothing down.
    """
    places, measured_places = _places(axes)[:, :-1], _places(measured)[:, :-1]  # without the synchronous mode
    below = np.maximum(measured_places.min(axis=0) - places, 0.0)
    above = np.maximum(places - measured_places.max(axis=0), 0.0)
    return np.asarray((below + above).sum(axis=1))


def _places(axes: Axes) -> Floats:
    """Return the coordinates of allocations in the residual's space (n, a)."""
    return np.column_stack([*axes[:-2], _SIZE_WEIGHT * axes.embedding_bytes, _SYNC_WEIGHT * axes.sync])
