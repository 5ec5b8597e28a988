"""The default model: physics for shape, a Gaussian process for what is left, and Bayes for what is not known.

Each of many draws is a curve (`curve.py`) with a residual (`residual.py`), drawn in some part to what the measured
phases of the trials foretell (`phases.py`) where they have them, and to what a learned prior foretells of the job
(`prior/`) where one is given; together they are the posterior given the trials.
The prior stands for what three or eight trials cannot tell, so intervals are sensible from the start and narrow as
trials come; their ends are Student's t with n − 1 degrees, since noise has heavier tails than the normal's (replays
over measured tables: 90 % intervals held 80 to 85 % with the normal's). The same draws tell a planner what another
trial may bring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, stdtrit
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models import curve
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.axes import LEAST_ALLOCATIONS, Axes, count_distinct, measured
from sizewright.models.host_speed import at_usual_speed
from sizewright.models.network import Traffic, limited
from sizewright.models.phases import PHASES, PhasesModel
from sizewright.models.posterior import Effort, sample
from sizewright.models.prior.curve import JobCurve
from sizewright.models.repeats import pooled
from sizewright.models.residual import ResidualProcess, Scales
from sizewright.models.table import Table, as_columns

Floats = NDArray[np.float64]

LEARNED_FROM = ("throughput_se", "host_speed", "network_bytes", "embedding_bytes", *PHASES)
"""Columns of a trial that say more than its throughput."""
# How far the curve that a learned prior foretells is drawn upon: mean and standard deviation of a share's logit.
# How far forms and repeats stray is known from the bank too, as if so many trials had told it.
FORETOLD = (4.0, 2.0)
_FORETOLD_SD, _FORETOLD_FREEDOM = 0.5, 10
_LEAST_SD = 0.02
# Of log E and of waiting for each other, as distances in the residual's space.
_SIZE_WEIGHT, _SYNC_WEIGHT = 0.25, 1.1
_DETERMINED = 0.7  # of the prior's standard deviation
# How far the form may be wrong beyond what was measured: standard deviation for each e-fold of an axis.
_BEYOND = 0.25
_MOST_CURVES = 4_000_000  # draws times rows: many rows are predicted from fewer draws
_BLOCK = 4096
_MOST_CELLS = 1_000_000
_LEAST_PATHS = 16


class _Guides(NamedTuple):
    """Logarithms of samples/s (n,), up to a constant, that a learned prior or measured phases foretell."""

    foretold: Floats | None
    phases: Floats | None

    def pick(self, rows: NDArray[np.int64] | slice) -> _Guides:
        """Some of the rows."""
        return _Guides(*(None if column is None else column[rows] for column in self))


class ThroughputModel(BaseThroughputModel):
    """Allocation → samples/s, from three distinct trials up.

    `prior` changes the prior of parameters by name, each (mean, sd) as `curve.PARAMETERS` has them. `foretold` is what
    a learned prior tells of the job: then one trial is enough. A planner may ask for less than `least_allocations`,
    since what it does is measured next. Methods raise what `BaseThroughputModel` says.
    """

    name = "default"

    def __init__(
        self,
        prior: dict[str, tuple[float, float]] | None = None,
        seed: int = 0,
        least_allocations: int = LEAST_ALLOCATIONS,
        foretold: JobCurve | None = None,
    ) -> None:
        self.prior = prior
        self.seed = seed
        self.least_allocations = least_allocations
        self.foretold = foretold

    def fit(self, X: Table, y: ArrayLike | None = None) -> Self:
        """Learn from a trial table X and its throughput y (n,), samples/s; trials that failed are left out.

        Raises NotEnoughDataError with fewer than three distinct allocations (than one with a curve foretold),
        InputError for what cannot be used.
        """
        trials = measured(X, y, least=self._needed)
        self.usual_ = trials.usual
        self.at_ = curve.reference(trials.axes)
        rates, self.speed_exponent_ = at_usual_speed(trials.axes, np.log(trials.throughput), trials.host_speed)
        self.level_ = float(rates.mean())
        self.distinct_ = count_distinct(trials.axes)
        self.claimed_se_ = trials.relative_se
        self.traffic_ = Traffic.of(X)
        self.repeats_ = pooled(trials.axes, rates - self.level_)
        self._axes = trials.axes.pick(self.repeats_.rows)
        self.process_ = ResidualProcess(_places(self._axes), self.repeats_.counts)
        self.phases_ = _phases(X, y)
        self._guided = self._guides(X, trials=True).pick(trials.rows[self.repeats_.rows])
        means, sds = self._prior()
        rng = np.random.default_rng(self.seed)
        self.draws_ = sample(self._log_likelihood, means, sds, rng, Effort())
        self.residuals_ = self._left(self.draws_)
        return self

    def predict(self, X: Table) -> Floats:
        """Samples/s (n,): the geometric mean over the posterior. Raises InputError for a table that cannot be used."""
        mean, _ = self._moments(X)
        return np.asarray(np.exp(mean))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Lower and upper samples/s (n,) that hold another trial, or the curve (`kind="mean"`), with probability
        `coverage`.

        Raises InputError for a coverage or kind that is none.
        """
        return self._middle_and_interval(X, coverage, kind)[1:]

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Both at once: samples/s, and the ends of the interval of another trial with probability `coverage`, (n,)
        each. Raises InputError for a coverage that is none."""
        return self._middle_and_interval(X, coverage, "trial")

    def _middle_and_interval(self, X: Table, coverage: float, kind: Kind) -> tuple[Floats, Floats, Floats]:
        check_interval(coverage, kind)
        mean, variance = self._moments(X)
        if kind == "trial":
            variance = variance + float(np.mean(self._scales(self.draws_).noise ** 2))
        freedom = max(self.repeats_.counts.sum() - 1, 2) + (_FORETOLD_FREEDOM if self.foretold else 0)
        half = stdtrit(freedom, 0.5 + coverage / 2) * np.sqrt(variance)
        return np.exp(mean), np.exp(mean - half), np.exp(mean + half)

    def paths(self, X: Table, rng: np.random.Generator) -> Floats:
        """Logarithms of samples/s (d, n): whole curves that the trials leave possible; fewer of them for many rows.

        Raises InputError for a table that cannot be used.
        """
        self._check_fitted()
        axes = self.usual_.axes(X)
        step = len(axes.workers) * len(self.draws_) // _MOST_CELLS
        some = slice(None, None, min(max(1, step), len(self.draws_) // _LEAST_PATHS))
        draws, left = self.draws_[some], self.residuals_[some]
        left = self.process_.paths(left, self._scales(draws), _places(axes), rng)
        rates = self._curve(draws, axes, self._guides(X)) + left + self.level_
        return limited(rates, self._links_allow(X))[0]

    def explain(self) -> Explanation:
        """Medians of the physical parameters; those that the trials told little of are pinned."""
        self._check_fitted()
        _, sds = self._prior()
        told = self.draws_.std(axis=0) < _DETERMINED * sds
        return Explanation(
            model=self.name,
            parameters={
                name: float(np.median(curve.natural(name, self.draws_[:, i]))) for i, name in enumerate(curve.NAMES)
            },
            equations={name: parameter.equation for name, parameter in curve.PARAMETERS.items()},
            pinned=tuple(name for name, on in zip(curve.NAMES, told, strict=False) if not on),
            distinct_allocations=self.distinct_,
            enough=True,
            needed=self._needed,
        )

    def _moments(self, X: Table) -> tuple[Floats, Floats]:
        """Mean and variance (n,) of log samples/s over the posterior; of many rows with fewer draws."""
        self._check_fitted()
        axes = self.usual_.axes(X)
        count = len(axes.workers)
        enough = max(_LEAST_PATHS, _MOST_CURVES // max(count, 1))
        some = slice(None, None, max(1, len(self.draws_) // enough))
        most, guides = self._links_allow(X), self._guides(X)
        mean, variance = np.empty(count), np.empty(count)
        for start in range(0, count, _BLOCK):
            rows = slice(start, start + _BLOCK)
            mean[rows], variance[rows] = self._block(axes.pick(rows), guides.pick(rows), most[rows], some)
        beyond = _distance_beyond(axes, self._axes)
        if self.foretold:
            beyond = np.minimum(beyond, self.foretold.beyond(X))
        return mean, variance + (_BEYOND * beyond) ** 2

    def _block(self, axes: Axes, guides: _Guides, most: Floats, some: slice) -> tuple[Floats, Floats]:
        draws = self.draws_[some]
        left, variance = self.process_.moments(self.residuals_[some], self._scales(draws), _places(axes))
        rates, unsure = limited(self._curve(draws, axes, guides) + left + self.level_, most)
        return rates.mean(axis=0), variance.mean(axis=0) + rates.var(axis=0) + unsure

    def _curve(self, draws: Floats, axes: Axes, guides: _Guides) -> Floats:
        """Logarithm of samples/s (d, n), up to a constant: the curve, and what guides tell in each draw's shares."""
        told = curve.log_throughput(draws, axes, self.at_)
        if guides.foretold is not None:
            share = expit(draws[:, -1:])
            told = (1 - share) * told + share * guides.foretold
        if guides.phases is not None:
            share = curve.natural("phases", draws[:, curve.NAMES.index("phases")])[:, None]
            told = (1 - share) * told + share * guides.phases
        return told

    def _guides(self, X: Table, *, trials: bool = False) -> _Guides:
        return _Guides(
            self.foretold.log_rates(X) - self.level_ if self.foretold else None,
            self.phases_.log_rates(X, trials=trials) - self.level_ if self.phases_ else None,
        )

    def _prior(self) -> tuple[Floats, Floats]:
        """Of the parameters, and last of the share of the curve foretold where there is one."""
        if self.foretold is None:
            return curve.prior_of(self.prior)
        stray = {"residual": self.foretold.widen * self.foretold.form_sd, "noise": self.foretold.noise_sd}
        known = {name: (float(np.log(max(sd, _LEAST_SD))), _FORETOLD_SD) for name, sd in stray.items()}
        means, sds = curve.prior_of(known | (self.prior or {}))
        return np.append(means, FORETOLD[0]), np.append(sds, FORETOLD[1])

    @property
    def _needed(self) -> int:
        return 1 if self.foretold else self.least_allocations

    def _links_allow(self, X: Table) -> Floats:
        """Logarithm of samples/s (n,), infinite where no links are known."""
        if self.traffic_ is None:
            return np.full(_rows(X), np.inf)
        return self.traffic_.most(X)

    def _left(self, draws: Floats) -> Floats:
        left = self.repeats_.rates - self._curve(draws, self._axes, self._guided)
        return np.where(np.isfinite(left), left, 1e3)

    def _log_likelihood(self, draws: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # a proposal far out is merely unlikely
            left = self._left(draws)
        scales = self._scales(draws)
        return self.process_.log_likelihood(left, scales) + self.repeats_.log_likelihood(scales.noise)

    def _scales(self, draws: Floats) -> Scales:
        noise = np.exp(draws[:, curve.NAMES.index("noise")])
        return Scales(np.exp(draws[:, curve.NAMES.index("residual")]), np.sqrt(noise**2 + self.claimed_se_**2))


def _phases(X: Table, y: ArrayLike | None) -> PhasesModel | None:
    """What the trials' phases tell; None where fewer than three allocations have them."""
    try:
        return PhasesModel().fit(X, y)
    except NotEnoughDataError:
        return None


def _rows(table: Table) -> int:
    return len(as_columns(table, ("workers",))["workers"])


def _distance_beyond(axes: Axes, measured: Axes) -> Floats:
    """How far allocations (n,) lie outside of what was measured, in e-folds over all axes; those of tables count as
    in the residual's space, since rows that are never met slow nothing down."""
    here, there = _places(axes)[:, :-1], _places(measured)[:, :-1]  # the last is whether workers wait
    outside = np.maximum(there.min(axis=0) - here, 0.0) + np.maximum(here - there.max(axis=0), 0.0)
    return np.asarray(outside.sum(axis=1))


def _places(axes: Axes) -> Floats:
    """Where allocations lie for the residual (n, a)."""
    return np.column_stack([*axes[:-2], _SIZE_WEIGHT * axes.embedding_bytes, _SYNC_WEIGHT * axes.sync])
