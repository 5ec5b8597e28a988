"""The time and gain of retraining: `make bench NAME=retraining`.

The time is that of 10,000 trials (those of the bank, many times, with the noise of repeats), with evaluation and
logging to an MLflow database. For a new family, the champion's bank lacks the family, and the challenger gets 200 of
its trials (or all, if there are fewer) of base shapes that are not held out. Errors are medians on the jobs of held-out
base shapes, the challenger's over the champion's. The mechanistic model, which all families share, already fits the
families of the bank well, so that little error remains to be halved. `slower_…` therefore gives the same for families
whose steps take 2.5 times as long as measured, as those with code of their own might. Poison replaces a tenth of the
trials (× 0.1 to × 1000, NaN, cores in thousandths, batch sizes × 1000). Its errors are those of clean held-out jobs,
over those of a prior from clean trials, and over those of a prior without the poisoned trials.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._report import choose, finish
from sizewright.datasets.trial_bank.files import Bank, load_bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.evaluation import JobScore, measured_rates, score_prior
from sizewright.retraining.lessons import Lessons, gather
from sizewright.retraining.registry import Registry
from sizewright.retraining.retrain import retrain

TRIALS = choose(10_000, 1_000, 100)
NEW_TRIALS = 200
POISONED = 0.1
TURNS = choose(6, 1, 1)
SLOWER = 2.5
TARGETS = {
    "retrain_10k_s": "≤ 120",
    "new_family_error_ratio": "≤ 0.5",
    "slower_new_family_error_ratio": "≤ 0.2",
    "worst_other_family_ratio": "≤ 1.05",
    "poisoned_error_ratio": "≤ 1.1",
}


def retraining_seconds(bank: Bank) -> float:
    """Return the seconds of one retraining, registry and store included."""
    rng = np.random.default_rng(0)
    usable = [trial for trial in bank.trials if trial.usable]
    picked = [usable[i] for i in rng.integers(0, len(usable), TRIALS)]
    noisy = [
        t.model_copy(update={"throughput": float((t.throughput or 0.0) * np.exp(0.08 * rng.standard_normal()))})
        for t in picked
    ]
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(f"sqlite:///{folder}/mlflow.db")
        with filled(Path(folder), noisy, bank) as store:
            began = time.perf_counter()
            retrain(store, registry, None)
            return time.perf_counter() - began


def filled(folder: Path, trials: Sequence[Trial], bank: Bank) -> TrialStore:
    """Return a store with trials and their jobs."""
    store = TrialStore(folder / "trials.db")
    for job in bank.jobs.values():
        store.history.add_job(job.job)
    for trial in trials:
        store.add(trial)
    return store


def new_families(bank: Bank, slower: float = 1.0) -> dict[str, float]:
    """Return errors on held-out jobs. `NEW.JUDGED` is the error of the challenger over that of the champion.

    One base shape of each family is held out at a time, until each one was. Steps of the new family take `slower` times
    as long as measured.
    """
    all_lessons = gather(None, bank)
    families = sorted({job.job.model.family for job in all_lessons.jobs.values()})
    families = families[: choose(len(families), len(families), 2)]
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for turn, new in itertools.product(range(TURNS), families):
        lessons = all_lessons._replace(trials=[_slower(t, all_lessons, new, slower) for t in all_lessons.trials])
        for who, score in _taught(lessons, new, turn):
            errors[who, new, score.family].extend(score.errors)
    ratios = {}
    for new, judged in itertools.product(families, families):
        before, after = (float(np.median(errors[who, new, judged])) for who in ("champion", "challenger"))
        ratios[f"{new}.{judged}"] = after / before
        if new == judged:
            ratios |= {f"{new} before": before, f"{new} after": after}
    return ratios


def _split(lessons: Lessons, turn: int) -> tuple[Lessons, Lessons]:
    """Return the lessons of one base shape of each family, and all others."""
    bases: dict[str, set[str]] = defaultdict(set)
    for job in lessons.jobs.values():
        bases[job.job.model.family].add(job.base)
    chosen = {sorted(mine)[turn % len(mine)] for mine in bases.values()}
    return lessons.only(lambda job: job.base in chosen), lessons.only(lambda job: job.base not in chosen)


def _slower(trial: Trial, lessons: Lessons, family: str, times: float) -> Trial:
    """Return the trial with a lower throughput. CPU use stays the same, because a worker computes all the time."""
    job = lessons.jobs.get(str(trial.job_hash))
    if times == 1 or job is None or job.job.model.family != family or trial.throughput is None:
        return trial
    return trial.model_copy(update={"throughput": trial.throughput / times})


def _taught(lessons: Lessons, new: str, turn: int) -> Iterator[tuple[str, JobScore]]:
    """Yield scores on held-out jobs of a champion without a family and of a challenger with its trials."""
    judged, known = _split(lessons, turn)
    old = known.only(lambda job: job.job.model.family != new)
    fresh = known.only(lambda job: job.job.model.family == new)
    picked = np.random.default_rng(turn).permutation(len(fresh.trials))[:NEW_TRIALS]
    truth = measured_rates(lessons)
    training_sets = {"champion": old.trials, "challenger": [*old.trials, *(fresh.trials[i] for i in picked)]}
    for who, trials in training_sets.items():
        for score in score_prior(LearnedPrior.fit(trials, known.jobs), judged, truth):
            yield who, score


def summarize(ratios: dict[str, float], prefix: str = "") -> dict[str, float]:
    """Return the mean ratio of new families, and the mean and the worst ratio of the others."""
    pairs = {tuple(name.split(".")): ratio for name, ratio in ratios.items() if "." in name}
    new_families = [ratio for (new, judged), ratio in pairs.items() if new == judged]
    others = [ratio for (new, judged), ratio in pairs.items() if new != judged]
    return {
        f"{prefix}new_family_error_ratio": float(np.mean(new_families)),
        f"{prefix}worst_other_family_ratio": max(others),
        f"{prefix}mean_other_family_ratio": float(np.mean(others)),
    }


def poisoned(bank: Bank) -> dict[str, Any]:
    """Return errors on clean held-out jobs of priors from clean trials, without the poisoned trials, and with them."""
    all_lessons = gather(None, bank)
    truth = measured_rates(all_lessons)
    errors: dict[str, list[list[float]]] = defaultdict(list)
    flagged = []
    for turn in range(TURNS):
        judged, known = _split(all_lessons, turn)
        rng = np.random.default_rng(turn)
        hit = set(rng.choice(len(known.trials), round(POISONED * len(known.trials)), replace=False).tolist())
        training_sets = {
            "clean": known.trials,
            "missing": [t for i, t in enumerate(known.trials) if i not in hit],
            "poisoned": [_poison(t, rng) if i in hit else t for i, t in enumerate(known.trials)],
        }
        for name, trials in training_sets.items():
            prior = LearnedPrior.fit(trials, known.jobs)
            errors[name].append([e for score in score_prior(prior, judged, truth) for e in score.errors])
        flagged.append(len(prior.flagged))
    each = {name: [float(np.median(one)) for one in runs] for name, runs in errors.items()}
    pooled = {name: float(np.median(list(itertools.chain(*runs)))) for name, runs in errors.items()}
    return {"pooled": pooled, "each": each, "flagged": flagged, "hit": len(hit)}


def _poison(trial: Trial, rng: np.random.Generator) -> Trial:
    return _POISONS[int(rng.integers(len(_POISONS)))](trial, rng)


_POISONS: list[Callable[[Trial, np.random.Generator], Trial]] = [
    lambda t, rng: t.model_copy(update={"throughput": (t.throughput or 0.0) * 10 ** rng.uniform(-1, 3)}),
    lambda t, rng: t.model_copy(update={"throughput": None}),
    lambda t, rng: t.model_copy(update={"worker_cpu": 1000 * (t.worker_cpu or 1.0), "ps_cpu": 1000 * (t.ps_cpu or 1)}),
    lambda t, rng: t.model_copy(update={"batch_size": 1000 * (t.batch_size or 1)}),
]
"""A random factor, no throughput (as a store makes of NaN), cores in thousandths, and batch sizes × 1000."""


def main() -> None:
    bank = load_bank()
    bank = bank._replace(trials=bank.trials[:: choose(1, 1, 6)])
    seconds = retraining_seconds(bank)
    fresh, slower = new_families(bank), new_families(bank, SLOWER)
    for name in fresh:
        print(f"{name:24} {fresh[name]:8.3f}   when slower {slower[name]:8.3f}")
    poison = poisoned(bank)
    print(*(f"{key}: {value}" for key, value in poison.items()), sep="\n")
    errors = poison["pooled"]
    figures = {
        "retrain_10k_s": seconds,
        **summarize(fresh),
        **summarize(slower, "slower_"),
        "poisoned_error_ratio": errors["poisoned"] / errors["clean"],
        "worst_poisoned_error_ratio": float(np.max(np.array(poison["each"]["poisoned"]) / poison["each"]["clean"])),
        "poisoned_over_missing_error_ratio": errors["poisoned"] / errors["missing"],
    }
    finish("retraining", figures, TARGETS, {"new_family": fresh, "slower_family": slower, "poisoned": poison})


if __name__ == "__main__":
    main()
