"""What a report shows: figures that can be drawn, why others cannot, and tables, as plain records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sizewright import plots
from sizewright.errors import InputError
from sizewright.executors.ledger import Entry
from sizewright.executors.metrics_log import Observed
from sizewright.how_far import steps
from sizewright.plots import Picture
from sizewright.recommender.decisions import Decision
from sizewright.recommender.sized import Sized

MOST_RUNS = 3
"""Drawn over time, the latest."""


@dataclass(frozen=True)
class Told:
    """All that a report is made of."""

    sized: Sized
    looks: Sequence[Observed] = ()
    """At a run of the job."""
    plans: Sequence[Entry] = ()
    """For the job, and what became of them."""
    decisions: Sequence[Decision] = ()
    """Of the loop beside it."""


@dataclass(frozen=True)
class Figure:
    """One picture with its heading, or why there is none."""

    name: str
    title: str
    caption: str
    picture: Picture | None
    why_not: str = ""


def figures(told: Told) -> list[Figure]:
    """Every figure of a report, in order."""
    job, answer, trials, runs, model = told.sized
    to_draw: list[tuple[str, str, str, Callable[[], Picture]]] = [
        ("throughput", "Throughput over workers and PS", _THROUGHPUT,
         partial(plots.throughput, job, trials, model=model, at=answer.target)),
        ("pareto", "Time against cost", _PARETO, partial(plots.pareto, answer)),
        ("memory", "Memory against its limits", _MEMORY, partial(plots.memory, answer, trials, runs)),
        ("phases", "Where a step's time goes", _PHASES, partial(plots.phases, trials)),
        ("predicted", "Predicted against actual", _PREDICTED,
         partial(plots.predicted, job, trials, runs, model=model)),
    ]  # fmt: skip
    known = [run for run in runs if run.stretches][-MOST_RUNS:]
    to_draw += [
        (f"run-{number}", f"Over time: {run.name}", _OVER_TIME, partial(plots.over_time, run))
        for number, run in enumerate(reversed(known), 1)
    ]
    if told.decisions:
        to_draw.append(("decided", "Decisions over time", _DECIDED, partial(plots.decided, told.decisions)))
    if told.looks:
        to_draw.append(("observed", "A run as it was looked at", _OBSERVED, partial(plots.observed, told.looks)))
    return [_figure(*figure) for figure in steps("drawing", to_draw)]


def _figure(name: str, title: str, caption: str, draw: Callable[[], Picture]) -> Figure:
    try:
        return Figure(name, title, caption, draw())
    except InputError as error:
        return Figure(name, title, caption, None, str(error))


_THROUGHPUT = (
    "Expected samples/s when the number of workers, or of PS, changes and all else stays as chosen. The band holds "
    "90 % of further trials. Filled points were measured at these very sizes. Crosses were measured at other sizes and "
    "are rescaled by the model; they are no measurements of these. Dashed lines and the star are predictions."
)
_PARETO = "Predictions for allocations that no other beats in both time and cost, with the 90 % interval of the time."
_MEMORY = (
    "What one replica is predicted to need at its peak in the chosen allocation, the limit that is asked for, and "
    "peaks that were measured, of trials with fewer PS among them, of which each holds more rows."
)
_PHASES = "Busy time of a worker's step; waiting for other replicas is not in it."
_PREDICTED = (
    "Trials are what the model was fitted to, so they tell how well it describes them; of runs the prediction was made "
    "before they began."
)
_DECIDED = (
    "What the control loop saw and what the job had, turn by turn; a mark is a change that it wanted. The numbers have "
    "each decision with its reason."
)
_OBSERVED = "Between looks; dashed lines are what the replicas were given."
_OVER_TIME = "What the run was given and how fast it trained, each change and failure marked."
