"""What a scheduler knows of jobs besides their tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Facts:
    """What a policy may go by, of J jobs with K columns; column 0 of a table is nothing. Times are seconds."""

    now_s: float
    window_s: float
    """Until the next decision."""
    speed: Floats
    """(J, K): work done a second with each candidate, such as samples/s; 0 with nothing."""
    remaining: Floats
    """(J,): work left, as far as is known."""
    work: Floats
    """(J,): work of the whole job, as far as is known."""
    arrived_s: Floats
    """(J,)."""
    started_s: Floats
    """(J,): nan for those that never ran."""
    attained: Floats
    """(J,): seconds × units of the first resource that it has had so far."""
    restart_s: Floats
    """(J,): seconds for which a job stands still when it gets another candidate."""
    requested: Ints
    """(J,): the column that its user asked for."""

    def seconds_left(self) -> Floats:
        """(J, K): until the end of each job with each candidate, inf with nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.speed > 0, self.remaining[:, None] / self.speed, np.inf)
