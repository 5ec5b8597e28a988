"""Each measured phase of a step fitted on its own, then put together.

    own      = data + compute   ≈ a₀ + a₁·m + a₂·m/λ_w         seconds of a worker for itself
    exchange = pull + push      ≈ b₀ + b₁·m + b₂·m/p + b₃·p    seconds it takes to exchange, nobody else about
    server   = CPU of a PS      ≈ c₀ + c₁·m + c₂·p             CPU seconds of all PS for one exchange
    T = ((own + exchange)^γ + (w·server / (p·λ_p))^γ)^(1/γ)    throughput = w·m / T

All coefficients by NNLS with relative errors. A worker's own time and the PS's limit are joined as in `curve.py`; γ and
a common factor, which holds what no phase tells, are fitted to the throughput.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls
from scipy.special import stdtrit
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.axes import count_distinct, measured
from sizewright.models.table import Columns, Table, as_columns, known

Floats = NDArray[np.float64]

PHASES = ("phase_data_s", "phase_pull_s", "phase_compute_s", "phase_push_s", "ps_cpu_used")
EQUATIONS = {
    "own": "a₀ + a₁·m + a₂·m / λ_w",
    "exchange": "b₀ + b₁·m + b₂·m / p + b₃·p",
    "server": "c₀ + c₁·m + c₂·p",
    "smooth": "T = ((own + exchange)^γ + (w·server / (p·λ_p))^γ)^(1/γ)",
}
_FITTED = 2  # γ and the factor
_LEAST_SD = 0.02


class Phases(NamedTuple):
    """Seconds (n,) of each part, or their coefficients."""

    own: Floats
    exchange: Floats
    server: Floats


class PhasesModel(BaseThroughputModel):
    """Learns from trials that tell their phases, what their PS used, and how many samples a step had."""

    name = "phases"

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn. Raises NotEnoughDataError with fewer than three distinct allocations that tell their phases."""
        trials = measured(X, y)
        columns = trials.usual.filled(X, trials=True) | as_columns(X, PHASES)
        columns = {name: column[trials.rows] for name, column in columns.items()}
        self.usual_ = trials.usual
        told = np.all([np.isfinite(columns[name]) for name in (*PHASES, "batch_size")], axis=0)
        self.distinct_ = count_distinct(trials.axes.pick(told)) if told.any() else 0
        if self.distinct_ < 3:
            raise NotEnoughDataError("Fewer than three distinct allocations tell their phases.", 3 - self.distinct_)
        columns = {name: column[told] for name, column in columns.items()}
        rates = trials.throughput[told]
        self.phases_ = Phases(
            *(_relative_nnls(t, s) for t, s in zip(_terms(columns), _seconds(columns, rates), strict=True))
        )
        log_rates = np.log(rates)

        def spread(log_smooth: float) -> float:
            return float(np.std(log_rates - self._log_rates(columns, np.exp(log_smooth))))

        self.smooth_ = float(np.exp(minimize_scalar(spread, bounds=(0.0, 3.0), method="bounded").x))
        left = log_rates - self._log_rates(columns, self.smooth_)
        self.factor_ = float(left.mean())
        self.freedom_ = max(1, len(rates) - _FITTED)
        self.deviation_ = max(float(np.sqrt(((left - left.mean()) ** 2).sum() / self.freedom_)), _LEAST_SD)
        return self

    def predict(self, X: Table) -> Floats:
        """Samples/s (n,)."""
        self._check_fitted()
        return np.asarray(np.exp(self.log_rates(X)))

    def log_rates(self, X: Table, *, trials: bool = False) -> Floats:
        """Logarithm of samples/s (n,) of allocations, or of the trials themselves."""
        return self._log_rates(self.usual_.filled(X, trials=trials), self.smooth_) + self.factor_

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Lower and upper samples/s (n,), as wide as the residuals are, wherever it is."""
        check_interval(coverage, kind)
        middle, count = self.predict(X), self.freedom_ + _FITTED
        share = 1 / count + (kind == "trial")
        half = float(stdtrit(self.freedom_, 0.5 + coverage / 2)) * self.deviation_ * np.sqrt(share)
        return middle * np.exp(-half), middle * np.exp(half)

    def explain(self) -> Explanation:
        """Coefficients of each phase by their place in its equation."""
        self._check_fitted()
        found = {f"{n}_{i}": float(c) for n, cs in self.phases_._asdict().items() for i, c in enumerate(cs)}
        return Explanation(
            model=self.name,
            parameters=found | {"smooth": self.smooth_, "factor": float(np.exp(self.factor_))},
            equations=EQUATIONS,
            pinned=tuple(name for name, value in found.items() if value == 0),
            distinct_allocations=self.distinct_,
            enough=True,
            needed=3,
        )

    def _log_rates(self, columns: Columns, smooth: float) -> Floats:
        own, exchange, server = (t @ c for t, c in zip(_terms(columns), self.phases_, strict=True))
        workers, ps = columns["workers"], np.maximum(columns["ps"], 1)
        limit = np.maximum(workers * server / (ps * known(columns["ps_cpu"], 1.0)), 1e-12)
        cycle = np.logaddexp(smooth * np.log(own + exchange), smooth * np.log(limit)) / smooth
        grown: Floats = np.log(workers * columns["batch_size"]) - cycle
        return grown


def _seconds(columns: Columns, rates: Floats) -> Phases:
    """Measured, per step of a worker or exchange."""
    exchanges = rates / columns["batch_size"]
    return Phases(
        columns["phase_data_s"] + columns["phase_compute_s"],
        columns["phase_pull_s"] + columns["phase_push_s"],
        columns["ps"] * columns["ps_cpu_used"] / exchanges,
    )


def _terms(columns: Columns) -> Phases:
    """Columns (n, k) of each part's equation."""
    one, ps = np.ones_like(columns["workers"]), np.maximum(columns["ps"], 1)
    batch, cores = columns["batch_size"], known(columns["worker_cpu"], 1.0)
    return Phases(
        np.column_stack([one, batch, batch / cores]),
        np.column_stack([one, batch, batch / ps, ps]),
        np.column_stack([one, batch, ps]),
    )


def _relative_nnls(terms: Floats, seconds: Floats) -> Floats:
    positive = np.maximum(seconds, 1e-9)
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-12)
    found, _ = nnls(terms / scale / positive[:, None], np.ones(len(seconds)))
    return np.asarray(found / scale)
