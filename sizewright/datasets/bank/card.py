"""The data card of a bank: what was measured, how, and on what, as its JSON file has it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import NotRequired, TypedDict

from sizewright.spec import Job


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _description(told: dict[str, object]) -> dict[str, object]:
    Job.model_validate(told)
    return told


class CardJob(TypedDict):
    """A job of the bank: the base shape it varies, the share of its rows that was measured, its description."""

    base: Annotated[str, Field(min_length=1)]
    table_scale: Annotated[float, Field(gt=0, le=1)]
    job: Annotated[dict[str, object], AfterValidator(_description)]


class CardHost(TypedDict):
    """What the trials ran on."""

    cores: Annotated[int, Field(ge=1)]
    machine: NotRequired[str]
    python: NotRequired[str]
    versions: dict[str, str]


class Discarded(TypedDict):
    """So many trials were left out, and why."""

    reason: str
    trials: int


class Card(TypedDict):
    """Trials counted, jobs by hash, host, and how it was all measured. Times are ISO 8601, durations seconds.

    Of the trials so many have `failed`, which is a result, and so many were `repeated` in another session;
    `schema_version` is that of the trial table.
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


CHECK: TypeAdapter[Card] = TypeAdapter(Card)
"""Checks one."""
