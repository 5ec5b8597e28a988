"""What callers pass to the public functions, as records: a file, a mapping, a data frame or the record itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial, Trials
from sizewright.errors import InputError, StoreError
from sizewright.spec import Cluster, Job, Plan, Queue, Rails, Recommendation
from sizewright.spec._base import Record, load_yaml, parse

if TYPE_CHECKING:
    import pandas as pd

    from sizewright.datasets.table_files import Row
    from sizewright.datasets.trial_files import TrialTable

_LOG = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)
File: TypeAlias = "str | Path"
JobLike: TypeAlias = "Job | str | Path | Mapping[str, object]"
PlanLike: TypeAlias = "Plan | str | Path | Mapping[str, object]"
ClusterLike: TypeAlias = "Cluster | str | Path | Mapping[str, object]"
QueueLike: TypeAlias = "Queue | Sequence[Job | Mapping[str, object]] | str | Path | Mapping[str, object]"
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
        path = path_of(given, what)
        return load(path) if load else parse(kind, load_yaml(path, what), path)
    if isinstance(given, Mapping):
        return parse(kind, dict(given), f"The {what}")
    raise InputError(
        f"The {what} is of type {type(given).__name__}.", f"Pass the path of its file, a dict, or a {kind.__name__}."
    )


def path_of(given: str | os.PathLike[str], what: str) -> str:
    """Return the path of a file. Raises InputError where what the file would hold was passed instead."""
    path = os.fspath(given)
    if "\n" in path:
        raise InputError(f"The {what} is a text of several lines.", "Write it into a file, and pass the file's path.")
    return path


def as_trials(given: TrialsLike, *, has_ps: bool = True) -> Trials:
    """Return trials, whether they are records, mappings, a data frame, or a CSV or Parquet file.

    Without `has_ps`, `ps` is 0 where it is not given. A trial that is a copy of another counts once, which a warning
    says, as it does of trials with throughput 0. Raises InputError where one of them is no trial.
    """
    from sizewright.datasets.table_files import Table
    from sizewright.datasets.trial_files import count_once, read_trials, trials_of

    if isinstance(given, Trial):
        return Trials([given])
    if isinstance(given, str | os.PathLike):
        return _of_table(partial(read_trials, path_of(given, "table of trials"), has_ps=has_ps))
    rows = rows_in(given)
    if all(isinstance(row, Trial) for row in rows):
        return _warned(*count_once(rows))
    if wrong := [row for row in rows if not isinstance(row, Trial | Mapping)]:
        raise _no_trials(given, f" of {type(wrong[0]).__name__}")
    named = named_rows(row.model_dump() if isinstance(row, Trial) else row for row in rows)
    table = Table(tuple(dict.fromkeys(name for row in named for name in row.cells)), named)
    return _of_table(partial(trials_of, table, "The table of trials", has_ps=has_ps))


def _of_table(read: Callable[[], TrialTable]) -> Trials:
    """What is read, with errors that speak of no option of the command line."""
    try:
        table = read()
    except StoreError as error:
        remedy = "Rename the columns." if "--" in error.remedy else error.remedy
        raise InputError(error.message, remedy) from None
    return _warned(table.trials, table.notes)


def _warned(trials: list[Trial], notes: Sequence[str]) -> Trials:
    for note in notes:
        _LOG.warning("%s", note)
    return Trials(trials)


def rows_in(given: Any) -> list[Any]:
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


def named_rows(rows: Iterable[Mapping[Any, Any]]) -> list[Row]:
    """Return rows as a file has them: names as text, cells as Python's own, counted from 1."""
    from sizewright.datasets.table_files import Row

    named = ({str(name).strip(): plain(cell) for name, cell in row.items()} for row in rows)
    return [Row(f"row {number}", cells) for number, cells in enumerate(named, 1)]


def flat(frame: Any) -> Any:
    """The frame with one header, `throughput_mean` of (throughput, mean), and with named row labels as columns."""
    from sizewright.datasets.tables import check_once

    if getattr(frame.columns, "nlevels", 1) > 1:
        names = ["_".join(str(part) for part in name if str(part)) for name in frame.columns]
        frame = frame.set_axis(names, axis=1)
    check_once(list(frame.columns), "The table")
    labels = [name for name in getattr(getattr(frame, "index", None), "names", ()) if name is not None]
    return frame.reset_index([name for name in labels if name not in frame.columns]) if labels else frame


def _equally_long(columns: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        return list(zip(*columns.values(), strict=True))
    except ValueError:
        raise InputError("The columns are not equally long.", "Give each a value for each row.") from None


def _no_trials(given: object, of: str = "") -> InputError:
    return InputError(
        f"Trials are not of type {type(given).__name__}{of}.",
        "Pass a list of Trial or of dicts, a data frame, or the path of a CSV or Parquet file.",
    )


def plain(value: Any) -> Any:
    """A cell of pandas or numpy as Python's own; None where it is unknown."""
    try:
        if value is None or value != value:
            return None
    except TypeError:  # pandas.NA
        return None
    except ValueError:  # arrays, which are no numbers
        return str(value)
    return value.item() if hasattr(value, "item") else value
