"""The state of the jobs that scheduling policies use besides the tables of candidates."""

from __future__ import annotations

from collections.abc import Sequence
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
    """(J,): attained service so far, in seconds × units (see `units_of`): GPU-seconds, or core-seconds without GPUs."""
    restart_s: Floats
    """(J,): time for which a job does not train when it gets another candidate."""
    requested: Ints
    """(J,): the column that the user requested."""

    def seconds_left(self) -> Floats:
        """Return the time (J, K) until each job ends with each candidate; inf with nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.speed > 0, self.remaining[:, None] / self.speed, np.inf)


def units_of(needs: Floats, resources: Sequence[str]) -> Floats:
    """Return the size (...) of candidates with `needs` (..., R), in units that do not depend on the kind of a GPU.

    That is the number of GPUs of all kinds; without GPUs, the cores; without cores, the first other resource that is
    needed. Attained service is counted in these units, as Tiresias (NSDI 2019) counts GPUs × seconds.
    """
    kinds = [name.split(":")[0] for name in resources]
    ranked = [name for name in ("gpu", "cpu") if name in kinds] + [
        n for n in resources if n.split(":")[0] not in ("gpu", "cpu")
    ]
    amounts = np.zeros((*needs.shape[:-1], len(ranked) + 1))
    for i, name in enumerate(ranked):
        amounts[..., i] = needs[..., [r for r, kind in enumerate(kinds) if name in (kind, resources[r])]].sum(axis=-1)
    first_needed = (amounts > 0).argmax(axis=-1)
    return np.asarray(np.take_along_axis(amounts, first_needed[..., None], axis=-1)[..., 0])
