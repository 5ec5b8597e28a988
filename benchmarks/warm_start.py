"""The gain of runs of similar jobs for a job's first allocation: `make bench NAME=warm_start`.

Each job of the bank (with the rows that it was measured with) is left out in turn. The prior has not seen its base
shape. The history has none of its own runs, but runs of the other two variations of its shape. The true throughput is a
curve fitted to all trials of the job together with such a prior, on a fine grid of the measured bounds. The true memory
is the peak of the trial with the nearest allocation (in logarithms of replicas and cores), minus the counted memory of
that allocation, plus the counted memory of the allocation in question.

A history has up to four runs of each job within half a year. Replica numbers are random. Cores per replica are the best
ones × lognormal (median 5, σ 0.7), because users over-ask, and in every fifth run half of the best ones, at most twice
the measured ones. The memory is twice the peak in the median (σ 0.5), so that some runs run out of memory. One run in
twenty fails at once. Rates vary by 5 % per run, and peaks by 3 %.

The objective is `balanced`, with memory priced as counted from the tables. DLRover-RM smooths the allocations of the
three most similar jobs in order of time. Here it smooths the best allocations of these jobs, which favours it. Accuracy
is 1 − |asked − best| / best of a count. Within these bounds the best allocation of every job has the most workers, so
the accuracy of workers shows nothing. Jobs that the prior refuses get no first allocation, and the details name them.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks._measured import on_all_cores
from benchmarks._report import choose, finish
from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.datasets.trial_bank.files import load_bank
from sizewright.datasets.trial_bank.shapes import HELD_OUT
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.formatting import GIB, MIB
from sizewright.models.default.predictor import ThroughputModel
from sizewright.models.memory.memory_model import MemoryModel, table_bytes
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.recommender.similar_jobs.similarity import similar_jobs
from sizewright.recommender.sizing.grid import Grid, finer, make_grid
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.scoring import grid_price
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Allocation, Bounds, Failure, Job, Outcome, Recommendation, RoleBounds
from sizewright.spec.objective import completion_time_s, cost_of, objective_value

Floats = NDArray[np.float64]

SEEDS = range(10, choose(15, 11, 11))
"""Seeds of histories that were not used during development."""
NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
MAX_RUNS, DAYS, HOUR_S = 4, 180.0, 3600.0
MEMORY = (64 * MIB, 16 * GIB)
BOUNDS = Bounds(
    worker=RoleBounds(replicas=(1, 4), cpu=(0.1, 1.0), memory_bytes=MEMORY),
    ps=RoleBounds(replicas=(1, 3), cpu=(0.1, 0.6), memory_bytes=MEMORY),
)
MIN_CPU, MAX_CPU = 0.1, (2.0, 1.2)
SMOOTHED_JOBS, SMOOTHING = 3, 0.5
REFINEMENTS, STARTS = 4, 16
TARGETS = {
    "warm_regret": "≤ 0.10 and ≤ prior_regret",
    "warm_oom_share": "≤ 0.02",
    "warm_accuracy_worker": "beside the paper's 0.75 to 1",
    "warm_accuracy_ps": "beside the paper's 0.65 to 1",
}


class Truth(NamedTuple):
    """The truth about one job: model, objective on its grid (n,), trials, and a prior without its base shape."""

    job: Job
    base: str
    prior: LearnedPrior
    model: ThroughputModel
    trials: list[Trial]
    grid: Grid
    objective: Floats

    @property
    def best(self) -> int:
        """Row of the best allocation in the grid."""
        return int(np.argmin(self.objective))

    def rate(self, a: Allocation) -> float:
        """Return the true samples/s of an allocation."""
        columns = {axis: [value] for axis, value in zip(AXES, _axes(a), strict=True)}
        return float(self.model.predict(columns | {"embedding_bytes": [float(table_bytes(self.job))]})[0])

    def regret(self, a: Allocation) -> float:
        """Return the relative excess of the objective over the best of the grid, at least 0."""
        grid = Grid(*np.array([[*_axes(a), 0.0, -1.0]]).T)
        return max(0.0, float(_objective(self.job, self.model, grid)[0] / self.objective.min() - 1))

    def peaks(self, a: Allocation) -> tuple[float, float]:
        """Return the peak bytes of a worker and of the fullest PS."""
        with_memory = [t for t in self.trials if t.worker_memory_bytes and t.ps_memory_bytes]
        axes = np.log([[getattr(t, axis) for axis in AXES[:4]] for t in with_memory])
        near = with_memory[int(np.argmin(((axes - np.log(_axes(a)[:4])) ** 2).sum(axis=1)))]
        counted = [_counted(self.job, float(p), float(w)) for p, w in ((a.replicas("ps"), a.replicas("worker")),
                                                                        (near.ps, near.workers))]  # fmt: skip
        return float(near.worker_memory_bytes or 0), float(near.ps_memory_bytes or 0) + counted[0] - counted[1]


AXES = ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size")


def _axes(a: Allocation) -> tuple[float, ...]:
    return (a.replicas("worker"), a.replicas("ps"), a.worker[0].cpu, a.ps[0].cpu, a.batch_size)


def _counted(job: Job, ps: float, workers: float) -> float:
    return float(MemoryModel(job).ps_bytes(np.array([ps]), np.array([workers]))[0])


def as_measured(job: Job, scale: float) -> Job:
    """Return the job with the rows and the bounds of its measurements."""
    rows = {"rows": job.model.tables.sizes(scale), "max_rows": None}
    model = job.model.model_copy(update={"tables": job.model.tables.model_copy(update=rows)})
    return job.model_copy(update={"model": model, "bounds": BOUNDS})


def bases_of_bank() -> list[str]:
    """Return all base shapes; in a smoke run, a sealed one and another."""
    bases = list(dict.fromkeys(each.base for each in load_bank().jobs.values()))
    return choose(bases, bases, [HELD_OUT[0], next(base for base in bases if base not in HELD_OUT)])


def truths_of(base: str) -> list[Truth]:
    """Return the truth about each job of one base shape."""
    bank = load_bank()
    known = {key: each for key, each in bank.jobs.items() if each.base != base}
    prior = LearnedPrior.fit([t for t in bank.trials if t.job_hash in known], known)
    truths = []
    for key, each in bank.jobs.items():
        if each.base == base:
            job = as_measured(each.job, each.table_scale)
            trials = [t.model_copy(update={"table_scale": None}) for t in bank.trials if t.job_hash == key and t.usable]
            model = ThroughputModel(prior_curve=prior_curve_of(prior, job)).fit(trials)
            grid = make_grid(job.bounds, job.training.batch_size)
            for _ in range(REFINEMENTS):
                best = np.argsort(_objective(job, model, grid))[:STARTS]
                grid = Grid.of_rows(np.vstack([grid.rows, finer(grid, best.tolist()).rows]))
            truths.append(Truth(job, base, prior, model, trials, grid, _objective(job, model, grid)))
    return truths


def _objective(job: Job, model: ThroughputModel, grid: Grid) -> Floats:
    """Return the objective of each allocation (n,), with memory priced as counted from the tables."""
    memory = MemoryModel(job)
    request = memory.worker_request_bytes(grid.batch_size), memory.ps_request_bytes(grid.ps, grid.workers)
    time_s = completion_time_s(1.0, model.predict(grid.columns(float(table_bytes(job)))))
    return objective_value("balanced", time_s, cost_of(time_s, grid_price(job, grid, *request)))


def prior_curve_of(prior: LearnedPrior, job: Job) -> JobCurve | None:
    """Return the prior curve of a job, or None where the prior does not support it."""
    try:
        return prior.curve(job)
    except NotEnoughDataError:
        return None


def history_of(truth: Truth, seed: int) -> list[FinishedJob]:
    """Return mis-sized, failed and successful runs of one job."""
    rng = np.random.default_rng([seed, int(truth.job.hash, 16)])
    return [_run(truth, rng, f"{truth.job.hash}-{number}") for number in range(rng.integers(1, MAX_RUNS + 1))]


def _run(truth: Truth, rng: np.random.Generator, name: str) -> FinishedJob:
    best = truth.grid.allocation(truth.best)
    factor = 0.5 if rng.random() < 0.2 else float(rng.lognormal(np.log(5), 0.7))
    worker_cpu = float(np.clip(best.worker[0].cpu * factor, MIN_CPU, MAX_CPU[0]))
    ps_cpu = float(np.clip(best.ps[0].cpu * factor, MIN_CPU, MAX_CPU[1]))
    workers, ps = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    asked = Allocation.of(workers, ps, worker_cpu, ps_cpu, truth.job.training.batch_size)
    true_peaks = truth.peaks(asked)
    peaks = [peak * float(rng.lognormal(0, 0.03)) for peak in true_peaks]
    limits = [peak * float(rng.lognormal(np.log(2), 0.5)) for peak in true_peaks]
    over = [role for role, peak, limit in zip(("worker", "ps"), peaks, limits, strict=True) if peak > limit]
    crashed = rng.random() < 0.05
    failures = [Failure(at_s=60, replica=f"{role}-0", cause="oom") for role in over]
    failures += [Failure(at_s=5, replica="worker-0", cause="killed")] * crashed
    duration_s = 5.0 if crashed else 60.0 if over else HOUR_S
    rate = truth.rate(asked) * float(rng.lognormal(0, 0.05))
    usage = [JobUsage(memory_peak_bytes=int(min(pair))) for pair in zip(peaks, limits, strict=True)]
    return FinishedJob(
        id=name, name=truth.job.name, job=truth.job, worker=usage[0], ps=usage[1],
        started_at=NOW - timedelta(days=float(rng.uniform(0, DAYS))),
        stretches=(Segment(at_s=0, duration_s=duration_s, allocation=asked, samples=round(rate * duration_s)),),
        outcome=Outcome(status="failed" if failures else "finished", failures=tuple(failures)),
    )  # fmt: skip


def judge(truth: Truth, answer: Recommendation) -> dict[str, float]:
    """Return regret, throughput error, out-of-memory flag, memory over the peaks, and accuracy of the counts."""
    target, best = answer.target, truth.grid.allocation(truth.best)
    assert target is not None
    asked = (target.worker[0].memory_bytes, target.ps[0].memory_bytes)
    peaks = truth.peaks(target)
    return {
        "regret": truth.regret(target),
        "error": abs(answer.predicted.throughput.value / truth.rate(target) - 1) if answer.predicted else math.nan,
        "oom": float(any(have < need for have, need in zip(asked, peaks, strict=True))),
        "over": float(sum(asked) / sum(peaks)),
        "worker": _accuracy(target.replicas("worker"), best.replicas("worker")),
        "ps": _accuracy(target.replicas("ps"), best.replicas("ps")),
    }


def _accuracy(asked: float, best: float) -> float:
    return 1 - abs(asked - best) / best


def smoothed(truth: Truth, history: list[FinishedJob], truths: dict[str, Truth]) -> dict[str, float]:
    """Return the scores of DLRover-RM's warm start."""
    similar = similar_jobs(truth.job, history, truth.prior, NOW)[:SMOOTHED_JOBS]
    runs = sorted((run for each in similar for run in each.runs), key=lambda run: run.started_at or NOW)
    asked: Floats | None = None
    for run in runs:
        other = truths[run.key or ""]
        best = np.array(_axes(other.grid.allocation(other.best)))
        asked = best if asked is None else SMOOTHING * best + (1 - SMOOTHING) * asked
    if asked is None:
        return {"regret": math.nan, "worker": math.nan, "ps": math.nan}
    workers, ps = (max(1, round(count)) for count in asked[:2])
    smooth = Allocation.of(workers, ps, float(asked[2]), float(asked[3]), truth.job.training.batch_size)
    return {
        "regret": truth.regret(smooth),
        "worker": _accuracy(workers, truth.grid.workers[truth.best]),
        "ps": _accuracy(ps, truth.grid.ps[truth.best]),
    }


def rows_of(truths: list[Truth]) -> list[dict[str, Any]]:
    """Return one row per job, seed and way."""
    by_hash, rows = {truth.job.hash: truth for truth in truths}, []
    for seed in SEEDS:
        history = [run for truth in truths for run in history_of(truth, seed)]
        for truth in (each for each in truths if prior_curve_of(each.prior, each.job)):
            others = [run for run in history if run.key != truth.job.hash]
            about = {"seed": seed, "job": truth.job.name, "base": truth.base}
            for way, runs in (("prior", []), ("warm", others)):
                answer = recommend(SizingRequest(truth.job, prior=truth.prior, history=runs, now=NOW))
                rows.append(about | {"way": way, "used": len(answer.evidence.similar)} | judge(truth, answer))
            rows.append(about | {"way": "smoothed"} | smoothed(truth, others, by_hash))
    return rows


def main() -> None:
    truths = [truth for truths_of_base in on_all_cores(truths_of, bases_of_bank()) for truth in truths_of_base]
    rows = pd.DataFrame(rows_of(truths))
    by_way = rows.drop(columns=["job", "base"]).groupby("way").mean()
    print(by_way.drop(columns="seed").round(4).to_string())
    seeds = rows.pivot_table(index="seed", columns="way", values=["regret", "oom"])
    print(seeds.round(4).to_string())
    jobs = rows[rows.way == "warm"].groupby("job")[["regret", "oom", "worker", "ps", "used"]].mean()
    print(jobs.round(3).to_string())
    warm, prior, plain = (by_way.loc[way] for way in ("warm", "prior", "smoothed"))
    sealed = rows[rows.base.isin(HELD_OUT)].groupby("way").regret.mean()
    refused = [truth.job.name for truth in truths if prior_curve_of(truth.prior, truth.job) is None]
    figures = {
        "warm_regret": warm.regret,
        "prior_regret": prior.regret,
        "smoothed_regret": plain.regret,
        "warm_error": warm.error,
        "prior_error": prior.error,
        "warm_oom_share": warm.oom,
        "prior_oom_share": prior.oom,
        "warm_memory_over_peak": warm.over,
        "prior_memory_over_peak": prior.over,
        "warm_accuracy_worker": warm.worker,
        "warm_accuracy_ps": warm.ps,
        "prior_accuracy_worker": prior.worker,
        "prior_accuracy_ps": prior.ps,
        "least_accuracy_worker": jobs.worker.min(),
        "least_accuracy_ps": jobs.ps.min(),
        "sealed_warm_regret": sealed["warm"],
        "sealed_prior_regret": sealed["prior"],
    }
    details = {
        "refused": refused,
        "seeds": rows.groupby(["seed", "way"]).regret.mean().round(4).reset_index().to_dict("records"),
        "jobs": jobs.round(4).reset_index().to_dict("records"),
    }
    finish("warm_start", figures, TARGETS, details)


if __name__ == "__main__":
    main()
