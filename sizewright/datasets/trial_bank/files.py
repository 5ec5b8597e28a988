"""Read and write a bank of trials: a folder with `trials.parquet` and the data card `card.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import ValidationError

from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.datasets.trial_bank.card import CARD_SCHEMA, Card, CardJob
from sizewright.datasets.trial_bank.shapes import BankJob
from sizewright.datasets.trials.files import export_trials, import_trials
from sizewright.datasets.trials.trial import TRIAL_SCHEMA_VERSION, Trial
from sizewright.errors import StoreError
from sizewright.spec import Job
from sizewright.spec._faults import explain_first
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import MAX_JSON_MIB, read_file

SHIPPED = Path(__file__).parent / "measured"
TRIALS, CARD = "trials.parquet", "card.json"
_CHUNK_BYTES = 1 << 20
_REMEDY = "Finish it with `sizewright bank measure FOLDER --resume`, or leave the option out for the shipped bank."


class Bank(NamedTuple):
    """Trials, their jobs by hash, and the data card."""

    trials: list[Trial]
    jobs: dict[str, BankJob]
    card: Card


def save_bank(
    folder: str | Path, trials: Sequence[Trial], jobs: Sequence[BankJob], about: Mapping[str, object]
) -> Card:
    """Write a bank and return its card, which is written last, so that an interrupted write leaves no valid bank.

    `about` holds the fields of the card besides trials and jobs.
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
    write_text_atomically(folder / CARD, json.dumps(card, indent=1) + "\n")
    return cast("Card", card)


def load_bank(folder: str | Path | None = None) -> Bank:
    """Load the bank in a folder, by default the shipped one.

    Raises StoreError when it is missing, damaged, or of another version of the trial table.
    """
    folder = SHIPPED if folder is None else Path(absolute(folder))
    card = _card(folder)
    if not (folder / TRIALS).is_file():
        raise StoreError(f"The bank {folder} has a card but no {TRIALS}.", _REMEDY)
    if _digest(folder / TRIALS) != card["sha256"]:
        raise StoreError(f"{folder / TRIALS} is damaged: its checksum differs from the one in its card.", _REMEDY)
    jobs = {key: _job(folder, key, job) for key, job in card["jobs"].items()}
    trials = import_trials(folder / TRIALS)
    if unknown_hashes := sorted({str(trial.job_hash) for trial in trials} - set(jobs)):
        raise StoreError(f"The bank {folder} holds trials of jobs it does not describe ({unknown_hashes[0]}).", _REMEDY)
    if len(trials) != card["trials"]:
        raise StoreError(
            f"The bank {folder} holds another number of trials ({len(trials)}) than its card says ({card['trials']}).",
            _REMEDY,
        )
    trials = [trial.model_copy(update={"job_hash": jobs[str(trial.job_hash)].job.hash}) for trial in trials]
    return Bank(trials, {job.job.hash: job for job in jobs.values()}, card)


def _card(folder: Path) -> Card:
    try:
        card = loads(read_file(folder / CARD, MAX_JSON_MIB).decode())
    except FileNotFoundError:
        raise StoreError(f"There is no bank at {folder}: {CARD} is missing.", _REMEDY) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"The card of the bank {folder} cannot be read: {error}.", _REMEDY) from None
    if not isinstance(card, dict):
        raise StoreError(f"{folder / CARD} is not the card of a bank.", _REMEDY)
    version = card.get("schema_version")
    if version != TRIAL_SCHEMA_VERSION:
        raise StoreError(
            f"The bank {folder} holds trials of version {version!r}; this Sizewright reads version "
            f"{TRIAL_SCHEMA_VERSION}.",
            _REMEDY,
        )
    try:
        CARD_SCHEMA.validate_python(card)
    except ValidationError as error:
        raise StoreError(f"The card of the bank {folder} is invalid: {explain_first(error)}.", _REMEDY) from None
    return cast("Card", card)


def _job(folder: Path, key: str, card_job: CardJob) -> BankJob:
    job = Job.model_validate(card_job["job"]).known_as(key)
    if job is None:
        raise StoreError(f"The card of the bank {folder} describes another job under the hash {key}.", _REMEDY)
    return BankJob(card_job["base"], job, card_job["table_scale"])


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
