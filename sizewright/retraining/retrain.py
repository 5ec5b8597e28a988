"""One retraining: gather, learn, judge on jobs that were left out, log, register, and promote if it is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version as package_version
from typing import NamedTuple

from typing_extensions import Self

from sizewright.datasets.bank.files import Bank, load_bank
from sizewright.datasets.store import TrialStore
from sizewright.errors import NotEnoughDataError, UnusableVersionError
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.evaluation import JobScore, score_prior
from sizewright.retraining.gate import Limits, Verdict, judge
from sizewright.retraining.learning import Learned, learn, learn_twin
from sizewright.retraining.lessons import Lessons, gather, to_judge
from sizewright.retraining.registry import PRIOR, REPLACED, TWIN, Registry, Version, digest
from sizewright.spec._base import Record
from sizewright.spec.units import format_count

ONE_AT_A_TIME = "retraining"


class Retraining(Record):
    """What came of it: from how many trials of how many jobs was learned, and whether that is used now."""

    promoted: bool
    reason: str
    trials: int
    jobs: int
    passed_over: dict[str, int]
    """Trials and runs that were not learned from, by reason."""
    flagged: tuple[str, ...]
    """Trials that contradict the others."""
    data_sha256: str
    metrics: dict[str, float]
    """As logged: errors, regret, rank and coverage on each part of what is held out."""
    version: int | None = None
    """Its number in the registry, if it was registered."""
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

    In a dry run, or without a `registry`, nothing is logged or registered; nor where the newest version has learned
    from the same: it is judged again where champion or limits are others, or its promotion was broken off. Where there
    is no champion, or none that can be used, it is judged against the prior of the bank.
    Raises NotEnoughDataError for a store with nothing to learn from, RegistryError where the registry fails on the
    way, which then holds at most a challenger more; StoreError while another retraining uses this store.
    """
    with store.exclusively(ONE_AT_A_TIME):
        lessons = gather(store, bank)
        _check(store, lessons, bank)
        data_sha256 = lessons.digest
        champion = registry.champion() if registry else None
        terms = _terms(champion, limits)
        known = registry.newest() if registry and not dry_run else None
        if registry and known and known.tags.items() >= _source(data_sha256).items():
            if known == champion or REPLACED in known.tags or known.tags.items() >= terms.items():
                return _nothing_new(lessons, data_sha256, known)
            with suppress(UnusableVersionError):  # else all is learned anew
                return _judged_again(registry, known, champion, bank, lessons, limits)
        if registry and not dry_run:
            _check_log(registry)
        rival = _rival(registry, champion, bank)
        progress(
            f"learning from {format_count(len(lessons.trials), 'trial')} of {format_count(len(lessons.jobs), 'job')}"
        )
        learned = learn(lessons)
        verdict = _judged(learned.scores["held-out"], learned.held_out, learned.prior.noise_sd, rival, limits)
        told = Retraining(
            promoted=False, reason=verdict.reason, trials=len(lessons.trials), jobs=len(lessons.jobs),
            passed_over=lessons.passed_over, flagged=learned.prior.flagged, data_sha256=data_sha256,
            metrics=learned.metrics(),
        )  # fmt: skip
        if registry is None or dry_run:
            return told
        progress(f"logging to {registry.name}")
        version = _registered(told, learned, registry, champion, limits)
        return _settled(told, verdict, version, registry, champion, terms)


def _source(data_sha256: str) -> dict[str, str]:
    """Tags of what a version comes from: the same give the same prior."""
    return {"data_sha256": data_sha256, "sizewright": package_version("sizewright")}


def _terms(champion: Version | None, limits: Limits) -> dict[str, str]:
    """Tags of how a version was judged: by the same it would be judged the same."""
    return {"judged_against": str(champion.number) if champion else "bank"} | {
        name: f"{value:g}" for name, value in asdict(limits).items()
    }


def _nothing_new(lessons: Lessons, data_sha256: str, known: Version) -> Retraining:
    return Retraining(
        promoted=False, reason=f"Nothing new: version {known.number} has learned from the same trials and runs.",
        trials=len(lessons.trials), jobs=len(lessons.jobs), passed_over=lessons.passed_over, flagged=(),
        data_sha256=data_sha256, metrics={},
    )  # fmt: skip


def _judged_again(
    registry: Registry, known: Version, champion: Version | None, bank: Bank | None, lessons: Lessons, limits: Limits
) -> Retraining:
    """A version that has learned all there is, by another champion or other limits than it was judged by, or whose
    promotion was broken off."""
    twin, held_out = registry.load(known, TWIN), to_judge(lessons)
    scores = score_prior(twin, held_out)
    verdict = _judged(scores, held_out, twin.noise_sd, _rival(registry, champion, bank), limits)
    told = _nothing_new(lessons, lessons.digest, known).model_copy(update={"reason": verdict.reason})
    return _settled(told, verdict, known, registry, champion, _terms(champion, limits))


def _check(store: TrialStore, lessons: Lessons, bank: Bank | None) -> None:
    if len(lessons.trials) > (len(bank.trials) if bank else 0):
        return
    passed = "; ".join(f"{count} {why}" for why, count in lessons.passed_over.items())
    raise NotEnoughDataError(
        f"{store.name} holds nothing to learn from" + (f" (passed over: {passed})." if passed else "."), 1, "trial"
    )


def _check_log(registry: Registry) -> None:
    from sizewright.retraining.tracking import check_experiment

    check_experiment(registry)


class _Rival(NamedTuple):
    """What the challenger has to beat, without the held-out lessons; and what to say of it."""

    prior: LearnedPrior | None
    name: str
    told: str = ""


def _rival(registry: Registry | None, champion: Version | None, bank: Bank | None) -> _Rival:
    """The champion; where there is none, or none that can be used, the prior of the bank."""
    told = ""
    if registry and champion:
        try:
            return _Rival(registry.load(champion, TWIN), "the champion")
        except UnusableVersionError as error:
            told = f" It was compared with the bank's prior, since the champion cannot be used: {error.message}"
            bank = bank or load_bank()
    return _Rival(learn_twin(Lessons(bank.trials, bank.jobs, {})) if bank else None, "the bank's prior", told)


def _judged(scores: Sequence[JobScore], held_out: Lessons, noise_sd: float, rival: _Rival, limits: Limits) -> Verdict:
    if rival.prior is None:
        return Verdict(True, "There was no champion to compare it with.")
    verdict = judge(scores, score_prior(rival.prior, held_out), limits, noise_sd, rival.name)
    return verdict._replace(reason=verdict.reason + rival.told)


def _registered(
    told: Retraining, learned: Learned, registry: Registry, champion: Version | None, limits: Limits
) -> Version:
    from sizewright.retraining.tracking import log_run, model_source

    parameters = asdict(limits) | {
        "trials": told.trials, "jobs": told.jobs, "data_sha256": told.data_sha256,
        "champion": champion.number if champion else "none",
    }  # fmt: skip
    run_id = log_run(registry, learned, parameters)
    tags = {f"sha256.{name}": digest(p.to_json()) for name, p in ((PRIOR, learned.prior), (TWIN, learned.twin))}
    tags |= _source(told.data_sha256) | {"trials": str(told.trials), "reason": told.reason[:4000]}
    tags |= {f"metric.{name}": f"{value:.5g}" for name, value in told.metrics.items()}
    return registry.add(run_id, model_source(run_id), tags)


def _settled(
    told: Retraining,
    verdict: Verdict,
    version: Version,
    registry: Registry,
    champion: Version | None,
    terms: dict[str, str],
) -> Retraining:
    """Promote it, unless another became the champion meanwhile, which nobody compared it with; or tell why not."""
    if not verdict.promote:
        for name, value in (terms | {"reason": told.reason[:4000]}).items():
            registry.tag(version, name, value)
        return told.of(version)
    now = registry.champion()
    if (now.number if now else None) != (champion.number if champion else None):
        reason = "Another version became the champion while this one was judged; retrain again."
        registry.tag(version, "reason", reason)
        return told.of(version).model_copy(update={"reason": reason})
    registry.promote(version)
    return told.of(version).model_copy(update={"promoted": True})
