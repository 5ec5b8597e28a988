"""Collect the contents of a report as plain records: its data, the figures, and why a figure is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sizewright import plots
from sizewright.errors import InputError
from sizewright.plots import Picture
from sizewright.recommender.control.decisions import Decision
from sizewright.recommender.sizing.result import SizingResult
from sizewright.runtime.audit_log import Entry
from sizewright.runtime.metrics_log import Observed
from sizewright.task_progress import steps

MAX_RUNS = 3
"""The latest runs are plotted over time."""


@dataclass(frozen=True)
class ReportData:
    """The data of a report."""

    sized: SizingResult
    windows: Sequence[Observed] = ()
    """Observations of a run of the job."""
    plans: Sequence[Entry] = ()
    """Audit-log entries of the job's plans."""
    decisions: Sequence[Decision] = ()
    """Decisions of the control loop of a run."""


@dataclass(frozen=True)
class Figure:
    """One picture with its heading, or why it is missing."""

    name: str
    title: str
    caption: str
    picture: Picture | None
    why_not: str = ""


def figures(data: ReportData) -> list[Figure]:
    """Return all figures of a report, in order."""
    job, answer, trials, runs, model = data.sized
    to_draw: list[tuple[str, str, str, Callable[[], Picture]]] = [
        ("throughput", "Throughput over workers and PS", _THROUGHPUT,
         partial(plots.throughput, job, trials, model=model, at=answer.target)),
        ("pareto", "Time against cost", _PARETO, partial(plots.pareto, answer)),
        ("memory", "Memory against its limits", _MEMORY, partial(plots.memory, answer, trials, runs)),
        ("phases", "Where a step's time goes", _PHASES, partial(plots.phases, trials)),
        ("predicted", "Predicted against actual", _PREDICTED,
         partial(plots.predicted, job, trials, runs, model=model)),
    ]  # fmt: skip
    drawn_runs = [run for run in runs if run.stretches][-MAX_RUNS:]
    to_draw += [
        (f"run-{number}", f"Over time: {run.name}", _OVER_TIME, partial(plots.over_time, run))
        for number, run in enumerate(reversed(drawn_runs), 1)
    ]
    if data.decisions:
        to_draw.append(("decided", "Decisions over time", _DECIDED, partial(plots.decisions, data.decisions)))
    if data.windows:
        to_draw.append(("observed", "Observations of a run", _OBSERVED, partial(plots.observed, data.windows)))
    return [_figure(*figure) for figure in steps("drawing", to_draw)]


def _figure(name: str, title: str, caption: str, draw: Callable[[], Picture]) -> Figure:
    try:
        return Figure(name, title, caption, draw())
    except InputError as error:
        return Figure(name, title, caption, None, str(error))


_THROUGHPUT = (
    "Expected samples/s when the number of workers, or of PS, changes and all else stays as chosen. The band holds "
    "90 % of further trials. Filled points were measured at exactly these sizes. Crosses were measured at other sizes "
    "and are rescaled by the model; they are no measurements of these sizes. Dashed lines and the star are predictions."
)
_PARETO = "Predictions for allocations that no other beats in both time and cost, with the 90 % interval of the time."
_MEMORY = (
    "The predicted peak of one replica in the chosen allocation, the requested limit, and measured peaks. Trials with "
    "fewer PS are included, although each of their PS holds more rows."
)
_PHASES = "Busy time of a worker's step, without waiting for other replicas."
_PREDICTED = (
    "The model was fitted to the trials, so they show how well it describes its own data; for runs, the prediction was "
    "made before they began."
)
_DECIDED = (
    "The observed speed and the allocation, turn by turn; each mark is a change that the control loop proposed. The "
    "numbers contain each decision with its reason."
)
_OBSERVED = "Values between observations; dashed lines are the allocation."
_OVER_TIME = "The allocation and the speed of the run, with each change and failure marked."
