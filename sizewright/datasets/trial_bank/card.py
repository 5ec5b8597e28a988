"""The schema of a bank's data card, a JSON file: what was measured, how, and on which host."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import NotRequired, TypedDict

from sizewright.spec import Job


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _description(description: dict[str, object]) -> dict[str, object]:
    Job.model_validate(description)
    return description


class CardJob(TypedDict):
    """A job of the bank: its base shape, the share of its table rows that was measured, and its description."""

    base: Annotated[str, Field(min_length=1)]
    table_scale: Annotated[float, Field(gt=0, le=1)]
    job: Annotated[dict[str, object], AfterValidator(_description)]


class CardHost(TypedDict):
    """The host that ran the trials."""

    cores: Annotated[int, Field(ge=1)]
    machine: NotRequired[str]
    python: NotRequired[str]
    versions: dict[str, str]


class Discarded(TypedDict):
    """The number of trials that were discarded for one reason."""

    reason: str
    trials: int


class Card(TypedDict):
    """The number of trials, the jobs by hash, the host, and how the trials were measured.

    Times are ISO 8601, durations seconds. `failed` counts the trials that failed, which is a result, and `repeated`
    those repeated in another session; `schema_version` is the version of the trial table.
    """

    schema_version: int
    sha256: str
    trials: int
    failed: int
    jobs: dict[str, CardJob]
    host: CardHost
    how: dict[str, str]
    discarded: list[Discarded]
    measured_from: Annotated[str, AfterValidator(_time)] | None
    measured_to: Annotated[str, AfterValidator(_time)] | None
    measured_s: NotRequired[float]
    repeated: NotRequired[int]


CARD_SCHEMA: TypeAdapter[Card] = TypeAdapter(Card)
"""Validates a card."""
