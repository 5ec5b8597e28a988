"""A model with a ceiling that neither workers nor PS can lift: the input pipeline, or another thing that all share.

    throughput = min(base(allocation), w·λ_w / c_w, p·λ_p / c_p, R)

R samples/s is looked for in the trials: the fastest of them lie at it, within noise, although their workers and PS
differ. c_w and c_p are the CPU seconds that a sample was seen to take of workers and PS. There is a ceiling where the
trials are told better with it than without, one more parameter counted (Bayesian information criterion).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.default import LEARNED_FROM
from sizewright.models.table import ALLOCATION_AXES, AXES, Table, as_columns, ended_well, known

_SAME = 0.12  # trials at the ceiling differ by no more
_LEAST_SE = 0.02
_IDLE = 0.85  # of their cores: what is busier limits by itself
_USED = ("worker_cpu_used", "ps_cpu_used")

Floats = NDArray[np.float64]


class ReaderModel(BaseThroughputModel):
    """`base` is a model of what workers and PS can do."""

    name = "reader"

    def __init__(self, base: BaseThroughputModel) -> None:
        self.base = base

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from trials that ended well. Raises InputError when there are none."""
        columns = as_columns(X, (*AXES, "worker_gpu", "sync", "throughput", *LEARNED_FROM, *_USED))
        rates = columns["throughput"] if y is None else np.asarray(y, float)
        usable = ended_well(X) & np.isfinite(rates) & (rates > 0)
        rows = {name: column[usable] for name, column in columns.items()} | {"throughput": rates[usable]}
        if not usable.any():
            raise InputError("No trial has a throughput above 0.", "Measure some first.")
        self.base_: BaseThroughputModel | None = self.base.fit(rows)
        self.ceiling_, self.ceiling_se_ = np.inf, 0.0
        self.seconds_ = {role: _cpu_seconds(rows, role) for role in ("worker", "ps")}
        best = _criterion(rows["throughput"], self.predict(rows), _parameters(self.base_))
        for at in _groups_at_the_top(rows):
            best = self._try(rows, at, best)
        return self

    def predict(self, X: Table) -> Floats:  # noqa: D102
        rates = self.base_.predict(X) if self.base_ else np.full(len(as_columns(X)["workers"]), np.inf)
        return np.minimum(rates, self._most(X))

    def predict_interval(  # noqa: D102
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[Floats, Floats]:
        check_interval(coverage, kind)
        middle = self.predict(X)
        lower, upper = self.base_.predict_interval(X, coverage, kind) if self.base_ else (middle, middle)
        if not np.isfinite(self.ceiling_):
            return lower, upper
        half = np.exp(ndtri(0.5 + coverage / 2) * self.ceiling_se_)
        return np.minimum(lower, middle / half), np.where(upper < middle, upper, np.minimum(upper, middle * half))

    def explain(self) -> Explanation:  # noqa: D102
        account = (self.base_ or self.base).explain()
        if not np.isfinite(self.ceiling_):
            return account
        return replace(
            account,
            parameters=account.parameters | {"ceiling": float(self.ceiling_)},
            equations=account.equations | {"ceiling": "throughput ≤ R"},
            distinct_allocations=self.distinct_,
            enough=self.distinct_ >= 4,
            needed=4,
            ceiling=float(self.ceiling_),
        )

    def _try(self, rows: dict[str, Floats], at: NDArray[np.bool_], best: float) -> float:
        """Keep a ceiling if it tells the trials better than `best`; returns the better."""
        rates = rows["throughput"]
        before = self.base_, self.ceiling_, self.ceiling_se_
        below = {name: column[~at] for name, column in rows.items()}
        base = copy.deepcopy(self.base)
        try:
            self.base_ = base if base.fit(below).explain().enough else None
        except NotEnoughDataError:
            self.base_ = None
        self.ceiling_ = float(np.exp(np.log(rates[at]).mean()))
        self.ceiling_se_ = max(float(np.log(rates[at]).std()), _LEAST_SE)
        self.distinct_ = len(np.unique(np.nan_to_num(np.column_stack([rows[n] for n in ALLOCATION_AXES])), axis=0))
        predicted = self.predict(rows)
        criterion = _criterion(rates, predicted, 1 + _parameters(self.base_))
        if not np.isfinite(predicted).all() or criterion >= best:
            self.base_, self.ceiling_, self.ceiling_se_ = before
            return best
        return criterion

    def _most(self, X: Table) -> Floats:
        """What cores and the ceiling allow; cores count only where there is a ceiling, since else the base knows."""
        columns = as_columns(X)
        most = np.full(len(columns["workers"]), self.ceiling_)
        if np.isfinite(self.ceiling_):
            for count, cpu, role in (("workers", "worker_cpu", "worker"), ("ps", "ps_cpu", "ps")):
                seconds = self.seconds_[role]
                if seconds and (columns[count] > 0).all():
                    most = np.minimum(most, columns[count] * known(columns[cpu], 1.0) / seconds)
        return most


def _groups_at_the_top(rows: dict[str, Floats]) -> list[NDArray[np.bool_]]:
    """The two, three … fastest trials, as long as they are equally fast, their cores differ, and those are idle."""
    rates = rows["throughput"]
    order = np.argsort(-rates)
    found = []
    for count in range(2, len(rates) + 1):
        top = order[:count]
        if rates[top].min() < (1 - _SAME) * rates[top].max():
            break
        cores = rows["workers"][top] * known(rows["worker_cpu"][top], 1.0)
        if cores.max() >= 1.5 * cores.min() and _idle(rows, top):
            at = np.zeros(len(rates), bool)
            at[top] = True
            found.append(at)
    return found


def _idle(rows: dict[str, Floats], top: NDArray[np.int64]) -> bool:
    """Whether neither workers nor PS were busy at the largest of these; taken to be where it is not known."""
    largest = top[np.argmax(rows["workers"][top] * known(rows["worker_cpu"][top], 1.0))]
    for role in ("worker", "ps"):
        used, given = rows[f"{role}_cpu_used"][largest], rows[f"{role}_cpu"][largest]
        if np.isfinite(used) and np.isfinite(given) and used > _IDLE * given:
            return False
    return True


def _cpu_seconds(rows: dict[str, Floats], role: str) -> float | None:
    """CPU seconds of a role per sample: the median of the trials."""
    count = rows["workers" if role == "worker" else "ps"]
    per_sample = count * rows[f"{role}_cpu_used"] / rows["throughput"]
    known_ones = per_sample[np.isfinite(per_sample) & (per_sample > 0)]
    return float(np.median(known_ones)) if len(known_ones) else None


def _parameters(model: BaseThroughputModel | None) -> int:
    """How many parameters the trials told."""
    if model is None:
        return 0
    account = model.explain()
    return sum(value > 0 and name not in account.pinned for name, value in account.parameters.items())


def _criterion(measured: Floats, predicted: Floats, parameters: int) -> float:
    errors = np.log(measured / predicted)
    count = len(measured)
    return float(count * np.log(errors @ errors / count + _LEAST_SE**2) + parameters * np.log(count))
