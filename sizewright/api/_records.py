"""What callers pass to the public functions, as records: a file, a mapping, a data frame or the record itself."""

from __future__ import annotations

import csv
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial, Trials
from sizewright.errors import InputError, StoreError
from sizewright.spec import Cluster, Job, Plan, Queue, Rails, Recommendation
from sizewright.spec._base import Record, load_yaml, parse

if TYPE_CHECKING:
    import pandas as pd

_LOG = logging.getLogger(__name__)
_LINE = re.compile(r" \(line \d+\)")
R = TypeVar("R", bound=Record)
File: TypeAlias = "str | Path"
JobLike: TypeAlias = "Job | str | Path | Mapping[str, object]"
PlanLike: TypeAlias = "Plan | str | Path | Mapping[str, object]"
ClusterLike: TypeAlias = "Cluster | str | Path | Mapping[str, object]"
QueueLike: TypeAlias = "Queue | str | Path | Mapping[str, object]"
RailsLike: TypeAlias = "Rails | str | Path | Mapping[str, object]"
RecommendationLike: TypeAlias = "Recommendation | str | Path | Mapping[str, object]"
StoreLike: TypeAlias = "TrialStore | str | Path"
TrialsLike: TypeAlias = "Trial | Sequence[Trial] | Sequence[Mapping[str, object]] | pd.DataFrame | str | Path"


def as_record(kind: type[R], given: object, what: str) -> R:
    """Return a record as it is, read from its file, or made of a mapping. Raises JobError for what cannot be one."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str | os.PathLike):
        load = getattr(kind, "load", None)
        path = os.fspath(given)
        return load(path) if load else parse(kind, load_yaml(path, what), path)
    if isinstance(given, Mapping):
        return parse(kind, dict(given), f"The {what}")
    raise InputError(
        f"The {what} is of type {type(given).__name__}.", f"Pass the path of its file, a dict, or a {kind.__name__}."
    )


def as_trials(given: TrialsLike, *, has_ps: bool = True) -> Trials:
    """Return trials, whether they are records, mappings, a data frame, or a CSV or Parquet file.

    Without `has_ps`, `ps` is 0 where it is not given. A trial that is a copy of another counts once, which a warning
    says, as it does of trials with throughput 0. Raises InputError where one of them is no trial.
    """
    from sizewright.datasets.trial_files import count_once, read_trials

    if isinstance(given, Trial):
        return Trials([given])
    if isinstance(given, str | os.PathLike):
        table = read_trials(os.fspath(given), has_ps=has_ps)
        return _warned(table.trials, table.notes)
    rows = _rows(given)
    if all(isinstance(row, Trial) for row in rows):
        return _warned(*count_once(rows))
    if wrong := [row for row in rows if not isinstance(row, Trial | Mapping)]:
        raise _no_trials(wrong[0])
    return _validated([row.model_dump() if isinstance(row, Trial) else dict(row) for row in rows], has_ps)


def _warned(trials: list[Trial], notes: Sequence[str]) -> Trials:
    for note in notes:
        _LOG.warning("%s", note)
    return Trials(trials)


def _rows(given: Any) -> list[Any]:
    """Rows of pandas, Polars or Arrow, columns by name, one row, or any sequence of rows."""
    if hasattr(given, "to_dict") and hasattr(given, "columns"):
        return list(flat(given).to_dict("records"))
    for name in ("to_dicts", "to_pylist"):
        if hasattr(given, name):
            return list(getattr(given, name)())
    if isinstance(given, Mapping):
        columns = [cell for cell in given.values() if isinstance(cell, Iterable) and not isinstance(cell, str)]
        if len(columns) < len(given) or not columns:
            return [given]
        return [dict(zip(given, cells, strict=True)) for cells in _equally_long(given)]
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return list(given)
    raise _no_trials(given)


def flat(frame: Any) -> Any:
    """The frame with one header, `throughput_mean` of (throughput, mean), and with named row labels as columns."""
    if getattr(frame.columns, "nlevels", 1) > 1:
        names = ["_".join(str(part) for part in name if str(part)) for name in frame.columns]
        frame = frame.set_axis(names, axis=1)
    labels = [name for name in getattr(getattr(frame, "index", None), "names", ()) if name is not None]
    return frame.reset_index([name for name in labels if name not in frame.columns]) if labels else frame


def _equally_long(columns: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        return list(zip(*columns.values(), strict=True))
    except ValueError:
        raise InputError(
            "The columns of the trials are not equally long.", "Give each a value for each trial."
        ) from None


def _no_trials(given: object) -> InputError:
    return InputError(
        f"Trials are not of type {type(given).__name__}.",
        "Pass a list of Trial or of dicts, a data frame, or the path of a CSV or Parquet file.",
    )


def _validated(rows: Sequence[Mapping[Any, Any]], has_ps: bool) -> Trials:
    """As if they had been read from a CSV file, so that the same names, units and empty cells are understood."""
    from sizewright.datasets.trial_files import read_trials

    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    with tempfile.TemporaryDirectory(prefix="sizewright-") as folder:
        path = os.path.join(folder, "trials.csv")
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows({str(name): _cell(value) for name, value in row.items()} for row in rows)
        try:
            table = read_trials(path, has_ps=has_ps)
        except StoreError as error:
            message = _LINE.sub(
                "", error.message.replace(f"{path} lacks", "The trials lack").replace(path, "The trials")
            )
            remedy = "Rename the columns." if "--map" in error.remedy else error.remedy
            raise InputError(message, remedy) from None
    return _warned(table.trials, [_LINE.sub("", note) for note in table.notes])


def _cell(value: Any) -> Any:
    try:
        if value is None or value != value:
            return ""
    except TypeError:  # pandas.NA
        return ""
    except ValueError:  # arrays, which are no numbers
        return str(value)
    plain = value.item() if hasattr(value, "item") else value
    return plain.isoformat() if isinstance(plain, datetime) else plain
