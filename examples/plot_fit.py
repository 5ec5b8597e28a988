"""Draw the fitted model of a job and its measured trials: python examples/plot_fit.py JOB STORE PICTURE."""

from __future__ import annotations

import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sizewright as sw
from sizewright.models import ThroughputModel
from sizewright.models.memory.memory_model import table_bytes

COLORS = ("#3366cc", "#dc3912", "#109618", "#990099")
POINTS = 80


def main(job_file: str, store: str, picture: str) -> None:
    """Draw two plots: samples/s over the cores of the workers, and predicted over measured samples/s."""
    job = sw.load_job(job_file)
    with sw.open_store(store) as opened:
        trials = [t for t in opened.trials(job_hash=job.hash) if t.usable]
    model = ThroughputModel().fit(trials)
    embedding_bytes = table_bytes(job)
    figure, (curve_axes, fit_axes) = plt.subplots(1, 2, figsize=(11, 4.4), dpi=110, width_ratios=(3, 2))
    draw_curves(curve_axes, model, trials, job.training.batch_size, embedding_bytes)
    draw_fit(fit_axes, model, trials)
    figure.suptitle(f"{job.name}: {len(trials)} measured trials and the fitted model (90 % intervals)", fontsize=11)
    figure.tight_layout()
    figure.savefig(picture)


def draw_curves(
    axes: Any, model: ThroughputModel, trials: list[sw.Trial], batch_size: int, embedding_bytes: float
) -> None:
    """Draw curves for the combinations of workers and PS that most trials with full tables have."""
    full = [t for t in trials if t.table_scale == max(t.table_scale or 0 for t in trials)]
    kinds = sorted({(t.workers, t.ps, t.ps_cpu) for t in full}, key=lambda k: -sum((t.workers, t.ps, t.ps_cpu) == k
                                                                                   for t in full))  # fmt: skip
    for color, (workers, ps, ps_cpu) in zip(COLORS, kinds, strict=False):
        cores = np.linspace(0.1, 1.7, POINTS)
        fixed = {
            "workers": workers,
            "ps": ps,
            "ps_cpu": ps_cpu,
            "batch_size": batch_size,
            "embedding_bytes": embedding_bytes,
        }
        columns = {name: np.full(POINTS, value, float) for name, value in fixed.items()}
        columns["worker_cpu"] = cores / workers
        curve, (lower, upper) = model.predict(columns), model.predict_interval(columns)
        matching = [t for t in full if (t.workers, t.ps, t.ps_cpu) == (workers, ps, ps_cpu)]
        x = [t.workers * (t.worker_cpu or 1) for t in matching]
        label = f"{workers} worker{'s' * (workers > 1)}, {ps} PS × {ps_cpu:g} cores"
        inside = (cores >= min(x)) & (cores <= max(x))
        axes.plot(cores, curve, color=color, linewidth=1, linestyle="--")
        axes.plot(cores[inside], curve[inside], color=color)
        axes.fill_between(cores, lower, upper, color=color, alpha=0.10, linewidth=0)
        axes.plot(x, [t.throughput for t in matching], "o", color=color, markersize=6, label=label)
    axes.plot([], [], color="#888888", linewidth=1, linestyle="--", label="predicted, nothing measured")
    axes.set(xlabel="cores of all workers", ylabel="samples/s", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)


def draw_fit(axes: Any, model: ThroughputModel, trials: list[sw.Trial]) -> None:
    """Draw predicted over measured samples/s; on the diagonal, predictions are exact."""
    measured = np.array([t.throughput for t in trials])
    predicted, (lower, upper) = model.predict(trials), model.predict_interval(trials)
    bars = (predicted - lower, upper - predicted)
    axes.errorbar(measured, predicted, yerr=bars, fmt="o", color=COLORS[0], markersize=5, capsize=2, linewidth=0.8)
    top = float(upper.max()) * 1.05
    axes.plot([0, top], [0, top], color="#888888", linewidth=0.8, linestyle="--")
    axes.set(xlabel="measured samples/s", ylabel="predicted samples/s", xlim=(0, top), ylim=(0, top))
    axes.grid(alpha=0.25)


if __name__ == "__main__":
    main(*sys.argv[1:4])
