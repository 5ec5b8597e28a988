"""Priors learned from other jobs: shipped, learned, registered, compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.api._records import StoreLike
from sizewright.api.inputs import its_store
from sizewright.errors import InputError, NotEnoughDataError, NoTrialsError
from sizewright.spec import Job
from sizewright.spec._paths import absolute_url

if TYPE_CHECKING:
    from typing import TypeAlias

    from sizewright.datasets.bank.card import Card
    from sizewright.models.prior import JobCurve, LearnedPrior
    from sizewright.profiler.bank_series import BankStep
    from sizewright.retraining.compare import PriorScore
    from sizewright.retraining.drift import Drift
    from sizewright.retraining.registry import Registry
    from sizewright.retraining.retrain import Retraining

    PriorLike: TypeAlias = LearnedPrior | str | Path | None

SHIPPED_PRIOR = SHIPPED_BANK = "shipped"
DEFAULT_TRACKING = "sqlite:///sizewright-models.db"
TRACKING_VARIABLE = "SIZEWRIGHT_TRACKING_URI"


def load_prior(prior: LearnedPrior | str | Path = SHIPPED_PRIOR) -> LearnedPrior:
    """A prior as it is, from its file, or the one that is shipped. Raises StoreError where it cannot
    be read, InputError for what is no prior."""
    from sizewright.models.prior import LearnedPrior

    if isinstance(prior, LearnedPrior):
        return prior
    if not isinstance(prior, str | os.PathLike):
        raise InputError(
            f"The prior is of type {type(prior).__name__}.", "Pass `shipped`, its file, or a LearnedPrior."
        )
    return LearnedPrior.load(None if prior == SHIPPED_PRIOR else prior)


def learn_prior(bank: str | Path | None = None, *, leave_out: Sequence[str] = ()) -> LearnedPrior:
    """Learn a prior from the bank in a folder, or the one that is shipped, without the base shapes named.

    Raises StoreError for a bank that cannot be read, NotEnoughDataError for one that is too small, InputError for a
    base shape that it does not have.
    """
    from sizewright.datasets.bank.files import load_bank
    from sizewright.models.prior import LearnedPrior

    loaded = load_bank(bank)
    bases = {job.base for job in loaded.jobs.values()}
    unknown = sorted(set(leave_out) - bases)
    if unknown:
        raise InputError(f"The bank has no base shape {unknown[0]!r}.", f"Name any of: {', '.join(sorted(bases))}.")
    jobs = {key: job for key, job in loaded.jobs.items() if job.base not in leave_out}
    return LearnedPrior.fit([trial for trial in loaded.trials if trial.job_hash in jobs], jobs)


def open_registry(tracking_uri: str | None = None) -> Registry:
    """The registry of learned priors at an MLflow URI, that of SIZEWRIGHT_TRACKING_URI, or a file here."""
    from sizewright.retraining.registry import Registry

    return Registry(absolute_url(tracking_uri or os.environ.get(TRACKING_VARIABLE) or DEFAULT_TRACKING))


def retrain(
    *,
    store: StoreLike | None = None,
    tracking_uri: str | None = None,
    bank: str | Path | None = SHIPPED_BANK,
    dry_run: bool = False,
    margin: float = 0.02,
    worst_family: float = 0.05,
    progress: Callable[[str], None] = lambda _: None,
) -> Retraining:
    """Learn the prior anew from the store's trials and runs and a bank's, log it to MLflow, and register it.

    It becomes the champion if its error on what is held out (base shapes of the bank, and one in four of your own
    trials and runs) is less than the champion's by the share `margin` and that of no family surely more by the share
    `worst_family`; else it stays challenger, with the reason. `bank` is a folder, "shipped", or None to learn from the
    store alone. In a `dry_run` nothing is logged or registered.

    Raises NotEnoughDataError where the store tells nothing new, StoreError where it cannot be used, InputError for a
    margin that is no share, RegistryError where the registry does not answer, MissingExtraError without mlflow.
    """
    from sizewright.datasets.bank.files import load_bank
    from sizewright.retraining.gate import Limits
    from sizewright.retraining.retrain import retrain as retrain_from_store

    registry, limits = open_registry(tracking_uri), Limits(margin, worst_family)
    with its_store(store, create=False) as opened:
        loaded = load_bank(None if bank == SHIPPED_BANK else bank) if bank is not None else None
        return retrain_from_store(opened, registry, loaded, limits=limits, dry_run=dry_run, progress=progress)


def compare_priors(
    which: Sequence[str], *, store: StoreLike | None = None, tracking_uri: str | None = None
) -> list[PriorScore]:
    """Registered priors, by number or alias, on what is held out of the shipped bank and of the store, if there is one.

    One row a version and family, and one for all. Raises InputError for a version that is not there, RegistryError
    where the registry does not answer, UnusableVersionError for a version that was changed, MissingExtraError without
    mlflow.
    """
    from sizewright.datasets.bank.files import load_bank
    from sizewright.retraining.compare import compare_versions
    from sizewright.retraining.lessons import gather

    registry = open_registry(tracking_uri)
    versions = [registry.version(one) for one in which]
    try:
        with its_store(store, create=False) as opened:
            lessons = gather(opened, load_bank())
    except NoTrialsError:
        lessons = gather(None, load_bank())
    return compare_versions(registry, versions, lessons)


def drift(*, store: StoreLike | None = None, tracking_uri: str | None = None) -> Drift:
    """Whether runs in the store still go as foretold: by the champion of the registry at `tracking_uri`, or by whatever
    foretold them where there is none.

    Raises NoTrialsError where there is no store, RegistryError where the registry does not answer, MissingExtraError
    without mlflow.
    """
    from sizewright.retraining.drift import drift as drift_of

    asked = (
        tracking_uri or os.environ.get(TRACKING_VARIABLE) or Path(DEFAULT_TRACKING.removeprefix("sqlite:///")).exists()
    )
    champion = open_registry(tracking_uri).champion() if asked else None
    with its_store(store, create=False) as opened:
        return drift_of(opened.history.finished(), champion.source if champion else "")


def measure_bank(
    folder: str | Path,
    *,
    resume: bool = False,
    sessions: int | None = None,
    progress: Callable[[BankStep], None] | None = None,
) -> Card:
    """Measure the bank's jobs on this host into a folder, at most so many `sessions` of them; the answer is its card.

    Every trial is kept at once; with `resume` it goes on with what is missing.
    Raises MissingExtraError without torch and ray, StoreError for a folder that cannot be used.
    """
    from sizewright.profiler.bank_series import measure_bank as measure_all
    from sizewright.profiler.bank_series import open_session

    return measure_all(folder, open_session, resume=resume, most_series=sessions, progress=progress)


def prior_asked_for(
    prior: PriorLike, tracking_uri: str | None, usual: PriorLike = None
) -> tuple[LearnedPrior | None, str]:
    """The prior named, else the champion of the registry, if one is asked for, else the usual; and what is to be said
    of that."""
    uri = tracking_uri or os.environ.get(TRACKING_VARIABLE)
    prior = prior if prior is not None or uri else usual
    if prior is not None or not uri:
        return (load_prior(prior) if prior is not None else None), ""
    from sizewright.retraining.champion import champion_prior

    return champion_prior(absolute_url(uri))


def foretold_by(prior: PriorLike, job: Job) -> JobCurve | None:
    """What a prior tells of a job. Raises InputError where that is nothing."""
    try:
        return load_prior(prior).curve(job) if prior is not None else None
    except NotEnoughDataError as error:
        raise InputError(error.message, "Profile it without a prior.") from None
