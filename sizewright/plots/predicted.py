"""Predicted against actual: trials that the model was fitted to, and runs whose speed a plan predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel
from sizewright.plots._base import COLORS, GREY, Picture, tidy
from sizewright.recommender.consider import default_model, filled
from sizewright.spec import Job
from sizewright.spec.units import format_count, format_interval, format_number


def predicted(
    job: Job, trials: Sequence[Trial], runs: Sequence[FinishedJob] = (), *, model: BaseThroughputModel | None = None
) -> Picture:
    """Samples/s with 90 % intervals; on the diagonal the prediction would be exact.

    Of trials it is how well the fit describes what it was fitted to; of runs, what was predicted before they began.
    Raises InputError where there is neither.
    """
    told = [filled(job, trial) for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    foretold = [run for run in runs if run.expected and run.throughput]
    if not told and not foretold:
        raise InputError("Nothing was measured that was predicted.", "Run: sizewright profile JOB.")
    picture = Picture(6.0, 4.6)
    axes = picture.subplots()
    rows, greatest = list[tuple[str, ...]](), 0.0
    if told:
        fitted = model or default_model(job).fit(told)
        ends = np.stack(fitted.predict_with_interval(told))
        actual = np.array([t.throughput for t in told], float)
        names = [f"{format_count(t.workers, 'worker')}, {t.ps} PS" for t in told]
        rows += _drawn(picture, axes, ("trial, which the model was fitted to", names), actual, ends, ("o", COLORS[0]))
        greatest = max(float(ends.max()), float(actual.max()))
    if foretold:
        ends = np.array([(e.value, e.lower, e.upper) for e in (run.expected for run in foretold) if e]).T
        actual = np.array([run.throughput for run in foretold], float)
        rows += _drawn(
            picture,
            axes,
            ("run, predicted before it began", [run.name for run in foretold]),
            actual,
            ends,
            ("D", COLORS[1]),
        )
        greatest = max(greatest, float(ends.max()), float(actual.max()))
    axes.plot([0, greatest], [0, greatest], color=GREY, linewidth=0.9, linestyle="--")
    tidy(axes, xlabel="measured samples/s", ylabel="predicted samples/s", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, fontsize=9)
    picture.numbers = (("what", "of", "measured", "predicted", "90 % interval", "off by"), rows)
    picture.alt = _alt(rows)
    return picture


def _drawn(
    picture: Picture, axes: Any, what: tuple[str, list[str]], actual: Any, ends: Any, look: tuple[str, str]
) -> list[tuple[str, ...]]:
    """Draw points with intervals; the answer is their rows."""
    kind, names = what
    middle, lower, upper = ends
    bars = np.maximum([middle - lower, upper - middle], 0)
    axes.errorbar(actual, middle, bars, fmt="none", ecolor=look[1], elinewidth=0.7, alpha=0.6)
    drawn = axes.scatter(actual, middle, marker=look[0], s=24, color=look[1], label=kind, zorder=3)
    rows: list[tuple[str, ...]] = [
        (kind, name, format_number(a), *_interval(m, low, up), f"{m / a - 1:+.1%}")
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
        off = [abs(float(row[5].rstrip("%"))) for row in rows if row[0] == kind]
        texts.append(f"{len(off)} × {kind}: half of them off by at most {np.median(off):.1f} %")
    return f"{'; '.join(texts)}."
