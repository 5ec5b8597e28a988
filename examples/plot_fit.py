"""Draw the fitted throughput curve of a job with its measured trials: python examples/plot_fit.py JOB STORE PICTURE."""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sizewright as sw
from sizewright.models.dlrover import DlroverModel
from sizewright.models.memory import row_bytes


def main(job_file: str, store: str, picture: str) -> None:
    """Samples/s against the workers' cores in sum: one curve per number of workers, trials as points."""
    job = sw.load_job(job_file)
    with sw.open_store(store) as opened:
        trials = [t for t in opened.trials(job_hash=job.hash) if t.usable]
    full = [t for t in trials if t.table_scale == max(t.table_scale or 0 for t in trials)]
    model = DlroverModel().fit(trials)
    embedding_bytes = sum(job.model.tables.sizes()) * row_bytes(job)
    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
    for color, workers in zip(("#3366cc", "#109618", "#dc3912"), (1, 2, 4), strict=True):
        cores = np.linspace(0.2, 1.6, 60)
        columns = {
            "workers": np.full(60, workers),
            "ps": np.full(60, 1),
            "worker_cpu": cores / workers,
            "ps_cpu": np.full(60, 0.3),
            "batch_size": np.full(60, job.training.batch_size),
            "embedding_bytes": np.full(60, embedding_bytes),
        }
        lower, upper = model.predict_interval(columns)
        label = f"{workers} worker{'s' if workers > 1 else ''}"
        axes.plot(cores, model.predict(columns), color=color, label=f"{label}, 1 PS × 0.3 cores: fitted")
        axes.fill_between(cores, lower, upper, color=color, alpha=0.12, linewidth=0)
        mine = [t for t in full if t.workers == workers]
        x = [t.workers * (t.worker_cpu or 1) for t in mine]
        axes.errorbar(x, [t.throughput for t in mine], yerr=[2 * (t.throughput_se or 0) for t in mine], fmt="o",
                      color=color, markersize=5, capsize=2)  # fmt: skip
        for t, at in zip(mine, x, strict=True):
            axes.annotate(f"{t.ps} PS × {t.ps_cpu:g}", (at, t.throughput or 0), fontsize=7, xytext=(5, -9),
                          textcoords="offset points", color=color)  # fmt: skip
    axes.set(
        xlabel="cores of all workers", ylabel="samples/s", title=f"{job.name}: measured trials and the fitted model"
    )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(*sys.argv[1:4])
