"""One retraining: gather data, learn, judge on held-out jobs, log, register, and promote a better prior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version as package_version
from typing import NamedTuple

from typing_extensions import Self

from sizewright.datasets.trial_bank.files import Bank, load_bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import NotEnoughDataError, UnusableVersionError
from sizewright.formatting import format_count
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.evaluation import JobScore, score_prior
from sizewright.retraining.gate import GateLimits, GateResult, judge
from sizewright.retraining.learning import Learned, learn, learn_twin
from sizewright.retraining.lessons import Lessons, gather, to_judge
from sizewright.retraining.registry import PRIOR, REPLACED, TWIN, Registry, Version, digest
from sizewright.spec._base import Record
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentences

ONE_AT_A_TIME = "retraining"


class Retraining(Record):
    """The result of a retraining: what it learned from, and whether the new prior is in use."""

    promoted: bool
    reason: str
    trials: int
    jobs: int
    passed_over: dict[str, int]
    """Trials and runs that were not learned from, by reason."""
    flagged: tuple[str, ...]
    """Trials that contradict the others, with the reason."""
    data_sha256: str
    metrics: dict[str, float]
    """As logged: errors, regret, rank and coverage on each set of held-out jobs."""
    version: int | None = None
    """Its number in the registry, if it was registered."""
    run_id: str | None = None
    details: tuple[Reason, ...] = ()
    """The reasons as kinds with their numbers."""

    def of(self, version: Version) -> Self:
        """Return the result of a registered version."""
        return self.model_copy(update={"version": version.number, "run_id": version.run_id})


def retrain(
    store: TrialStore,
    registry: Registry | None,
    bank: Bank | None,
    *,
    limits: GateLimits = GateLimits(),  # noqa: B008
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Retraining:
    """Learn a prior from the store's trials and runs and a bank, and promote it if it is better than the champion.

    In a dry run, or without a `registry`, nothing is logged or registered. Nor is it where the newest version has
    learned from the same data; that version is judged again if the champion or the limits have changed, or if its
    promotion was interrupted. Without a usable champion, the prior is judged against that of the bank.

    Raises NotEnoughDataError for a store with nothing to learn from, StoreError while another retraining uses this
    store, and RegistryError where the registry fails; it then holds at most one more challenger.
    """
    with store.exclusively(ONE_AT_A_TIME):
        lessons = gather(store, bank)
        _check_new_lessons(store, lessons, bank)
        data_sha256 = lessons.digest
        champion = registry.champion() if registry else None
        judgement = _judgement_tags(champion, limits)
        known = registry.newest() if registry and not dry_run else None
        if registry and known and known.tags.items() >= _data_tags(data_sha256).items():
            if known == champion or REPLACED in known.tags or known.tags.items() >= judgement.items():
                return _no_new_data(lessons, data_sha256, known)
            with suppress(UnusableVersionError):  # an unusable version is learned again
                return _judge_again(registry, known, champion, bank, lessons, limits)
        if registry and not dry_run:
            _check_experiment(registry)
        rival = _rival(registry, champion, bank)
        progress(
            f"learning from {format_count(len(lessons.trials), 'trial')} of {format_count(len(lessons.jobs), 'job')}"
        )
        learned = learn(lessons)
        noise_sd = learned.prior.corrected_noise_sd
        verdict = _judge_against(learned.scores["held-out"], learned.held_out, noise_sd, rival, limits)
        result = Retraining(
            promoted=False,
            reason=verdict.reason,
            details=verdict.reasons,
            trials=len(lessons.trials),
            jobs=len(lessons.jobs),
            passed_over=lessons.passed_over,
            flagged=learned.prior.flagged,
            data_sha256=data_sha256,
            metrics=learned.metrics(),
        )
        if registry is None or dry_run:
            return result
        progress(f"logging to {registry.name}")
        version = _register(result, learned, registry, champion, limits)
        return _promote_or_tag(result, verdict, version, registry, champion, judgement)


def _data_tags(data_sha256: str) -> dict[str, str]:
    """Return tags of the data and code of a version: equal tags mean an equal prior."""
    return {"data_sha256": data_sha256, "sizewright": package_version("sizewright")}


def _judgement_tags(champion: Version | None, limits: GateLimits) -> dict[str, str]:
    """Return tags of the judgement of a version: equal tags mean an equal judgement."""
    return {"judged_against": str(champion.number) if champion else "bank"} | {
        name: f"{value:g}" for name, value in asdict(limits).items()
    }


def _no_new_data(lessons: Lessons, data_sha256: str, known: Version) -> Retraining:
    nothing_new = Reason.of("nothing_new", version=known.number)
    return Retraining(
        promoted=False,
        reason=sentences((nothing_new,)),
        details=(nothing_new,),
        trials=len(lessons.trials),
        jobs=len(lessons.jobs),
        passed_over=lessons.passed_over,
        flagged=(),
        data_sha256=data_sha256,
        metrics={},
    )


def _judge_again(
    registry: Registry,
    known: Version,
    champion: Version | None,
    bank: Bank | None,
    lessons: Lessons,
    limits: GateLimits,
) -> Retraining:
    """Judge a version that has learned from the same data, by the current champion and limits."""
    twin, held_out = registry.load(known, TWIN), to_judge(lessons)
    scores = score_prior(twin, held_out)
    verdict = _judge_against(scores, held_out, twin.corrected_noise_sd, _rival(registry, champion, bank), limits)
    result = _with_reasons(_no_new_data(lessons, lessons.digest, known), *verdict.reasons)
    return _promote_or_tag(result, verdict, known, registry, champion, _judgement_tags(champion, limits))


def _with_reasons(result: Retraining, *reasons: Reason) -> Retraining:
    return result.model_copy(update={"reason": sentences(reasons), "details": reasons})


def _check_new_lessons(store: TrialStore, lessons: Lessons, bank: Bank | None) -> None:
    if len(lessons.trials) > (len(bank.trials) if bank else 0):
        return
    passed_over = "; ".join(f"{count} {reason}" for reason, count in lessons.passed_over.items())
    details = f" (passed over: {passed_over})" if passed_over else ""
    raise NotEnoughDataError(f"{store.name} holds nothing to learn from{details}.", 1, "trial")


def _check_experiment(registry: Registry) -> None:
    from sizewright.retraining.tracking import check_experiment

    check_experiment(registry)


class _Rival(NamedTuple):
    """The prior that the challenger has to beat, without the held-out lessons, and why it is not the champion."""

    prior: LearnedPrior | None
    name: str
    notes: tuple[Reason, ...] = ()


def _rival(registry: Registry | None, champion: Version | None, bank: Bank | None) -> _Rival:
    """Return the champion; without a usable champion, the prior of the bank."""
    notes: tuple[Reason, ...] = ()
    if registry and champion:
        try:
            return _Rival(registry.load(champion, TWIN), "the champion")
        except UnusableVersionError as error:
            notes = (Reason.of("champion_unusable", error=error.message),)
            bank = bank or load_bank()
    return _Rival(learn_twin(Lessons(bank.trials, bank.jobs, {})) if bank else None, "the bank's prior", notes)


def _judge_against(
    scores: Sequence[JobScore], held_out: Lessons, noise_sd: float, rival: _Rival, limits: GateLimits
) -> GateResult:
    if rival.prior is None:
        return GateResult(True, (Reason.of("no_champion"),))
    verdict = judge(scores, score_prior(rival.prior, held_out), limits, noise_sd, rival.name)
    return verdict._replace(reasons=(*verdict.reasons, *rival.notes))


def _register(
    result: Retraining, learned: Learned, registry: Registry, champion: Version | None, limits: GateLimits
) -> Version:
    from sizewright.retraining.tracking import log_run, model_source

    parameters = asdict(limits) | {
        "trials": result.trials,
        "jobs": result.jobs,
        "data_sha256": result.data_sha256,
        "champion": champion.number if champion else "none",
    }
    run_id = log_run(registry, learned, parameters)
    tags = {f"sha256.{name}": digest(p.to_json()) for name, p in ((PRIOR, learned.prior), (TWIN, learned.twin))}
    tags |= _data_tags(result.data_sha256) | {"trials": str(result.trials), "reason": result.reason[:4000]}
    tags |= {f"metric.{name}": f"{value:.5g}" for name, value in result.metrics.items()}
    return registry.add(run_id, model_source(run_id), tags)


def _promote_or_tag(
    result: Retraining,
    verdict: GateResult,
    version: Version,
    registry: Registry,
    champion: Version | None,
    judgement: dict[str, str],
) -> Retraining:
    """Promote a better version, and tag others with the reason.

    A version is not promoted if another version, which it was not compared with, has become the champion meanwhile.
    """
    if not verdict.promote:
        for name, value in (judgement | {"reason": result.reason[:4000]}).items():
            registry.tag(version, name, value)
        return result.of(version)
    current = registry.champion()
    if (current.number if current else None) != (champion.number if champion else None):
        result = _with_reasons(result.of(version), Reason.of("champion_replaced"))
        registry.tag(version, "reason", result.reason)
        return result
    registry.promote(version)
    return result.of(version).model_copy(update={"promoted": True})
