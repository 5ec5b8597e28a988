"""One retraining: gather, learn, judge on jobs that were left out, log, register, and promote if it is better."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from typing_extensions import Self

from sizewright.datasets.bank.files import Bank
from sizewright.datasets.store import TrialStore
from sizewright.errors import InputError, NotEnoughDataError, OutdatedPriorError
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.evaluation import score_prior
from sizewright.retraining.gate import Limits, Verdict, judge
from sizewright.retraining.learning import Learned, learn, learn_twin
from sizewright.retraining.lessons import Lessons, gather
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

    def of(self, version: Version) -> Self:
        """The same, once it is registered."""
        return self.model_copy(update={"version": version.number, "run_id": version.run_id})


def retrain(
    store: TrialStore,
    registry: Registry | None,
    bank: Bank | None,
    *,
    limits: Limits = Limits(),  # noqa: B008
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Retraining:
    """Learn from the store's trials and runs and a bank's, and promote what is better than the champion.

    In a dry run, or without a `registry`, nothing is logged or registered. Where there is no champion, or none that
    this version can read, it is judged against the prior of the bank.
    Raises NotEnoughDataError for a store with nothing to learn from, RegistryError where the registry fails on the
    way, which then holds at most a challenger more; StoreError while another retraining uses this store.
    """
    with store.exclusively(ONE_AT_A_TIME):
        lessons = gather(store, bank)
        _check(store, lessons, bank)
        champion = registry.champion() if registry else None
        progress(f"learning from {len(lessons.trials)} trials of {len(lessons.jobs)} jobs")
        learned = learn(lessons)
        verdict = _judged(learned, _rival(registry, champion, bank), limits)
        told = Retraining(
            promoted=False, reason=verdict.reason, trials=len(lessons.trials), jobs=len(lessons.jobs),
            passed_over=lessons.passed_over, flagged=learned.prior.flagged, data_sha256=lessons.digest,
            metrics=learned.metrics(),
        )  # fmt: skip
        if registry is None or dry_run:
            return told
        progress(f"logging to {registry.uri}")
        version = _registered(told, learned, registry, champion, limits)
        return _promoted(told, version, registry, champion) if verdict.promote else told.of(version)


def _check(store: TrialStore, lessons: Lessons, bank: Bank | None) -> None:
    if len(lessons.trials) > (len(bank.trials) if bank else 0):
        return
    passed = "; ".join(f"{count} {why}" for why, count in lessons.passed_over.items())
    raise NotEnoughDataError(
        f"{store.name} holds nothing to learn from" + (f" (passed over: {passed})." if passed else "."), 1, "trial"
    )


def _rival(registry: Registry | None, champion: Version | None, bank: Bank | None) -> LearnedPrior | None:
    """What the challenger has to beat: the champion, else the prior of the bank; both without the held-out jobs."""
    if registry and champion:
        with suppress(OutdatedPriorError):
            return registry.load(champion, TWIN)
    return learn_twin(Lessons(bank.trials, bank.jobs, {})) if bank else None


def _judged(learned: Learned, rival: LearnedPrior | None, limits: Limits) -> Verdict:
    if rival is None:
        return Verdict(True, "There was no champion to compare it with.")
    return judge(learned.scores["held-out"], score_prior(rival, learned.held_out), limits)


def _registered(
    told: Retraining, learned: Learned, registry: Registry, champion: Version | None, limits: Limits
) -> Version:
    from sizewright.retraining.tracking import log_run, model_source

    parameters = limits._asdict() | {
        "trials": told.trials, "jobs": told.jobs, "data_sha256": told.data_sha256,
        "champion": champion.number if champion else "none",
    }  # fmt: skip
    run_id = log_run(registry, learned, parameters)
    tags = {f"sha256.{name}": digest(p.to_json()) for name, p in ((PRIOR, learned.prior), (TWIN, learned.twin))}
    tags |= {"data_sha256": told.data_sha256, "trials": str(told.trials), "reason": told.reason[:4000]}
    tags |= {f"metric.{name}": f"{value:.5g}" for name, value in told.metrics.items()}
    return registry.add(run_id, model_source(run_id), tags)


def _promoted(told: Retraining, version: Version, registry: Registry, champion: Version | None) -> Retraining:
    """Unless another became the champion meanwhile, which nobody compared it with."""
    now = registry.champion()
    if (now.number if now else None) != (champion.number if champion else None):
        reason = "Another version became the champion while this one was judged; retrain again."
        registry.tag(version, "reason", reason)
        return told.of(version).model_copy(update={"reason": reason})
    registry.promote(version)
    return told.of(version).model_copy(update={"promoted": True})


def check_apart(store: TrialStore, tracking_uri: str) -> None:
    """Raises InputError where MLflow would write into the store: both have tables of the same names."""
    if tracking_uri.startswith("sqlite:///") and tracking_uri.removeprefix("sqlite:///") == store.name:
        raise InputError(
            f"{tracking_uri} is the trial store, and MLflow needs a database of its own.",
            "Name another: --tracking-uri sqlite:///mlflow.db",
        )
