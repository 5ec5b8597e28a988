"""What every view of the trial table shares: the plain type of each column, and times in UTC."""

from __future__ import annotations

from datetime import datetime, timezone
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from sizewright.datasets.trials import Trial


def plain_type(annotation: Any) -> type:
    """The type of a cell, without what a record says of it."""
    if get_origin(annotation) is Literal:
        return str
    inner = [part for part in get_args(annotation) if part is not NoneType]
    return plain_type(inner[0]) if inner else annotation


COLUMNS: dict[str, type] = {name: plain_type(field.annotation) for name, field in Trial.model_fields.items()}


def as_utc(moment: datetime) -> datetime:
    """The same moment in UTC; a time without a zone is taken as UTC already."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} is no moment in UTC") from None


def with_utc(trial: Trial) -> Trial:
    """The trial with `started_at` in UTC."""
    if trial.started_at is None:
        return trial
    return trial.model_copy(update={"started_at": as_utc(trial.started_at)})
