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
from sizewright.spec._text_files import MAX_JSON_MIB, read_file
from sizewright.spec.reason import Reason


class InUse(NamedTuple):
    """A prior, and why it is not the champion of the registry; no reason if it is."""

    prior: LearnedPrior
    why_not_champion: Reason | None = None


def champion_prior(uri: str) -> InUse:
    """Return the prior that recommendations use with this registry. Raises MissingExtraError without mlflow."""
    digest = hashlib.sha256(uri.encode()).hexdigest()[:16]
    last_good = EnvironmentSettings.from_environment().cache_folder / f"champion-{digest}.json"
    try:
        registry = Registry(uri)
        version = registry.champion()
        if version is None:
            return InUse(LearnedPrior.load(), Reason.of("no_champion_yet", model=NAME, registry=registry.name))
        prior = registry.load(version)
    except RegistryError as error:
        return _fallback(last_good, error)
    with suppress(OSError):  # the cache serves times without the registry; a failure to write it does no harm
        last_good.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(last_good, json.dumps({"source": prior.source, "prior": prior.to_json()}))
    return InUse(prior)


def _fallback(last_good: Path, error: RegistryError) -> InUse:
    try:
        record = loads(read_file(last_good, MAX_JSON_MIB).decode())
        prior = LearnedPrior.from_json(record["prior"], record["source"])
    except (OSError, ValueError, KeyError, TypeError, StoreError):
        return InUse(LearnedPrior.load(), Reason.of("registry_failed", error=error.message))
    return InUse(prior, Reason.of("registry_failed", error=error.message, source=prior.source))
