"""Plot predicted against measured samples/s, for the trials of the fit and for runs with a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.formatting import format_count, format_interval, format_number
from sizewright.models._base import BaseThroughputModel
from sizewright.models.factory import make_predictor
from sizewright.plots._base import COLORS, GREY, Picture, tidy
from sizewright.recommender.sizing.evaluate_grid import with_defaults
from sizewright.spec import Job


def predicted(
    job: Job, trials: Sequence[Trial], runs: Sequence[FinishedJob] = (), *, model: BaseThroughputModel | None = None
) -> Picture:
    """Plot predicted samples/s with 90 % intervals against measured ones; on the diagonal a prediction is exact.

    Trials show how well the model describes the data of its fit; for runs, the prediction was made before they began.
    Raises InputError where there is neither.
    """
    fitted_trials = [with_defaults(job, trial) for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    predicted_runs = [run for run in runs if run.expected and run.throughput]
    if not fitted_trials and not predicted_runs:
        raise InputError(
            "There is no measurement to compare with a prediction.", "Measure trials: sizewright profile JOB."
        )
    picture = Picture(6.0, 4.6)
    axes = picture.subplots()
    rows: list[tuple[str, ...]] = []
    largest = 0.0
    if fitted_trials:
        fitted = model or make_predictor(may_be_input_bound=bool(job.command)).fit(fitted_trials)
        intervals = np.stack(fitted.predict_with_interval(fitted_trials))
        actual = np.array([t.throughput for t in fitted_trials], float)
        names = [f"{format_count(t.workers, 'worker')}, {t.ps} PS" for t in fitted_trials]
        rows += _draw(picture, axes, ("trial of the fit", names), actual, intervals, ("o", COLORS[0]))
        largest = max(float(intervals.max()), float(actual.max()))
    if predicted_runs:
        intervals = np.array([(e.value, e.lower, e.upper) for e in (run.expected for run in predicted_runs) if e]).T
        actual = np.array([run.throughput for run in predicted_runs], float)
        rows += _draw(
            picture,
            axes,
            ("run, predicted before it began", [run.name for run in predicted_runs]),
            actual,
            intervals,
            ("D", COLORS[1]),
        )
        largest = max(largest, float(intervals.max()), float(actual.max()))
    axes.plot([0, largest], [0, largest], color=GREY, linewidth=0.9, linestyle="--")
    tidy(axes, xlabel="measured samples/s", ylabel="predicted samples/s", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, fontsize=9)
    picture.numbers = (("kind", "name", "measured", "predicted", "90 % interval", "error"), rows)
    picture.alt = _alt(rows)
    return picture


def _draw(
    picture: Picture,
    axes: Any,
    kind_and_names: tuple[str, list[str]],
    actual: Any,
    intervals: Any,
    marker_and_color: tuple[str, str],
) -> list[tuple[str, ...]]:
    """Draw points with intervals and return their rows."""
    kind, names = kind_and_names
    marker, color = marker_and_color
    middle, lower, upper = intervals
    bars = np.maximum([middle - lower, upper - middle], 0)
    axes.errorbar(actual, middle, bars, fmt="none", ecolor=color, elinewidth=0.7, alpha=0.6)
    drawn = axes.scatter(actual, middle, marker=marker, s=24, color=color, label=kind, zorder=3)
    rows: list[tuple[str, ...]] = [
        (kind, name, format_number(a), *_interval(m, low, up), f"{100 * (m / a - 1):+.1f} %")
        for name, a, m, low, up in zip(names, actual, middle, lower, upper, strict=True)
    ]
    picture.label(drawn, [f"{kind}: {row[1]}: {row[2]} measured, {row[3]} ({row[4]}) predicted" for row in rows])
    return rows


def _interval(value: float, lower: float, upper: float) -> tuple[str, str]:
    middle, low, high = format_interval(value, lower, upper)
    return middle, f"{low} to {high}"


def _alt(rows: list[tuple[str, ...]]) -> str:
    texts = []
    for kind in dict.fromkeys(row[0] for row in rows):
        errors = [abs(float(row[5].rstrip("%"))) for row in rows if row[0] == kind]
        texts.append(f"{len(errors)} × {kind}: the median error is {np.median(errors):.1f} %")
    return f"{'; '.join(texts)}."
