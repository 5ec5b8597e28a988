"""Hypothesis strategies for valid trials."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal, get_args, get_origin

from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from sizewright.datasets._columns import COLUMNS
from sizewright.datasets.trials.trial import Trial

LARGEST = 2**63 - 1
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: text == text.strip()
)
"""Texts without surrounding blanks, which are stripped because spreadsheets add them."""
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc))


def _values(name: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    parts = [part for part in get_args(field.annotation) if part is not type(None)]
    kind = parts[0] if parts and get_origin(field.annotation) is not Literal else field.annotation
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    minimum = (
        4096 if name in ("worker_memory_bytes", "ps_memory_bytes") else 1
    )  # a process has at least one page of memory
    return {
        int: st.integers(minimum, LARGEST),
        float: st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False),
        str: TEXTS,
        datetime: TIMES,
    }[COLUMNS[name]]


def _needed(cells: dict[str, Any]) -> dict[str, Any]:
    if cells.get("status", "ok") == "ok":
        cells.setdefault("throughput", 1.0)
    return cells


_FIELDS = {name: _values(name, field) for name, field in Trial.model_fields.items()}
TRIALS = (
    st.fixed_dictionaries(
        {name: _FIELDS[name] for name in ("workers", "ps")},
        optional={name: values for name, values in _FIELDS.items() if name not in ("workers", "ps")},
    )
    .map(_needed)
    .map(Trial.model_validate)
)
