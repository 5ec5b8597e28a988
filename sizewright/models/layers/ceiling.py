"""A model with a ceiling that neither workers nor PS can lift: the input pipeline, or another shared resource.

    throughput = min(base(allocation), w·λ_w / c_w, p·λ_p / c_p, R)

The ceiling of R samples/s is found from the trials: the fastest of them lie at it, within noise, although their workers
and PS differ. c_w and c_p are the measured CPU seconds of workers and PS per sample. The model has a ceiling where it
predicts the trials better than without, given its additional parameter (Bayesian information criterion).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.default.predictor import AUXILIARY_COLUMNS
from sizewright.models.table import (
    ALLOCATION_AXES,
    AXES,
    QUOTA_COLUMNS,
    Table,
    as_columns,
    filled,
    stopped_at_quota,
    successful,
)

_MAX_SPREAD = 0.12  # trials at the ceiling differ by no more than this share
_MIN_SE = 0.02
_MAX_IDLE_USE = 0.85  # share of their cores: busier replicas are themselves the limit
_USED = ("worker_cpu_used", "ps_cpu_used")

Floats = NDArray[np.float64]


class CeilingModel(BaseThroughputModel):
    """A ceiling over `base`, a model of workers and PS."""

    name = "ceiling"

    def __init__(self, base: BaseThroughputModel) -> None:
        self.base = base
        self.min_trials = base.min_trials
        self.prior_ranges = base.prior_ranges

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from successful trials. Raises NotEnoughDataError where no trial succeeded."""
        columns = as_columns(X, (*AXES, "worker_gpu", "sync", "throughput", *AUXILIARY_COLUMNS, *_USED, *QUOTA_COLUMNS))
        rates = columns["throughput"] if y is None else np.asarray(y, float)
        usable = successful(X) & np.isfinite(rates) & (rates > 0)
        rows = {name: column[usable] for name, column in columns.items()} | {"throughput": rates[usable]}
        if not usable.any():
            raise NotEnoughDataError("No trial has a throughput above 0.", self.min_trials)
        self.base_: BaseThroughputModel | None = self.base.fit(rows)
        self.ceiling_, self.ceiling_se_ = np.inf, 0.0
        self.seconds_ = {role: _cpu_seconds(rows, role) for role in ("worker", "ps")}
        best = _criterion(rows["throughput"], self.predict(rows), _parameters(self.base_))
        for at_ceiling in _candidate_ceilings(rows):
            best = self._try(rows, at_ceiling, best)
        return self

    def predict(self, X: Table) -> Floats:  # noqa: D102
        rates = self.base_.predict(X) if self.base_ else np.full(len(as_columns(X)["workers"]), np.inf)
        return np.minimum(rates, self._limit(X))

    def predict_interval(  # noqa: D102
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[Floats, Floats]:
        check_interval(coverage, kind)
        rates = self.predict(X)
        lower, upper = self.base_.predict_interval(X, coverage, kind) if self.base_ else (rates, rates)
        if not np.isfinite(self.ceiling_):
            return lower, upper
        factor = np.exp(ndtri(0.5 + coverage / 2) * self.ceiling_se_)
        return np.minimum(lower, rates / factor), np.minimum(upper, rates * factor)

    def curves(self, X: Table, count: int, rng: np.random.Generator) -> Floats:  # noqa: D102
        base = self.base_.curves(X, count, rng) if self.base_ else np.full((count, len(self.predict(X))), np.inf)
        ceilings = np.exp(self.ceiling_se_ * rng.standard_normal((len(base), 1)))
        return np.minimum(base, ceilings * self._limit(X))

    def support(self, X: Table) -> Floats:  # noqa: D102
        return self.base_.support(X) if self.base_ else super().support(X)

    def within_run(self) -> CeilingModel:  # noqa: D102
        return CeilingModel(self.base.within_run())

    def explain(self) -> Explanation:  # noqa: D102
        explanation = (self.base_ or self.base).explain()
        if not np.isfinite(self.ceiling_):
            return explanation
        return replace(
            explanation,
            parameters=explanation.parameters | {"ceiling": float(self.ceiling_)},
            equations=explanation.equations | {"ceiling": "throughput ≤ R"},
            distinct_allocations=self.distinct_,
            enough=self.distinct_ >= 4,
            needed=4,
            ceiling=float(self.ceiling_),
        )

    def _try(self, rows: dict[str, Floats], at_ceiling: NDArray[np.bool_], best: float) -> float:
        """Fit a ceiling to the trials at it, keep it if its criterion is below `best`, and return the lower one."""
        rates = rows["throughput"]
        before = self.base_, self.ceiling_, self.ceiling_se_
        below = {name: column[~at_ceiling] for name, column in rows.items()}
        base = copy.deepcopy(self.base)
        try:
            self.base_ = base if base.fit(below).explain().enough else None
        except NotEnoughDataError:
            self.base_ = None
        self.ceiling_ = float(np.exp(np.log(rates[at_ceiling]).mean()))
        self.ceiling_se_ = max(float(np.log(rates[at_ceiling]).std()), _MIN_SE)
        self.distinct_ = len(np.unique(np.nan_to_num(np.column_stack([rows[n] for n in ALLOCATION_AXES])), axis=0))
        predicted = self.predict(rows)
        criterion = _criterion(rates, predicted, 1 + _parameters(self.base_))
        if not np.isfinite(predicted).all() or criterion >= best:
            self.base_, self.ceiling_, self.ceiling_se_ = before
            return best
        return criterion

    def _limit(self, X: Table) -> Floats:
        """Return the samples/s (n,) that the ceiling and the cores allow.

        Without a ceiling the base model describes the effect of cores.
        """
        columns = as_columns(X)
        limit = np.full(len(columns["workers"]), self.ceiling_)
        if np.isfinite(self.ceiling_):
            for count, cpu, role in (("workers", "worker_cpu", "worker"), ("ps", "ps_cpu", "ps")):
                seconds = self.seconds_[role]
                if seconds and (columns[count] > 0).all():
                    limit = np.minimum(limit, columns[count] * filled(columns[cpu], 1.0) / seconds)
        return limit


def _candidate_ceilings(rows: dict[str, Floats]) -> list[NDArray[np.bool_]]:
    """Return the two, three … fastest trials where they are equally fast although their cores differ and are idle."""
    rates = rows["throughput"]
    order = np.argsort(-rates)
    candidates = []
    for count in range(2, len(rates) + 1):
        top = order[:count]
        if rates[top].min() < (1 - _MAX_SPREAD) * rates[top].max():
            break
        cores = rows["workers"][top] * filled(rows["worker_cpu"][top], 1.0)
        if cores.max() >= 1.5 * cores.min() and _idle(rows, top):
            at_ceiling = np.zeros(len(rates), bool)
            at_ceiling[top] = True
            candidates.append(at_ceiling)
    return candidates


def _idle(rows: dict[str, Floats], top: NDArray[np.int64]) -> bool:
    """Return whether workers and PS were idle at the largest of these; unknown use counts as idle."""
    largest = top[np.argmax(rows["workers"][top] * filled(rows["worker_cpu"][top], 1.0))]
    if stopped_at_quota(rows)[largest]:
        return False
    for role in ("worker", "ps"):
        used, cores = rows[f"{role}_cpu_used"][largest], rows[f"{role}_cpu"][largest]
        if np.isfinite(used) and np.isfinite(cores) and used > _MAX_IDLE_USE * cores:
            return False
    return True


def _cpu_seconds(rows: dict[str, Floats], role: str) -> float | None:
    """Return the CPU seconds of a role per sample: the median of the trials; None where unknown."""
    count = rows["workers" if role == "worker" else "ps"]
    per_sample = count * rows[f"{role}_cpu_used"] / rows["throughput"]
    measured = per_sample[np.isfinite(per_sample) & (per_sample > 0)]
    return float(np.median(measured)) if len(measured) else None


def _parameters(model: BaseThroughputModel | None) -> int:
    """Return the number of parameters that the trials determined."""
    if model is None:
        return 0
    explanation = model.explain()
    return sum(value > 0 and name not in explanation.pinned for name, value in explanation.parameters.items())


def _criterion(measured: Floats, predicted: Floats, parameters: int) -> float:
    errors = np.log(measured / predicted)
    count = len(measured)
    return float(count * np.log(errors @ errors / count + _MIN_SE**2) + parameters * np.log(count))
