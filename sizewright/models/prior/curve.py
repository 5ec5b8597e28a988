"""The curve that a prior foretells for one job, before any trial of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models.prior import physics
from sizewright.models.prior.experience import Guess
from sizewright.models.prior.rows import places_of
from sizewright.models.table import AXES, Table, as_columns, known
from sizewright.spec import Job

Floats = NDArray[np.float64]

# How far physics may be wrong beyond what was measured: standard deviation for each e-fold of an axis.
_BEYOND = 0.25


@dataclass(frozen=True, eq=False)
class JobCurve:
    """Samples/s of one job at any allocation, with what it is unsure of as standard deviations of logarithms.

    `LearnedPrior.curve` makes it. Methods raise InputError for a table that cannot be used.
    """

    job: Job
    parameters: Floats
    """(k,), in the order of `physics.NAMES`."""
    guess: Guess
    limit: float
    """How far from the nearest job a job may be."""
    form_sd: float
    """Of the truth about the curve, once its level is known."""
    noise_sd: float
    """Of a trial about the truth."""
    widen: float
    """By so much all of these are too small, as jobs that were left out have shown."""
    ranges: Mapping[str, tuple[float, float]]
    """Least and greatest of each axis that was measured."""
    trials: int
    """So many it rests on."""
    source: str = ""
    """The prior's."""

    def log_rates(self, table: Table) -> Floats:
        """Logarithm of samples/s (n,) of allocations; batch, tables and mode as the job has them where not told."""
        return physics.log_rates(self.parameters, self._places(table)) + self.guess.level

    def sd(self, table: Table, *, trial: bool = True) -> Floats:
        """Standard deviation (n,) of these, of another trial or of the curve itself: in logarithms,
        widen · √(level² + form² + noise² + beyond²)."""
        known = self.guess.sd**2 + self.form_sd**2 + trial * self.noise_sd**2
        return np.asarray(self.widen * np.sqrt(known + self.beyond_sd(table) ** 2))

    def beyond_sd(self, table: Table) -> Floats:
        """What allocations outside of what was measured add to it (n,)."""
        return _BEYOND * self.beyond(table)

    def phase_seconds(self, table: Table) -> dict[str, Floats]:
        """What a step is made of, seconds (n,): a worker's own part under its quota, and the service of its exchange
        by each PS, under its."""
        at = self._places(table)
        cpu = physics.cpu_seconds(self.parameters, at)
        slower = np.exp(-self.guess.level)
        return {"worker": slower * cpu.worker / at.worker_cpu, "ps": slower * cpu.ps / (at.ps * at.ps_cpu)}

    def _places(self, table: Table) -> physics.Places:
        return places_of(self.job, as_columns(table, (*AXES, "sync", "table_scale")))

    def beyond(self, table: Table) -> Floats:
        """E-folds (n,) outside of what was measured, over all axes."""
        columns = as_columns(table, tuple(self.ranges))
        columns["batch_size"] = known(columns["batch_size"], self.job.training.batch_size)
        outside = [
            np.maximum(np.log(low / column), 0.0) + np.maximum(np.log(column / high), 0.0)
            for column, (low, high) in zip(columns.values(), self.ranges.values(), strict=True)
        ]
        return np.asarray(np.nansum(outside, axis=0))
