"""The curve that a prior predicts for one job, before any trial of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models.axes import EXTRAPOLATION_SD, e_folds_outside
from sizewright.models.matern import matern
from sizewright.models.prior import mechanistic
from sizewright.models.prior.job_effects import JobEffect
from sizewright.models.prior.rows import configurations_of
from sizewright.models.table import ALLOCATION_AXES, AXES, Table, as_columns, batch_sizes, filled
from sizewright.spec import Job

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JobCurve:
    """The curve that a prior predicts for one job: log samples/s at any allocation, with its standard deviation.

    `LearnedPrior.curve` makes it. Methods raise InputError for a table that cannot be used.
    """

    job: Job
    parameters: Floats
    """(k,), in the order of `mechanistic.NAMES`."""
    effect: JobEffect
    """The predicted offset of the job from the mechanistic model."""
    max_distance: float
    """The largest distance from the nearest measured job at which a job can be predicted."""
    shape_sd: float
    """Error of the shape of the curve, once its log offset is known."""
    noise_sd: float
    """Noise of a trial about the true throughput."""
    corrected_noise_sd: float
    """The part of it that remains once a trial is corrected for the state of its host (`models/host_state.py`)."""
    calibration_factor: float
    """Factor of all these standard deviations, calibrated on jobs that were left out."""
    ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest measured value of each axis."""
    trials: int
    """Number of trials that the prior was learned from."""
    source: str = ""
    """Where the prior was read from."""

    def log_rates(self, table: Table) -> Floats:
        """Return log samples/s (n,); unknown batch size, tables and mode are those of the job."""
        return mechanistic.log_rates(self.parameters, self._configs(table)) + self.effect.log_offset

    def sd(self, table: Table, *, trial: bool = True) -> Floats:
        """Return the standard deviation (n,) of log samples/s of another trial, or of the curve itself.

        It is calibration_factor · √(offset² + shape² + noise² + extrapolation²).
        """
        variance = self.effect.sd**2 + self.shape_sd**2 + trial * self.noise_sd**2
        return np.asarray(self.calibration_factor * np.sqrt(variance + self.extrapolation_sd(table) ** 2))

    def extrapolation_sd(self, table: Table) -> Floats:
        """Return the part of the standard deviation (n,) that is due to extrapolation."""
        return EXTRAPOLATION_SD * self.extrapolation(table)

    def extrapolation(self, table: Table) -> Floats:
        """Return how far allocations lie outside the measured ranges (n,), in e-folds summed over all axes."""
        columns = as_columns(table, tuple(self.ranges))
        columns["batch_size"] = filled(columns["batch_size"], batch_sizes(self.job, columns["workers"]))
        return e_folds_outside(columns, self.ranges)

    def _configs(self, table: Table) -> mechanistic.Configurations:
        return configurations_of(self.job, as_columns(table, (*AXES, "sync", "table_scale")))


@dataclass(frozen=True, eq=False, kw_only=True)
class WarmCurve(JobCurve):
    """A curve that was corrected by runs of similar jobs: its log offset, and its shape near their allocations."""

    allocations: Floats
    """Allocations of these runs (n, a): `log_allocations`."""
    weights: Floats
    """Weights (n,) of the kernel to these allocations: their sum is added to log samples/s."""

    def log_rates(self, table: Table) -> Floats:
        """Return log samples/s (n,); unknown batch size, tables and mode are those of the job."""
        return super().log_rates(table) + matern(log_allocations(table), self.allocations) @ self.weights


def log_allocations(table: Table) -> Floats:
    """Return the logarithms of replicas and their cores (n, 4); unknown cores count as 1."""
    columns = as_columns(table, ALLOCATION_AXES[:4])
    return np.column_stack([np.log(np.maximum(filled(column, 1.0), 1e-3)) for column in columns.values()])
