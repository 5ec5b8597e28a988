"""The error of a prior that was learned from other jobs: `make bench NAME=prior`.

Jobs are left out with all variations of their base shape, then with their whole family. The sealed base shapes of
`benchmarks.sealed` were measured, and looked at, after everything was tuned. They are predicted from the whole bank,
corrected for the speed of the host on that day by what three jobs of the bank did then. Four base shapes of the bank
were sealed before them (`held_out`); later tuning has seen these. Jobs that the prior refuses, because they are unlike
all others, count as refused and not in its errors. In `regret_with_ties`, in the details, a choice that the trials
cannot tell from the best one has no regret. HELD_OUT=0 leaves out all that was ever sealed.

Zero-shot figures are computed on the bank: the truth of an allocation is the mean of its trials at the host's usual
speed. Few-shot figures are computed on the grids that the planner is evaluated on (`benchmarks/tables`, without those
behind links), which were measured on other days. They are the regret of the pick after two trials with the prior, and
after eight trials without. This prior contains no base shape similar to the grid's job.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks._measured import TABLES, on_all_cores, own_tables
from benchmarks._prior_rivals import RIVALS as ALL_RIVALS
from benchmarks._replays import score_planner
from benchmarks._report import QUICK, SMOKE, choose, finish
from benchmarks.sealed import sealed_jobs
from sizewright.datasets.trial_bank.files import Bank, load_bank
from sizewright.datasets.trial_bank.noise import median_speed_factors, repeat_noise
from sizewright.datasets.trial_bank.shapes import HELD_OUT, BankJob
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.factory import make_predictor
from sizewright.models.prior import LearnedPrior
from sizewright.profiler import TrialPlanner
from sizewright.retraining.evaluation import MeasuredRates, measured_rates, regret_and_rank
from sizewright.retraining.lessons import gather
from sizewright.spec import Job

Floats = NDArray[np.float64]

BANK = os.environ.get("BANK")
SEALED = Path(__file__).parent / "sealed_trials"
WITH_SEALED = os.environ.get("HELD_OUT") != "0" and not QUICK
LINKED = ("network", "faster-network")
FEW, MANY = 2, 8
SEEDS = range(choose(8, 2, 1))
RIVALS = {
    name: ALL_RIVALS[name] for name in choose(tuple(ALL_RIVALS), tuple(ALL_RIVALS), ("learned", "workers × cores"))
}
TARGETS = {
    "zero_shot_mdape": "≤ 0.105",
    "zero_shot_regret": "≤ 0.05",
    "rank_correlation": "≥ rank_correlation_cores + a third of what is missing to 1",
    "family_mdape": "≤ 0.25",
    "family_regret": "≤ 0.12",
    "sealed_mdape": "≤ 0.12",
    "sealed_regret": "≤ 0.08",
    "family_coverage": "0.85 to 0.95",
    "few_shot_2_regret": "≤ plain_8_regret",
    "train_10k_s": "≤ 30",
    "predict_100k_s": "≤ 0.5",
    "load_s": "≤ 0.3",
}


class Split(NamedTuple):
    """Base shapes that the prior learns from, and those that it is asked about."""

    kind: str
    known: tuple[str, ...]
    asked: tuple[str, ...]


def splits(bank: Bank) -> list[Split]:
    family = {b.base: b.job.model.family for b in bank.jobs.values()}
    open_bases = tuple(base for base in family if base not in HELD_OUT)
    splits = [Split("base", tuple(b for b in open_bases if b != base), (base,)) for base in open_bases]
    for one in dict.fromkeys(family.values()):
        asked = tuple(base for base in open_bases if family[base] == one)
        splits.append(Split("family", tuple(base for base in open_bases if base not in asked), asked))
    if SMOKE:
        return [next(split for split in splits if split.kind == kind) for kind in ("base", "family")]
    if WITH_SEALED:
        splits.append(Split("held_out", open_bases, tuple(b for b in HELD_OUT if b in family)))
        splits.append(Split("sealed", tuple(family), tuple(job.base for job in sealed_jobs())))
    return splits


class JobTruth(NamedTuple):
    """A job, and its measured samples/s at the usual speed of the bank's host."""

    job: BankJob
    allocations: list[Trial]
    rates: Floats
    """Means (n,) by allocation."""
    sd: Floats
    """Standard deviations (n,) of their logarithms."""
    trials: list[Trial]
    trial_rates: Floats
    """Of each trial (m,)."""


def truths(split: Split, bank: Bank) -> list[JobTruth]:
    """Return the jobs that a split asks about."""
    factor = 1.0
    measured, noise = measured_rates(gather(None, bank)), repeat_noise(bank.trials)
    if split.kind == "sealed":
        in_bank, bank = measured, load_bank(SEALED)
        measured, noise = measured_rates(gather(None, bank)), repeat_noise(bank.trials)
        factor = host_factor(in_bank, measured)
    speeds = median_speed_factors(bank.trials, noise.exponent)
    found = []
    for key, job in _of(bank, split.asked).items():
        allocations, rates, counts = measured[key]
        mine = [(t, f) for t, f in zip(bank.trials, speeds, strict=True) if t.job_hash == key and t.usable]
        trial_rates = np.array([(t.throughput or 0.0) * f for t, f in mine])
        sd = noise.at_usual_speed / np.sqrt(counts)
        found.append(JobTruth(job, allocations, rates * factor, sd, [t for t, _ in mine], trial_rates * factor))
    return found


def host_factor(before: Mapping[str, MeasuredRates], now: Mapping[str, MeasuredRates]) -> float:
    """Return how much faster the host was before, from the allocations that were measured both times."""
    logs = []
    for key in before.keys() & now.keys():
        earlier = {_allocation(t): rate for t, rate in zip(before[key].first_trials, before[key].rates, strict=True)}
        later = {_allocation(t): rate for t, rate in zip(now[key].first_trials, now[key].rates, strict=True)}
        logs += [np.log(earlier[each] / later[each]) for each in earlier.keys() & later.keys()]
    assert logs, "no allocation was measured both times"
    return float(np.exp(np.mean(logs)))


def _allocation(trial: Trial) -> tuple[object, ...]:
    return trial.workers, trial.ps, trial.worker_cpu, trial.ps_cpu, trial.batch_size, trial.table_scale


def predict_jobs(split: Split, rival: str) -> list[dict[str, Any]]:
    """Return one row per job: errors, regret and rank correlation of one predictor."""
    bank = load_bank(BANK)
    known = _of(bank, split.known)
    predict = RIVALS[rival]([t for t in bank.trials if t.job_hash in known], known)
    rows = []
    for truth in truths(split, bank):
        job = truth.job
        row: dict[str, Any] = {"kind": split.kind, "rival": rival, "base": job.base, "job": job.job.name}
        try:
            rates = np.exp(predict(job, truth.allocations))
        except NotEnoughDataError as error:
            rows.append(row | {"refused": error.message})
            continue
        rows.append(row | score(truth, rates))
    return rows


def coverage(split: Split) -> list[dict[str, Any]]:
    """Return one row per job that is not refused: the share of its trials in the 90 % interval."""
    bank = load_bank(BANK)
    known = _of(bank, split.known)
    prior = LearnedPrior.fit([t for t in bank.trials if t.job_hash in known], known)
    rows = []
    for truth in truths(split, bank):
        job = truth.job
        try:
            curve = prior.curve(job.job, job.table_scale)
        except NotEnoughDataError:
            continue
        residuals = np.log(truth.trial_rates) - curve.log_rates(truth.trials)
        held = float(np.mean(np.abs(residuals) <= 1.645 * curve.sd(truth.trials)))
        rows.append({"kind": split.kind, "job": job.job.name, "held": held, "distance": curve.effect.distance})
    return rows


def score(truth: JobTruth, rates: Floats) -> dict[str, Any]:
    """Score predicted rates (n,) against the true ones."""
    regret, rank = regret_and_rank(truth.allocations, truth.rates, np.log(rates))
    tied, _ = regret_and_rank(truth.allocations, truth.rates, np.log(rates), truth.sd)
    errors = list(np.abs(rates / truth.rates - 1))
    return {"errors": errors, "regret": regret, "regret_with_ties": tied, "rank": rank}


def few_shot(table_number: int, seed: int) -> list[dict[str, Any]]:
    """Return regrets of picks on one grid, after two and eight trials, with the prior and without."""
    table = unlinked()[table_number]
    job = Job.model_validate(json.loads((TABLES / f"{table.name}.json").read_text(encoding="utf-8"))["job"])
    similar_bases = [b.base for b in load_bank(BANK).jobs.values() if _similar(b.job, job)]
    curve = _prior_without(frozenset((*similar_bases, *HELD_OUT))).curve(job)

    def with_prior(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> TrialPlanner:
        return TrialPlanner(
            candidates,
            objective,
            seed=seed,
            max_trials=trials,
            predictor=make_predictor(curve, min_allocations=1, seed=seed),
        )

    def plain(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> TrialPlanner:
        return TrialPlanner(candidates, objective, seed=seed, max_trials=trials)

    rows = []
    for name, make, trials in (("prior", with_prior, FEW), ("plain", plain, FEW), ("prior", with_prior, MANY),
                               ("plain", plain, MANY)):  # fmt: skip
        for row in score_planner(make, table, [seed], trials):
            rows.append({"way": name, "most": trials} | {k: row[k] for k in ("table", "scoring", "seed", "regret")})
    return rows


_PRIORS: dict[frozenset[str], LearnedPrior] = {}


def _prior_without(bases: frozenset[str]) -> LearnedPrior:
    if bases not in _PRIORS:
        bank = load_bank(BANK)
        known = {key: job for key, job in bank.jobs.items() if job.base not in bases}
        _PRIORS[bases] = LearnedPrior.fit([t for t in bank.trials if t.job_hash in known], known)
    return _PRIORS[bases]


def _similar(a: Job, b: Job) -> bool:
    """Return whether two jobs have the same family and number of tables, as variations of one base shape have."""
    return (a.model.family, a.model.tables.count) == (b.model.family, b.model.tables.count)


def unlinked() -> list[Any]:
    tables = [table for table in own_tables() if table.name not in LINKED]
    return tables[: choose(len(tables), len(tables), 1)]


def speeds(bank: Bank) -> dict[str, float]:
    """Return the seconds to learn from 10,000 trials, to predict 100,000 allocations, and to load the prior."""
    count = choose(10_000, 10_000, len(bank.trials))
    many = (bank.trials * (count // len(bank.trials) + 1))[:count]
    began = time.perf_counter()
    prior = LearnedPrior.fit(many, bank.jobs)
    train_s = time.perf_counter() - began
    axes = itertools.product(range(1, 51), range(1, 21), np.linspace(0.1, 2, 10), np.linspace(0.1, 2, 10))
    frame = pd.DataFrame(axes, columns=["workers", "ps", "worker_cpu", "ps_cpu"])
    curve = prior.curve(next(iter(bank.jobs.values())).job)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        curve.log_rates(frame)
        curve.sd(frame)
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    LearnedPrior.load()
    loaded_s = time.perf_counter() - began
    return {"train_10k_s": train_s, "predict_100k_s": float(np.median(seconds)), "load_s": loaded_s}


def summary(rows: pd.DataFrame, kind: str, rival: str = "learned") -> dict[str, float]:
    of = rows[(rows.kind == kind) & (rows.rival == rival)]
    refused = rows[(rows.kind == kind) & rows.get("refused", pd.Series(index=rows.index)).notna()].job
    accepted = of[~of.job.isin(refused)]  # the same jobs for every rival
    return {
        "mdape": float(np.median(list(itertools.chain(*accepted.errors)))) if len(accepted) else float("nan"),
        "regret": float(accepted.regret.mean()),
        "regret_with_ties": float(accepted.regret_with_ties.mean()),
        "rank": float(accepted["rank"].mean()),
        "refused": len(of) - len(accepted),
    }


def main() -> None:
    bank = load_bank(BANK)
    todo = splits(bank)
    work = [(split, rival) for split in todo for rival in RIVALS]
    rows = pd.DataFrame(itertools.chain(*on_all_cores(predict_jobs, *zip(*work, strict=True))))
    rows["refused"] = rows.get("refused")  # the column exists even if no job is refused
    held = pd.DataFrame(itertools.chain(*on_all_cores(coverage, todo)))
    kinds = list(dict.fromkeys(split.kind for split in todo))
    compared = {kind: {rival: summary(rows, kind, rival) for rival in RIVALS} for kind in kinds}
    for kind, table in compared.items():
        print(f"\n{kind}\n{pd.DataFrame(table).T.round(3).to_string()}")
    per_job = rows[rows.rival == "learned"].assign(mdape=lambda r: r.errors.map(_median))
    print(per_job[["kind", "job", "mdape", "regret", "rank", "refused"]].round(3).to_string())
    replays = [(number, seed) for number in range(len(unlinked())) for seed in SEEDS]
    few = pd.DataFrame(itertools.chain(*on_all_cores(few_shot, *zip(*replays, strict=True))))
    shown = few.pivot_table(index=["table"], columns=["scoring", "way", "most"], values="regret", aggfunc="mean")
    print(shown.round(3).to_string())
    mean = few.groupby(["scoring", "way", "most"]).regret.mean()
    base, family = compared["base"]["learned"], compared["family"]["learned"]
    sealed, held_out = (compared.get(kind, {}).get("learned", {}) for kind in ("sealed", "held_out"))
    figures = {
        "zero_shot_mdape": base["mdape"],
        "zero_shot_regret": base["regret"],
        "rank_correlation": base["rank"],
        "rank_correlation_cores": compared["base"]["workers × cores"]["rank"],
        "family_mdape": family["mdape"],
        "family_regret": family["regret"],
        "sealed_mdape": sealed.get("mdape", float("nan")),
        "sealed_regret": sealed.get("regret", float("nan")),
        "held_out_mdape": held_out.get("mdape", float("nan")),
        "held_out_regret": held_out.get("regret", float("nan")),
        "few_shot_2_regret": mean["balanced", "prior", FEW],
        "plain_8_regret": mean["balanced", "plain", MANY],
        **speeds(bank),
        **{f"{kind}_coverage": float(held[held.kind == kind].held.mean()) for kind in kinds},
        **{f"{kind}_refused": compared[kind]["learned"]["refused"] for kind in kinds},
    }
    details = {
        "repeat_noise": repeat_noise(bank.trials)._asdict(),
        "rivals": compared,
        "refused": sorted({str(text) for text in rows[rows.rival == "learned"].get("refused", pd.Series()).dropna()}),
        "few_shot": mean.round(4).reset_index().to_dict("records"),
        "few_shot_tables": {str(k): round(v, 4) for k, v in shown["balanced"]["prior"][FEW].items()},
        "sealed": [job.base for job in sealed_jobs()] if WITH_SEALED else [],
        "jobs": json.loads(per_job[["kind", "job", "mdape", "regret", "rank"]].round(4).to_json(orient="records")),
    }
    finish("prior", figures, TARGETS, details, keep=WITH_SEALED)


def _median(errors: Any) -> float:
    return float(np.median(errors)) if isinstance(errors, list) else float("nan")


def _of(bank: Bank, bases: Sequence[str]) -> Mapping[str, BankJob]:
    return {key: job for key, job in bank.jobs.items() if job.base in bases}


if __name__ == "__main__":
    main()
