"""The prior in use: the registry's champion; without a registry the last known champion, or the shipped prior."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.errors import RegistryError, StoreError
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.registry import NAME, Registry
from sizewright.settings import EnvironmentSettings
from sizewright.spec._json import loads


class InUse(NamedTuple):
    """A prior, and a sentence that says why it is not the champion, or nothing."""

    prior: LearnedPrior
    note: str = ""


def champion_prior(uri: str) -> InUse:
    """Return the prior that recommendations use with this registry. Raises MissingExtraError without mlflow."""
    digest = hashlib.sha256(uri.encode()).hexdigest()[:16]
    last_good = EnvironmentSettings.from_environment().cache_folder / f"champion-{digest}.json"
    try:
        registry = Registry(uri)
        version = registry.champion()
        if version is None:
            return InUse(
                LearnedPrior.load(), f"{NAME} has no champion at {registry.name} yet; the shipped prior is used."
            )
        prior = registry.load(version)
    except RegistryError as error:
        return _fallback(last_good, error)
    with suppress(OSError):  # the cache serves times without the registry; a failure to write it does no harm
        last_good.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(last_good, json.dumps({"source": prior.source, "prior": prior.to_json()}))
    return InUse(prior)


def _fallback(last_good: Path, error: RegistryError) -> InUse:
    try:
        record = loads(last_good.read_text(encoding="utf-8"))
        prior = LearnedPrior.from_json(record["prior"], record["source"])
    except (OSError, ValueError, KeyError, TypeError, StoreError):
        return InUse(LearnedPrior.load(), f"{error.message} None was used here before; the shipped prior is used.")
    return InUse(prior, f"{error.message} The last known champion is used: {prior.source}.")
