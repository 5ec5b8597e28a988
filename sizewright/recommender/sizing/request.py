"""The inputs of a recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models.prior import LearnedPrior
from sizewright.recommender.sizing.remedy_commands import DEFAULT_COMMANDS, RemedyCommands
from sizewright.spec import Cluster, Job


@dataclass(frozen=True)
class SizingRequest:
    """A job to size, with the evidence about it and the limits of its cluster."""

    job: Job
    trials: Sequence[Trial] = ()
    cluster: Cluster | None = None
    model: BaseThroughputModel | None = None
    """Replaces the default model, and is fitted in place."""
    machine: str | None = None
    """The only kind of hosts to use."""
    spot: bool | None = None
    """True for spot hosts only, False for none; by default both are compared."""
    extrapolate: bool = False
    """Allow allocations beyond twice the measured range of an axis."""
    prior: LearnedPrior | None = None
    runs: Sequence[FinishedJob] = ()
    """Runs of the job, whose memory peaks count."""
    history: Sequence[FinishedJob] = ()
    """Runs of all jobs. With a prior, those of similar jobs count; the more recent before `now`, the more."""
    now: datetime | None = None
    commands: RemedyCommands = DEFAULT_COMMANDS
    """The commands that remedies name."""
