"""Figures of a retraining: predicted against measured, error and coverage by family, and regret."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sizewright.retraining.evaluation import JobScore, by_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scores = Mapping[str, Sequence[JobScore]]
"""Scores by the way jobs were left out: each base shape, each family, or those that are always held out."""
_LABELS = {"base": "base shapes left out", "family": "families left out", "held-out": "always held out"}


def draw(scores: Scores) -> dict[str, Figure]:
    """Return the figures by name."""
    return {
        "predicted_against_measured": _predicted(scores),
        "error_by_family": _by_family(scores, "mdape", "median error"),
        "interval_coverage": _by_family(scores, "coverage", "share of allocations in the 90 % interval", line=0.9),
        "regret": _by_family(scores, "regret", "mean regret by time × cost"),
    }


def _predicted(scores: Scores) -> Figure:
    figure = _figure()
    axes = figure.add_subplot()
    for number, (name, job_scores) in enumerate(scores.items()):
        known = [score for score in job_scores if score.predicted]
        x = list(itertools.chain(*(score.measured for score in known)))
        y = list(itertools.chain(*(score.predicted for score in known)))
        axes.scatter(x, y, s=8, alpha=0.5, label=_LABELS.get(name, name), color=f"C{number}")
    ends = [*axes.get_xlim()]
    axes.plot(ends, ends, color="grey", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="measured samples/s", ylabel="predicted samples/s")
    axes.set_title("Predicted against measured")
    axes.legend()
    return figure


def _by_family(scores: Scores, metric: str, label: str, line: float | None = None) -> Figure:
    figure = _figure()
    axes = figure.add_subplot()
    families = sorted({score.family for job_scores in scores.values() for score in job_scores})
    width = 0.8 / max(len(scores), 1)
    for number, (name, job_scores) in enumerate(scores.items()):
        values = by_family(job_scores)
        heights = [values.get(family, {}).get(metric, np.nan) for family in families]
        axes.bar(np.arange(len(families)) + number * width, heights, width, label=_LABELS.get(name, name))
    if line is not None:
        axes.axhline(line, color="grey", linewidth=1)
    axes.set_xticks(np.arange(len(families)) + 0.4 - width / 2, families)
    axes.set(ylabel=label, title=f"{label[0].upper()}{label[1:]}, by family")
    figure.legend(loc="outside lower center", ncols=len(scores))
    return figure


def _figure() -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
