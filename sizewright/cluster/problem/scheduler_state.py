"""The state of the jobs that scheduling policies use besides the tables of candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True)
class SchedulerState:
    """The state of J jobs with K columns; column 0 of a table is nothing. All times are in seconds."""

    now_s: float
    window_s: float
    """Time until the next decision."""
    speed: Floats
    """(J, K): work per second with each candidate, such as samples/s; 0 with nothing."""
    remaining: Floats
    """(J,): estimated remaining work."""
    work: Floats
    """(J,): estimated work of the whole job."""
    arrived_s: Floats
    """(J,): times of arrival."""
    started_s: Floats
    """(J,): times of the first start; NaN for jobs that never ran."""
    attained: Floats
    """(J,): attained service so far, in seconds × GPUs of any kind; of jobs without GPUs, × cores."""
    restart_s: Floats
    """(J,): time for which a job does not train when it gets another candidate."""
    requested: Ints
    """(J,): the column that the user requested."""

    def seconds_left(self) -> Floats:
        """Return the time (J, K) until each job ends with each candidate; inf with nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.speed > 0, self.remaining[:, None] / self.speed, np.inf)
