"""Plot samples/s over the number of workers and of PS, with all else as in one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.formatting import format_count, format_interval, format_number
from sizewright.models._base import BaseThroughputModel
from sizewright.models.factory import make_predictor
from sizewright.models.memory.memory_model import table_bytes
from sizewright.models.table import AXES, Columns, as_columns
from sizewright.plots._base import COLORS, DASHED, FAINT, GREY, MEASURED, PREDICTED, RESCALED, Picture, tidy
from sizewright.recommender.sizing.evaluate_grid import with_defaults
from sizewright.recommender.sizing.grid import counts_between
from sizewright.spec import Allocation, Job

_NAMES = {"workers": "workers", "ps": "parameter servers"}


def throughput(
    job: Job, trials: Sequence[Trial], *, model: BaseThroughputModel | None = None, at: Allocation | None = None
) -> Picture:
    """Plot the fitted model's curves with the 90 % interval of a trial, and the measured points.

    `model` must be fitted; by default the job's default model is fitted to `trials`. The curves go through the
    allocation `at`, by default that of the fastest trial. Only trials of the curve's own sizes are drawn as measured,
    and only between them the curve is solid; elsewhere it is a prediction. A trial of other sizes is rescaled by the
    model (a partial residual): measured × curve ÷ predicted. A grey line shows the fastest trial as it was measured.

    Raises InputError without a usable trial where there is neither model nor allocation.
    """
    usable = [with_defaults(job, trial) for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    if not usable and (model is None or at is None):
        raise InputError("There is no usable trial to draw a curve from.", "Measure trials: sizewright profile JOB.")
    model = model or make_predictor(may_be_input_bound=bool(job.command)).fit(usable)
    center = _center(job, usable, at)
    drawn_axes = ("workers", "ps") if job.has_ps else ("workers",)
    picture = Picture(4.6 * len(drawn_axes) + 0.6, 4.0)
    panels = picture.subplots(1, len(drawn_axes), squeeze=False, sharey=True)[0]
    rows: list[tuple[str, ...]] = []
    for panel, axis in zip(panels, drawn_axes, strict=True):
        rows += _draw_curve(picture, panel, job, model, usable, center, axis)
    tidy(panels[0], ylabel="samples/s", ylim=(0, None))
    legend = dict(pair for panel in panels for pair in zip(*panel.get_legend_handles_labels()[::-1], strict=True))
    picture.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    picture.numbers = (("over", "count", "samples/s", "90 % interval"), rows)
    picture.alt = _text(rows, center, drawn_axes)
    return picture


def _center(job: Job, trials: Sequence[Trial], at: Allocation | None) -> dict[str, float]:
    """Return the model's columns at the allocation that the curves go through."""
    if at is not None:
        columns = as_columns([at], AXES)
    else:
        columns = as_columns([max(trials, key=lambda t: t.throughput or 0.0)], AXES)
    columns["embedding_bytes"] = np.array([0.0 if job.command else float(table_bytes(job))])
    return {name: float(np.nan_to_num(column[0])) for name, column in columns.items()}


def _draw_curve(
    picture: Picture,
    panel: Any,
    job: Job,
    model: BaseThroughputModel,
    trials: Sequence[Trial],
    center: dict[str, float],
    axis: str,
) -> list[tuple[str, ...]]:
    """Draw one curve and return its rows."""
    bounds = job.bounds.worker.replicas if axis == "workers" else job.bounds.ps.replicas
    measured = sorted({float(getattr(trial, axis)) for trial in trials})
    counts = np.array(sorted({*counts_between(*bounds), *measured, center[axis]}))
    middle, lower, upper = model.predict_with_interval(_varied(center, axis, counts))
    panel.fill_between(counts, lower, upper, color=COLORS[0], alpha=FAINT, linewidth=0, label="90 % of trials")
    panel.plot(counts, middle, color=COLORS[0], linewidth=1.2, linestyle=DASHED, label=PREDICTED)
    if trials:
        on_curve = _on_curve(trials, center, axis)
        measured_counts = [float(getattr(trial, axis)) for trial, on in zip(trials, on_curve, strict=True) if on]
        inside = counts >= min(measured_counts, default=np.inf)
        inside &= counts <= max(measured_counts, default=-np.inf)
        if inside.sum() > 1:
            panel.plot(
                counts[inside], middle[inside], color=COLORS[0], linewidth=1.8, label="fitted to measured points"
            )
        fastest = max(trial.throughput or 0.0 for trial in trials)
        panel.axhline(fastest, color=GREY, linewidth=1, label=f"fastest trial: {format_number(fastest)} samples/s")
        _points(picture, panel, model, trials, on_curve, center, axis)
    chosen = float(np.interp(center[axis], counts, middle))
    mark = panel.scatter(
        [center[axis]],
        [chosen],
        marker="*",
        s=150,
        facecolors="none",
        edgecolors=COLORS[1],
        linewidths=1.6,
        zorder=4,
        label="predicted at the chosen sizes",
    )
    texts = [format_interval(*each) for each in zip(middle, lower, upper, strict=True)]
    picture.label(
        mark, [f"{center[axis]:g} {_NAMES[axis]}: {texts[list(counts).index(center[axis])][0]} samples/s predicted"]
    )
    tidy(panel, xlabel=_NAMES[axis])
    panel.xaxis.get_major_locator().set_params(integer=True)
    keep = np.unique(np.linspace(0, len(counts) - 1, 12).round().astype(int))
    return [(_NAMES[axis], f"{counts[i]:g}", texts[i][0], f"{texts[i][1]} to {texts[i][2]}") for i in keep]


def _varied(center: dict[str, float], axis: str, counts: Any) -> Columns:
    columns = {name: np.full(len(counts), value) for name, value in center.items()}
    columns[axis] = np.asarray(counts, float)
    return columns


def _on_curve(trials: Sequence[Trial], center: dict[str, float], axis: str) -> NDArray[np.bool_]:
    """Return which trials have the sizes of the curve, including those of the tables."""
    columns = as_columns(trials, AXES)
    same = [np.isclose(columns[name], center[name], rtol=1e-3, equal_nan=True) for name in AXES if name != axis]
    return np.asarray(np.all(same, axis=0))


def _points(
    picture: Picture,
    panel: Any,
    model: BaseThroughputModel,
    trials: Sequence[Trial],
    on_curve: NDArray[np.bool_],
    center: dict[str, float],
    axis: str,
) -> None:
    """Draw trials of the curve's own sizes as measured, and the others rescaled to the curve."""
    counts, rates = as_columns(trials, AXES)[axis], np.array([trial.throughput for trial in trials], float)
    rescaled = rates * model.predict(_varied(center, axis, counts)) / np.maximum(model.predict(trials), 1e-9)
    groups: Any = (
        (on_curve, rates, {"marker": "o", "s": 26, "color": COLORS[0], "label": MEASURED}),
        (~on_curve, rescaled, {"marker": "x", "s": 20, "color": GREY, "linewidths": 1.0, "label": RESCALED}),
    )
    for rows, heights, style in groups:
        if rows.any():
            drawn = panel.scatter(counts[rows], heights[rows], zorder=3, **style)
            picture.label(drawn, [
                _point(trial) + ("" if rows is on_curve else f"; {format_number(height)} when rescaled to these sizes")
                for trial, height, row in zip(trials, heights, rows, strict=True) if row
            ])  # fmt: skip


def _point(trial: Trial) -> str:
    workers = f"{trial.workers} × {trial.worker_cpu:g} cores of workers"
    servers = f", {trial.ps} × {trial.ps_cpu:g} of PS" if trial.ps and trial.ps_cpu else ""
    return f"{workers}{servers}: {format_number(trial.throughput or 0.0)} samples/s measured"


def _text(rows: list[tuple[str, ...]], center: dict[str, float], axes: Sequence[str]) -> str:
    texts = []
    for axis in axes:
        points = [row for row in rows if row[0] == _NAMES[axis]]
        first, last = points[0], points[-1]
        texts.append(f"from {first[2]} at {first[1]} to {last[2]} at {last[1]} {_NAMES[axis]}")
    allocation = format_count(center["workers"], "worker") + (f" and {center['ps']:g} PS" if center["ps"] else "")
    return f"Predicted samples/s around {allocation}: {'; '.join(texts)}."
