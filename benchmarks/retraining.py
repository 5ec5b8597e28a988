"""What retraining costs and brings: `make bench NAME=retraining`.

Time is of 10,000 trials (the bank's, many times over, each strayed by as much as trials repeat), evaluation and logging
to an MLflow database included. A family that the champion has not seen is left out of its bank and fed to the store:
200 of its trials, of base shapes that are not held out; errors are medians on held-out jobs, the challenger's over the
champion's. Poison replaces a tenth of the trials (× 0.1 to × 1000, NaN, cores in thousandths, batch sizes × 1000);
errors are those of clean held-out jobs, over those of a prior that learned from clean trials.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._report import QUICK, finish
from sizewright.datasets.bank.files import Bank, load_bank
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.evaluation import JobScore, by_family, score_prior, summary
from sizewright.retraining.lessons import Lessons, gather, is_held_out
from sizewright.retraining.registry import Registry
from sizewright.retraining.retrain import retrain

TRIALS = 1_000 if QUICK else 10_000
NEW_TRIALS = 200
POISONED = 0.1
SEEDS = range(2 if QUICK else 5)
TARGETS = {
    "retrain_10k_s": "≤ 120",
    "new_family_error_ratio": "≤ 0.5",
    "worst_other_family_ratio": "≤ 1.05",
    "poisoned_error_ratio": "≤ 1.1",
}


def retraining_seconds(bank: Bank) -> float:
    """Of one retraining, registry and store included."""
    rng = np.random.default_rng(0)
    usable = [trial for trial in bank.trials if trial.usable]
    picked = [usable[i] for i in rng.integers(0, len(usable), TRIALS)]
    strayed = [
        t.model_copy(update={"throughput": float((t.throughput or 0.0) * np.exp(0.08 * rng.standard_normal()))})
        for t in picked
    ]
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(f"sqlite:///{folder}/mlflow.db")
        with filled(Path(folder), strayed, bank) as store:
            began = time.perf_counter()
            retrain(store, registry, None)
            return time.perf_counter() - began


def filled(folder: Path, trials: Sequence[Trial], bank: Bank) -> TrialStore:
    """A store with trials and the jobs that they measured."""
    store = TrialStore(folder / "trials.db")
    for job in bank.jobs.values():
        store.history.add_job(job.job)
    for trial in trials:
        store.add(trial)
    return store


def new_family(bank: Bank, family: str, seed: int) -> dict[str, Any]:
    """Errors of champion and challenger on held-out jobs, of the new family and of the worst other one."""
    rng = np.random.default_rng(seed)
    whole = gather(None, bank)
    held_out = whole.only(lambda job: is_held_out(job.base))
    old = whole.only(lambda job: not is_held_out(job.base) and job.job.model.family != family)
    fresh = whole.only(lambda job: not is_held_out(job.base) and job.job.model.family == family)
    picked = [fresh.trials[i] for i in rng.permutation(len(fresh.trials))[:NEW_TRIALS]]
    champion = LearnedPrior.fit(old.trials, old.jobs)
    challenger = LearnedPrior.fit([*old.trials, *picked], {**old.jobs, **fresh.jobs})
    before, after = (by_family(score_prior(prior, held_out)) for prior in (champion, challenger))
    ratios = {name: after[name]["mdape"] / before[name]["mdape"] for name in before}
    return {
        "family": family, "seed": seed, "trials": len(picked),
        "champion": before[family]["mdape"], "challenger": after[family]["mdape"],
        "ratio": ratios[family], "worst_other": max(value for name, value in ratios.items() if name != family),
    }  # fmt: skip


def poisoned(bank: Bank, seed: int) -> dict[str, float]:
    """Errors on clean held-out jobs, of a prior from clean trials and of one from poisoned trials."""
    rng = np.random.default_rng(seed)
    whole = gather(None, bank)
    held_out, known = whole.only(lambda job: is_held_out(job.base)), whole.only(lambda job: not is_held_out(job.base))
    clean = _error(known.trials, known, held_out)
    trials = list(known.trials)
    for i in rng.choice(len(trials), round(POISONED * len(trials)), replace=False):
        trials[i] = _POISONS[int(rng.integers(len(_POISONS)))](trials[i], rng)
    found = LearnedPrior.fit(trials, known.jobs)
    error = summary(score_prior(found, held_out))["mdape"]
    return {"seed": seed, "clean": clean, "poisoned": error, "ratio": error / clean, "flagged": len(found.flagged)}


def _error(trials: Sequence[Trial], known: Lessons, held_out: Lessons) -> float:
    scores: list[JobScore] = score_prior(LearnedPrior.fit(trials, known.jobs), held_out)
    return summary(scores)["mdape"]


_POISONS: list[Callable[[Trial, np.random.Generator], Trial]] = [
    lambda t, rng: t.model_copy(update={"throughput": (t.throughput or 0.0) * 10 ** rng.uniform(-1, 3)}),
    lambda t, rng: t.model_copy(update={"throughput": None}),
    lambda t, rng: t.model_copy(update={"worker_cpu": 1000 * (t.worker_cpu or 1.0), "ps_cpu": 1000 * (t.ps_cpu or 1)}),
    lambda t, rng: t.model_copy(update={"batch_size": 1000 * (t.batch_size or 1)}),
]
"""A factor, nothing (what a store makes of NaN), cores in thousandths, batch sizes in thousands."""


def main() -> None:
    bank = load_bank()
    seconds = retraining_seconds(bank)
    families = sorted({job.job.model.family for job in bank.jobs.values()})
    fresh = [new_family(bank, family, seed) for family in families for seed in SEEDS]
    for row in fresh:
        print("  ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{value}" for key, value in row.items()))
    poison = [poisoned(bank, seed) for seed in SEEDS]
    for one in poison:
        print("  ".join(f"{key} {value:.3f}" for key, value in one.items()))
    figures = {
        "retrain_10k_s": seconds,
        "new_family_error_ratio": float(np.mean([row["ratio"] for row in fresh])),
        "worst_other_family_ratio": max(float(row["worst_other"]) for row in fresh),
        "poisoned_error_ratio": float(np.mean([row["ratio"] for row in poison])),
        "worst_poisoned_error_ratio": max(row["ratio"] for row in poison),
        "champion_error_on_the_new_family": float(np.mean([row["champion"] for row in fresh])),
        "challenger_error_on_it": float(np.mean([row["challenger"] for row in fresh])),
    }
    finish("retraining", figures, TARGETS, {"new_family": fresh, "poisoned": poison})


if __name__ == "__main__":
    main()
