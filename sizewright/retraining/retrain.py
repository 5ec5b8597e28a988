"""One retraining: gather, learn, judge on jobs that were left out, log, register, and promote if it is better."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sizewright.datasets.bank.files import Bank
from sizewright.datasets.store import TrialStore
from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models.prior import LearnedPrior
from sizewright.retraining import evaluation, gate
from sizewright.retraining.evaluation import JobScore
from sizewright.retraining.gate import Verdict
from sizewright.retraining.lessons import Lessons, gather, is_held_out
from sizewright.retraining.registry import PRIOR, TWIN, Registry, Version, digest
from sizewright.spec._base import Record

ONE_AT_A_TIME = "retraining"


class Retraining(Record):
    """What came of it."""

    promoted: bool
    reason: str
    trials: int
    jobs: int
    passed_over: dict[str, int]
    flagged: tuple[str, ...]
    data_sha256: str
    metrics: dict[str, float]
    version: int | None = None
    run_id: str | None = None


class _Learned(NamedTuple):
    prior: LearnedPrior
    twin: LearnedPrior
    scores: dict[str, list[JobScore]]


def retrain(
    store: TrialStore,
    registry: Registry | None,
    bank: Bank | None,
    *,
    dry_run: bool = False,
    margin: float = gate.MARGIN,
    worst_family: float = gate.WORST_FAMILY,
    progress: Callable[[str], None] = lambda _: None,
) -> Retraining:
    """Learn from the store's trials and runs and a bank's, and promote what is better than the champion.

    In a dry run, or without a `registry`, nothing is logged or registered. Where there is no champion it is judged
    against the prior of the bank.
    Raises NotEnoughDataError for a store with nothing to learn from, RegistryError where the registry fails on the
    way, which then holds at most a challenger more; StoreError while another retraining uses this store.
    """
    with store.exclusively(ONE_AT_A_TIME):
        lessons = gather(store, bank)
        _check(store, lessons, bank)
        champion = registry.champion() if registry else None
        progress(f"learning from {len(lessons.trials)} trials of {len(lessons.jobs)} jobs")
        learned = _learn(lessons)
        progress("judging against the champion" if champion else "judging against the bank's prior")
        verdict = _judged(learned, lessons, registry, champion, bank, margin, worst_family)
        metrics = _metrics(learned.scores)
        told = Retraining(
            promoted=False, reason=verdict.reason, trials=len(lessons.trials), jobs=len(lessons.jobs),
            passed_over=lessons.passed_over, flagged=learned.prior.flagged, data_sha256=lessons.digest,
            metrics=metrics,
        )  # fmt: skip
        if registry is None or dry_run:
            return told
        progress(f"logging to {registry.uri}")
        return _registered(told, registry, champion, learned, lessons, verdict, margin, worst_family)


def _check(store: TrialStore, lessons: Lessons, bank: Bank | None) -> None:
    if len(lessons.trials) > (len(bank.trials) if bank else 0):
        return
    passed = "; ".join(f"{count} {why}" for why, count in lessons.passed_over.items())
    raise NotEnoughDataError(
        f"{store.name} holds nothing to learn from" + (f" (passed over: {passed})." if passed else "."), 1, "trial"
    )


def _learn(lessons: Lessons) -> _Learned:
    """The priors, and how each way of leaving jobs out went."""
    prior = LearnedPrior.fit(lessons.trials, lessons.jobs)
    kept = lessons.only(lambda job: not is_held_out(job.base))
    twin = LearnedPrior.fit(kept.trials, kept.jobs)
    truth = evaluation.measured(lessons)
    scores = {by: _left_out(lessons, by, truth) for by in ("base", "family")}
    held_out = lessons.only(lambda job: is_held_out(job.base))
    return _Learned(prior, twin, scores | {"held-out": evaluation.score_prior(twin, held_out)})


def _left_out(lessons: Lessons, by: str, truth: dict[str, evaluation.Measured]) -> list[JobScore]:
    """Scores of all jobs whose group can be left out."""

    def group(key: str) -> str:
        job = lessons.jobs[key]
        return job.base if by == "base" else job.job.model.family

    folds = evaluation.folds_of(len({group(key) for key in lessons.jobs}))
    scores: list[JobScore] = []
    for fold in range(folds):
        with suppress(NotEnoughDataError):  # without this fold there is too little to learn from
            scores += evaluation.leave_out(lessons, group, fold, folds, truth)
    return scores


def _judged(
    learned: _Learned,
    lessons: Lessons,
    registry: Registry | None,
    champion: Version | None,
    bank: Bank | None,
    margin: float,
    worst_family: float,
) -> Verdict:
    """On the jobs of held-out base shapes, by the priors that have not seen those."""
    held_out = lessons.only(lambda job: is_held_out(job.base))
    if registry and champion:
        before = registry.load(champion, TWIN)
    elif bank is None:
        return Verdict(True, "There was no champion to compare it with.")
    else:
        known = Lessons(bank.trials, bank.jobs, {}).only(lambda job: not is_held_out(job.base))
        before = LearnedPrior.fit(known.trials, known.jobs)
    old = evaluation.score_prior(before, held_out)
    return gate.judge(learned.scores["held-out"], old, margin=margin, worst_family=worst_family)


def _registered(
    told: Retraining,
    registry: Registry,
    champion: Version | None,
    learned: _Learned,
    lessons: Lessons,
    verdict: Verdict,
    margin: float,
    worst_family: float,
) -> Retraining:
    from sizewright.retraining.tracking import Learned, log_run, model_source

    parameters = {
        "margin": margin, "worst_family": worst_family, "trials": told.trials, "jobs": told.jobs,
        "data_sha256": told.data_sha256, "champion": champion.number if champion else "the bank's",
    }  # fmt: skip
    logged = Learned(lessons, learned.prior, learned.twin, parameters, told.metrics, learned.scores)
    run_id = log_run(registry, logged)
    tags = {f"sha256.{name}": digest(p.to_json()) for name, p in ((PRIOR, learned.prior), (TWIN, learned.twin))}
    tags |= {"data_sha256": told.data_sha256, "trials": str(told.trials), "reason": verdict.reason[:4000]}
    tags |= {f"metric.{name}": f"{value:.5g}" for name, value in told.metrics.items()}
    version = registry.add(run_id, model_source(run_id), tags)
    promote, reason = verdict
    now = registry.champion()
    if promote and (now.number if now else None) != (champion.number if champion else None):
        promote, reason = False, "Another version became the champion while this one was judged; retrain again."
        registry.tag(version, "reason", reason)
    if promote:
        registry.promote(version)
    return told.model_copy(update={"promoted": promote, "reason": reason, "version": version.number, "run_id": run_id})


def _metrics(scores: dict[str, list[JobScore]]) -> dict[str, float]:
    found = {}
    for name, told in scores.items():
        how = {"base": "base_out", "family": "family_out", "held-out": "held_out"}[name]
        for metric, value in evaluation.summary(told).items():
            found[f"{how}_{metric}"] = value
        for family, values in evaluation.by_family(told).items():
            found[f"{how}_mdape_{family}"] = values["mdape"]
    return {name: value for name, value in found.items() if value == value}


def check_apart(store: TrialStore, tracking_uri: str) -> None:
    """Raises InputError where MLflow would write into the store: both have tables of the same names."""
    if tracking_uri.startswith("sqlite:///") and tracking_uri.removeprefix("sqlite:///") == store.name:
        raise InputError(
            f"{tracking_uri} is the trial store, and MLflow needs a database of its own.",
            "Name another: --tracking-uri sqlite:///mlflow.db",
        )
