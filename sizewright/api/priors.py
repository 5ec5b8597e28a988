"""Load, learn, register and compare priors, which are learned from other jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.api._records import StoreLike
from sizewright.api.inputs import opened_store
from sizewright.errors import InputError, NotEnoughDataError, NoTrialsError
from sizewright.models.factory import validated
from sizewright.settings import DEFAULT_TRACKING, EnvironmentSettings
from sizewright.spec import Job
from sizewright.spec._paths import absolute_url

if TYPE_CHECKING:
    from typing import TypeAlias

    from sizewright.datasets.trial_bank.card import Card
    from sizewright.models import BaseThroughputModel
    from sizewright.models.prior import JobCurve, LearnedPrior
    from sizewright.profiler.series.bank_series import BankStep
    from sizewright.retraining.compare import PriorScore
    from sizewright.retraining.drift import Drift
    from sizewright.retraining.registry import Registry
    from sizewright.retraining.retrain import Retraining
    from sizewright.spec.reason import Reason

    PriorLike: TypeAlias = LearnedPrior | str | Path | None

SHIPPED_PRIOR = SHIPPED_BANK = "shipped"


def load_prior(prior: LearnedPrior | str | Path = SHIPPED_PRIOR) -> LearnedPrior:
    """Return a prior from a LearnedPrior, the path of its file, or "shipped".

    Raises StoreError when it cannot be read, and InputError for a value of another type.
    """
    from sizewright.models.prior import LearnedPrior

    if isinstance(prior, LearnedPrior):
        return prior
    if not isinstance(prior, str | os.PathLike):
        raise InputError(
            f"The prior is of type {type(prior).__name__}.", "Pass 'shipped', the path of its file, or a LearnedPrior."
        )
    return LearnedPrior.load(None if prior == SHIPPED_PRIOR else prior)


def learn_prior(bank: str | Path | None = None, *, leave_out: Sequence[str] = ()) -> LearnedPrior:
    """Learn a prior from the trial bank in a folder; by default from the shipped bank.

    `leave_out` names base shapes whose jobs are not used. Raises StoreError for a bank that cannot be read,
    NotEnoughDataError for one that is too small, InputError for a base shape that it does not contain.
    """
    from sizewright.datasets.trial_bank.files import load_bank
    from sizewright.models.prior import LearnedPrior

    loaded = load_bank(bank)
    bases = {job.base for job in loaded.jobs.values()}
    unknown = sorted(set(leave_out) - bases)
    if unknown:
        raise InputError(f"The bank has no base shape {unknown[0]!r}.", f"Name any of: {', '.join(sorted(bases))}.")
    jobs = {key: job for key, job in loaded.jobs.items() if job.base not in leave_out}
    return LearnedPrior.fit([trial for trial in loaded.trials if trial.job_hash in jobs], jobs)


def open_registry(tracking_uri: str | None = None) -> Registry:
    """Open the registry of priors at an MLflow URI, else at SIZEWRIGHT_TRACKING_URI, else in the working folder."""
    from sizewright.retraining.registry import Registry

    return Registry(
        absolute_url(tracking_uri or EnvironmentSettings.from_environment().tracking_uri or DEFAULT_TRACKING)
    )


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
    """Retrain the prior on the trials and runs of the store and of a bank, log it to MLflow, and register it.

    Its error is evaluated on held-out data: base shapes of the bank, and one in four of your own trials and runs. The
    new version becomes the champion if its error is lower than the champion's by the share `margin`, and if for no
    model family it is significantly higher by the share `worst_family`. Otherwise it stays challenger, and the result
    says why. `bank` is a folder, "shipped", or None to learn from the store only. With `dry_run` nothing is logged or
    registered.

    Raises NotEnoughDataError when the store holds no new data, StoreError when it cannot be used, InputError for a
    margin that is not a share, RegistryError when the registry does not answer, MissingExtraError without mlflow.
    """
    from sizewright.datasets.trial_bank.files import load_bank
    from sizewright.retraining.gate import GateLimits
    from sizewright.retraining.retrain import retrain as retrain_from_store

    registry, limits = open_registry(tracking_uri), GateLimits(margin, worst_family)
    with opened_store(store, create=False) as opened:
        loaded = load_bank(None if bank == SHIPPED_BANK else bank) if bank is not None else None
        return retrain_from_store(opened, registry, loaded, limits=limits, dry_run=dry_run, progress=progress)


def compare_priors(
    which: Sequence[str], *, store: StoreLike | None = None, tracking_uri: str | None = None
) -> list[PriorScore]:
    """Compare registered priors, named by version number or alias, on held-out data.

    The data is held out of the shipped bank and, if there is one, of the store. Return one row per version and model
    family, and one per version for all families. Raises InputError for an unknown version, RegistryError when the
    registry does not answer, UnusableVersionError for a version that was modified, MissingExtraError without mlflow.
    """
    from sizewright.datasets.trial_bank.files import load_bank
    from sizewright.retraining.compare import compare_versions
    from sizewright.retraining.lessons import gather

    registry = open_registry(tracking_uri)
    versions = [registry.version(name) for name in which]
    try:
        with opened_store(store, create=False) as opened:
            lessons = gather(opened, load_bank())
    except NoTrialsError:
        lessons = gather(None, load_bank())
    return compare_versions(registry, versions, lessons)


def drift(*, store: StoreLike | None = None, tracking_uri: str | None = None) -> Drift:
    """Test whether the runs in the store still match their predictions.

    Only predictions by the champion of the registry at `tracking_uri` count; without a registry, or without a
    champion, all do. Raises NoTrialsError without a store, RegistryError when the registry does not answer,
    MissingExtraError without mlflow.
    """
    from sizewright.retraining.drift import drift as drift_of

    default_file = Path(DEFAULT_TRACKING.removeprefix("sqlite:///"))
    has_registry = tracking_uri or EnvironmentSettings.from_environment().tracking_uri or default_file.exists()
    champion = open_registry(tracking_uri).champion() if has_registry else None
    with opened_store(store, create=False) as opened:
        return drift_of(opened.history.finished(), champion.source if champion else "")


def measure_bank(
    folder: str | Path,
    *,
    resume: bool = False,
    sessions: int | None = None,
    progress: Callable[[BankStep], None] | None = None,
) -> Card:
    """Measure the jobs of a trial bank on this host, write them into a folder, and return the card of the bank.

    At most `sessions` jobs are measured; by default all. Every trial is written at once; with `resume` only what is
    missing is measured. Raises MissingExtraError without torch and ray, StoreError for a folder that cannot be used.
    """
    from sizewright.profiler.series.bank_series import measure_bank as measure_all
    from sizewright.profiler.series.bank_series import open_session

    return measure_all(folder, open_session, resume=resume, max_series=sessions, progress=progress)


def select_prior(
    prior: PriorLike, tracking_uri: str | None, default: PriorLike = None
) -> tuple[LearnedPrior | None, Reason | None]:
    """Return the prior to use, and why it is not the champion of a registry that was to be used.

    It is the named prior, else the champion of the registry if a tracking URI is set, else the default.
    """
    uri = tracking_uri or EnvironmentSettings.from_environment().tracking_uri
    if prior is None and not uri:
        prior = default
    if prior is not None:
        return load_prior(prior), None
    if not uri:
        return None, None
    from sizewright.retraining.champion import champion_prior

    return champion_prior(absolute_url(uri))


def prior_for_job(prior: PriorLike, job: Job) -> JobCurve | None:
    """Return the prior curve for a job; None without a prior. Raises InputError when the prior does not cover it."""
    try:
        return load_prior(prior).curve(job) if prior is not None else None
    except NotEnoughDataError as error:
        raise InputError(error.message, "Profile it without a prior.") from None


def custom_predictor(model: str | BaseThroughputModel | None, prior: PriorLike) -> BaseThroughputModel | None:
    """Return the model that the user names or brings, validated; None for the default one.

    Raises InputError for an unknown model, or a model together with a prior.
    """
    if model is None:
        return None
    if prior is not None:
        raise InputError("A prior works with the default model only.", "Leave out the prior, or the model.")
    return validated(model)
