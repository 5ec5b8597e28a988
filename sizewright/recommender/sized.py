"""An answer together with what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.spec import Job, Recommendation


class Sized(NamedTuple):
    """A recommendation, the job's trials and runs that it was made of, and the model."""

    job: Job
    answer: Recommendation
    trials: Sequence[Trial] = ()
    runs: Sequence[FinishedJob] = ()
    model: BaseThroughputModel | None = None
    """Fitted; None where there is no target."""
