"""A bank in its folder: `trials.parquet`, and `card.json` that tells what was measured, how, and on what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import ValidationError

from sizewright.datasets.bank.card import CHECK, Card, CardJob
from sizewright.datasets.bank.shapes import BankJob
from sizewright.datasets.trial_files import export_trials, import_trials
from sizewright.datasets.trials import TRIAL_SCHEMA_VERSION, Trial
from sizewright.datasets.whole_files import write_whole
from sizewright.errors import StoreError
from sizewright.spec import Job
from sizewright.spec._faults import explain_first
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute

SHIPPED = Path(__file__).parent / "measured"
TRIALS, CARD = "trials.parquet", "card.json"
_AGAIN = "Finish it with `sizewright bank measure FOLDER --resume`, or leave the option out for the shipped bank."


class Bank(NamedTuple):
    """Trials, the jobs that they measured by hash, and the data card."""

    trials: list[Trial]
    jobs: dict[str, BankJob]
    card: Card


def save_bank(
    folder: str | Path, trials: Sequence[Trial], jobs: Sequence[BankJob], about: Mapping[str, object]
) -> Card:
    """Write a bank, the card last, so that what was interrupted is not taken for one; the answer is the card.

    `about` is what the card tells besides trials and jobs.
    """
    folder = Path(absolute(folder))
    export_trials(trials, folder / TRIALS)
    card: dict[str, object] = {
        "schema_version": TRIAL_SCHEMA_VERSION,
        **about,
        "sha256": _digest(folder / TRIALS),
        "trials": len(trials),
        "jobs": {
            b.job.hash: {"base": b.base, "table_scale": b.table_scale, "job": b.job.model_dump(mode="json")}
            for b in jobs
        },
    }
    write_whole(folder / CARD, json.dumps(card, indent=1) + "\n")
    return cast("Card", card)


def load_bank(folder: str | Path | None = None) -> Bank:
    """The bank in a folder, or the one that is shipped.

    Raises StoreError when it is missing, damaged, or of another version of the trial table.
    """
    folder = SHIPPED if folder is None else Path(absolute(folder))
    card = _card(folder)
    if not (folder / TRIALS).is_file():
        raise StoreError(f"The bank {folder} has a card but no {TRIALS}.", _AGAIN)
    if _digest(folder / TRIALS) != card["sha256"]:
        raise StoreError(f"{folder / TRIALS} is damaged: it is not what its card was written for.", _AGAIN)
    told = {key: _job(folder, key, job) for key, job in card["jobs"].items()}
    trials = import_trials(folder / TRIALS)
    strangers = sorted({str(t.job_hash) for t in trials} - set(told))
    if len(trials) != card["trials"] or strangers:
        what = f"trials of jobs it does not describe ({strangers[0]})" if strangers else "another number of trials"
        raise StoreError(f"The bank {folder} holds {what}.", _AGAIN)
    trials = [trial.model_copy(update={"job_hash": told[str(trial.job_hash)].job.hash}) for trial in trials]
    return Bank(trials, {job.job.hash: job for job in told.values()}, card)


def _card(folder: Path) -> Card:
    try:
        card = loads((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"There is no bank at {folder}: {CARD} is missing.", _AGAIN) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"The card of the bank {folder} cannot be read: {error}.", _AGAIN) from None
    if not isinstance(card, dict):
        raise StoreError(f"{folder / CARD} is no card of a bank.", _AGAIN)
    version = card.get("schema_version")
    if version != TRIAL_SCHEMA_VERSION:
        raise StoreError(
            f"The bank {folder} holds trials of version {version!r}; this Sizewright reads version "
            f"{TRIAL_SCHEMA_VERSION}.",
            _AGAIN,
        )
    try:
        CHECK.validate_python(card)
    except ValidationError as error:
        raise StoreError(f"The card of the bank {folder} is wrong: {explain_first(error)}.", _AGAIN) from None
    return cast("Card", card)


def _job(folder: Path, key: str, told: CardJob) -> BankJob:
    job = Job.model_validate(told["job"]).known_as(key)
    if job is None:
        raise StoreError(f"The card of the bank {folder} tells another job than {key}.", _AGAIN)
    return BankJob(told["base"], job, told["table_scale"])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
