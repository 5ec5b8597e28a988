"""The plain type of each column of the trial table, and times in UTC: shared by all views of the table."""

from __future__ import annotations

from datetime import datetime, timezone
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from sizewright.datasets.trials.trial import Trial


def plain_type(annotation: Any) -> type:
    """Return the type of a cell: the annotation of a field without its constraints and `None`."""
    if get_origin(annotation) is Literal:
        return str
    inner = [part for part in get_args(annotation) if part is not NoneType]
    return plain_type(inner[0]) if inner else annotation


COLUMNS: dict[str, type] = {name: plain_type(field.annotation) for name, field in Trial.model_fields.items()}


def as_utc(moment: datetime) -> datetime:
    """Return the same time in UTC; a time without a zone is taken as UTC."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} is out of range in UTC") from None


def with_utc(trial: Trial) -> Trial:
    """Return the trial with `started_at` in UTC."""
    if trial.started_at is None:
        return trial
    return trial.model_copy(update={"started_at": as_utc(trial.started_at)})
