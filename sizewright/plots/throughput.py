"""Samples/s over workers and over PS, everything else as in one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.memory import table_bytes
from sizewright.models.table import AXES, Columns, as_columns
from sizewright.plots._base import COLORS, DASHED, FAINT, GREY, MEASURED, PREDICTED, RESCALED, Picture, tidy
from sizewright.recommender.consider import default_model, filled
from sizewright.recommender.grid import counts_between
from sizewright.spec import Allocation, Job
from sizewright.spec.units import format_count, format_interval, format_number

_NAMES = {"workers": "workers", "ps": "parameter servers"}


def throughput(
    job: Job, trials: Sequence[Trial], *, model: BaseThroughputModel | None = None, at: Allocation | None = None
) -> Picture:
    """The fitted model's curves with the 90 % interval of a trial, and the measured points.

    `model` is fitted already; by default the job's own is fitted to `trials`. `at` is the allocation that the curves
    go through, by default that of the fastest trial. Only trials of the curve's own sizes are drawn as measured, and
    only between them the curve is solid; elsewhere it is a prediction. A trial of other sizes is rescaled by the model
    (a partial residual): measured × curve ÷ predicted. A grey line shows the fastest trial as it was measured.

    Raises InputError without a usable trial where there is neither model nor allocation.
    """
    told = [filled(job, trial) for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    if not told and (model is None or at is None):
        raise InputError("There is no measured trial to draw a curve from.", "Run: sizewright profile JOB.")
    model = model or default_model(job).fit(told)
    through = _through(job, told, at)
    axes_drawn = ("workers", "ps") if job.has_ps else ("workers",)
    picture = Picture(4.6 * len(axes_drawn) + 0.6, 4.0)
    panels = picture.subplots(1, len(axes_drawn), squeeze=False, sharey=True)[0]
    rows = list[tuple[str, ...]]()
    for panel, axis in zip(panels, axes_drawn, strict=True):
        rows += _drawn(picture, panel, job, model, told, through, axis)
    tidy(panels[0], ylabel="samples/s", ylim=(0, None))
    known = dict(pair for panel in panels for pair in zip(*panel.get_legend_handles_labels()[::-1], strict=True))
    picture.legend(known.values(), known.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    picture.numbers = (("over", "count", "samples/s", "90 % interval"), rows)
    picture.alt = _told(rows, through, axes_drawn)
    return picture


def _through(job: Job, trials: Sequence[Trial], at: Allocation | None) -> dict[str, float]:
    """One row of a model's columns."""
    if at is not None:
        columns = as_columns([at], AXES)
    else:
        columns = as_columns([max(trials, key=lambda t: t.throughput or 0.0)], AXES)
    columns["embedding_bytes"] = np.array([0.0 if job.command else float(table_bytes(job))])
    return {name: float(np.nan_to_num(column[0])) for name, column in columns.items()}


def _drawn(
    picture: Picture, panel: Any, job: Job, model: BaseThroughputModel, trials: Sequence[Trial],
    through: dict[str, float], axis: str,
) -> list[tuple[str, ...]]:  # fmt: skip
    """Draw one curve; the answer is its rows."""
    bounds = job.bounds.worker.replicas if axis == "workers" else job.bounds.ps.replicas
    measured = sorted({float(getattr(trial, axis)) for trial in trials})
    counts = np.array(sorted({*counts_between(*bounds), *measured, through[axis]}))
    middle, lower, upper = model.predict_with_interval(_varied(through, axis, counts))
    panel.fill_between(counts, lower, upper, color=COLORS[0], alpha=FAINT, linewidth=0, label="90 % of trials")
    panel.plot(counts, middle, color=COLORS[0], linewidth=1.2, linestyle=DASHED, label=PREDICTED)
    if trials:
        own = _of_the_curve(trials, through, axis)
        here = [float(getattr(trial, axis)) for trial, is_own in zip(trials, own, strict=True) if is_own]
        inside = (counts >= min(here, default=np.inf)) & (counts <= max(here, default=-np.inf))
        if inside.sum() > 1:
            panel.plot(
                counts[inside], middle[inside], color=COLORS[0], linewidth=1.8, label="fitted to measured points"
            )
        fastest = max(trial.throughput or 0.0 for trial in trials)
        panel.axhline(fastest, color=GREY, linewidth=1, label=f"fastest trial: {format_number(fastest)} samples/s")
        _points(picture, panel, model, trials, own, through, axis)
    chosen = float(np.interp(through[axis], counts, middle))
    mark = panel.scatter([through[axis]], [chosen], marker="*", s=150, facecolors="none", edgecolors=COLORS[1],
                         linewidths=1.6, zorder=4, label="predicted at the chosen sizes")  # fmt: skip
    texts = [format_interval(*each) for each in zip(middle, lower, upper, strict=True)]
    picture.label(
        mark, [f"{through[axis]:g} {_NAMES[axis]}: {texts[list(counts).index(through[axis])][0]} samples/s predicted"]
    )
    tidy(panel, xlabel=_NAMES[axis])
    panel.xaxis.get_major_locator().set_params(integer=True)
    keep = np.unique(np.linspace(0, len(counts) - 1, 12).round().astype(int))
    return [(_NAMES[axis], f"{counts[i]:g}", texts[i][0], f"{texts[i][1]} to {texts[i][2]}") for i in keep]


def _varied(through: dict[str, float], axis: str, counts: Any) -> Columns:
    columns = {name: np.full(len(counts), value) for name, value in through.items()}
    columns[axis] = np.asarray(counts, float)
    return columns


def _of_the_curve(trials: Sequence[Trial], through: dict[str, float], axis: str) -> NDArray[np.bool_]:
    """Return which trials have the sizes of the curve, those of the tables among them."""
    own = as_columns(trials, AXES)
    same = [np.isclose(own[name], through[name], rtol=1e-3, equal_nan=True) for name in AXES if name != axis]
    return np.asarray(np.all(same, axis=0))


def _points(
    picture: Picture, panel: Any, model: BaseThroughputModel, trials: Sequence[Trial], own: NDArray[np.bool_],
    through: dict[str, float], axis: str,
) -> None:  # fmt: skip
    """Draw trials of the curve's own sizes as they were measured, and the others where the model has them."""
    counts, rates = as_columns(trials, AXES)[axis], np.array([trial.throughput for trial in trials], float)
    rescaled = rates * model.predict(_varied(through, axis, counts)) / np.maximum(model.predict(trials), 1e-9)
    looks: Any = (
        (own, rates, {"marker": "o", "s": 26, "color": COLORS[0], "label": MEASURED}),
        (~own, rescaled, {"marker": "x", "s": 20, "color": GREY, "linewidths": 1.0, "label": RESCALED}),
    )
    for rows, heights, look in looks:
        if rows.any():
            drawn = panel.scatter(counts[rows], heights[rows], zorder=3, **look)
            picture.label(drawn, [
                _point(trial) + ("" if rows is own else f" there; {format_number(height)} when rescaled to these sizes")
                for trial, height, row in zip(trials, heights, rows, strict=True) if row
            ])  # fmt: skip


def _point(trial: Trial) -> str:
    workers = f"{trial.workers} × {trial.worker_cpu:g} cores of workers"
    servers = f", {trial.ps} × {trial.ps_cpu:g} of PS" if trial.ps and trial.ps_cpu else ""
    return f"{workers}{servers}: {format_number(trial.throughput or 0.0)} samples/s measured"


def _told(rows: list[tuple[str, ...]], through: dict[str, float], axes: Sequence[str]) -> str:
    texts = []
    for axis in axes:
        mine = [row for row in rows if row[0] == _NAMES[axis]]
        first, last = mine[0], mine[-1]
        texts.append(f"from {first[2]} at {first[1]} to {last[2]} at {last[1]} {_NAMES[axis]}")
    here = format_count(through["workers"], "worker") + (f" and {through['ps']:g} PS" if through["ps"] else "")
    return f"Predicted samples/s around {here}: {'; '.join(texts)}."
