"""A model of each measured phase of a step, put together to the throughput.

    own      = data + compute   ≈ a₀ + a₁·m + a₂·m/λ_w         seconds of a worker alone
    exchange = pull + push      ≈ b₀ + b₁·m + b₂·m/p + b₃·p + b₄·w·m/p + b₅/λ_p
    server   = CPU of a PS      ≈ c₀ + c₁·m + c₂·p             CPU seconds of all PS for one exchange
    T = ((own + exchange)^γ + (w·server / (p·λ_p))^γ)^(1/γ)    throughput = w·m / T

The terms b₄ and b₅ are the traffic through the link of a PS and its work on one exchange. All coefficients are fitted
by NNLS with relative errors, to seconds as they are on a host in its mean state (`host_state.py`). The time of a worker
and the limit of the PS are joined as in `curve.py`; γ and a common factor, for everything outside the phases, are
fitted to the throughput.
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
from sizewright.models.axes import count_distinct, prepare_training_data
from sizewright.models.host_state import HostState
from sizewright.models.table import Columns, Table, as_columns, filled

Floats = NDArray[np.float64]

PHASES = ("phase_data_s", "phase_pull_s", "phase_compute_s", "phase_push_s", "ps_cpu_used")
EQUATIONS = {
    "own": "a₀ + a₁·m + a₂·m / λ_w",
    "exchange": "b₀ + b₁·m + b₂·m / p + b₃·p + b₄·w·m / p + b₅ / λ_p",
    "server": "c₀ + c₁·m + c₂·p",
    "smooth": "T = ((own + exchange)^γ + (w·server / (p·λ_p))^γ)^(1/γ)",
}
_FITTED = 2  # parameters fitted to the throughput: γ and the factor
_MIN_SD = 0.02


class Phases(NamedTuple):
    """Seconds (n,) of each part, or the terms or coefficients of its equation."""

    own: Floats
    exchange: Floats
    server: Floats


class PhasesModel(BaseThroughputModel):
    """A model of trials that have the seconds of their phases, the CPU use of their PS, and their batch size."""

    name = "phases"

    def fit(self, X: Table, y: Any = None, state: HostState | None = None) -> Self:
        """Learn from successful trials; `state` is that of the host in each of them, if it is known already.

        Raises NotEnoughDataError with fewer than three distinct allocations that have phases.
        """
        trials = prepare_training_data(X, y)
        columns = trials.imputer.filled(X, trials=True) | as_columns(X, PHASES)
        columns = {name: column[trials.rows] for name, column in columns.items()}
        self.imputer_ = trials.imputer
        has_phases = np.all([np.isfinite(columns[name]) for name in (*PHASES, "batch_size")], axis=0)
        self.distinct_ = count_distinct(trials.axes.pick(has_phases)) if has_phases.any() else 0
        if self.distinct_ < 3:
            raise NotEnoughDataError("Fewer than three distinct allocations have measured phases.", 3 - self.distinct_)
        columns = {name: column[has_phases] for name, column in columns.items()}
        slower = np.exp((state or HostState.of(X)).deviation[trials.rows][has_phases])
        seconds = Phases(*(part / slower for part in _measured_seconds(columns, trials.throughput[has_phases])))
        rates = trials.throughput[has_phases] * slower
        self.phases_ = Phases(*map(_relative_nnls, _terms(columns), seconds))
        log_rates = np.log(rates)

        def residual_sd(log_smooth: float) -> float:
            return float(np.std(log_rates - self._log_rates(columns, np.exp(log_smooth))))

        self.smooth_ = float(np.exp(minimize_scalar(residual_sd, bounds=(0.0, 3.0), method="bounded").x))
        residuals = log_rates - self._log_rates(columns, self.smooth_)
        self.factor_ = float(residuals.mean())
        self.freedom_ = max(1, len(rates) - _FITTED)
        self.deviation_ = max(float(np.sqrt(((residuals - residuals.mean()) ** 2).sum() / self.freedom_)), _MIN_SD)
        return self

    def predict(self, X: Table) -> Floats:
        """Return samples/s (n,)."""
        self._check_fitted()
        return np.asarray(np.exp(self.log_rates(X)))

    def log_rates(self, X: Table, *, trials: bool = False) -> Floats:
        """Return log samples/s (n,) of allocations, or of the trials themselves."""
        return self._log_rates(self.imputer_.filled(X, trials=trials), self.smooth_) + self.factor_

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,); the relative width is that of the residuals at every allocation."""
        check_interval(coverage, kind)
        rates = self.predict(X)
        variance = 1 / (self.freedom_ + _FITTED) + (kind == "trial")
        half_width = float(stdtrit(self.freedom_, 0.5 + coverage / 2)) * self.deviation_ * np.sqrt(variance)
        return rates * np.exp(-half_width), rates * np.exp(half_width)

    def explain(self) -> Explanation:
        """Return the coefficients of each phase, numbered as in its equation."""
        self._check_fitted()
        coefficients = {
            f"{phase}_{i}": float(value)
            for phase, values in self.phases_._asdict().items()
            for i, value in enumerate(values)
        }
        return Explanation(
            model=self.name,
            parameters=coefficients | {"smooth": self.smooth_, "factor": float(np.exp(self.factor_))},
            equations=EQUATIONS,
            pinned=tuple(name for name, value in coefficients.items() if value == 0),
            distinct_allocations=self.distinct_,
            enough=True,
            needed=3,
        )

    def _log_rates(self, columns: Columns, smooth: float) -> Floats:
        own, exchange, server = map(np.matmul, _terms(columns), self.phases_)
        workers, ps = columns["workers"], np.maximum(columns["ps"], 1)
        limit = np.maximum(workers * server / (ps * filled(columns["ps_cpu"], 1.0)), 1e-12)
        cycle = np.logaddexp(smooth * np.log(own + exchange), smooth * np.log(limit)) / smooth
        log_rates: Floats = np.log(workers * columns["batch_size"]) - cycle
        return log_rates


def _measured_seconds(columns: Columns, rates: Floats) -> Phases:
    """Return the measured seconds of a worker's step and exchange, and the CPU seconds of the PS for an exchange."""
    exchanges = rates / columns["batch_size"]
    return Phases(
        columns["phase_data_s"] + columns["phase_compute_s"],
        columns["phase_pull_s"] + columns["phase_push_s"],
        columns["ps"] * columns["ps_cpu_used"] / exchanges,
    )


def _terms(columns: Columns) -> Phases:
    """Return the terms (n, k) of each part's equation."""
    one, ps = np.ones_like(columns["workers"]), np.maximum(columns["ps"], 1)
    batch, cores = columns["batch_size"], filled(columns["worker_cpu"], 1.0)
    ps_cores = filled(columns["ps_cpu"], 1.0)
    return Phases(
        np.column_stack([one, batch, batch / cores]),
        np.column_stack([one, batch, batch / ps, ps, columns["workers"] * batch / ps, 1 / ps_cores]),
        np.column_stack([one, batch, ps]),
    )


def _relative_nnls(terms: Floats, seconds: Floats) -> Floats:
    positive = np.maximum(seconds, 1e-9)
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-12)
    coefficients, _ = nnls(terms / scale / positive[:, None], np.ones(len(seconds)))
    return np.asarray(coefficients / scale)
