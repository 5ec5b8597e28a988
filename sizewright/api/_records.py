"""Convert the arguments of the public functions (a file, a mapping, a data frame or a record) into records."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial, Trials
from sizewright.errors import InputError, StoreError
from sizewright.spec import Cluster, Job, Plan, Queue, Rails, Recommendation
from sizewright.spec._base import Record, load_yaml, parse

if TYPE_CHECKING:
    import pandas as pd

    from sizewright.datasets.files.table_files import FileRow
    from sizewright.datasets.trials.files import TrialTable

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


def as_record(kind: type[R], source: object, what: str) -> R:
    """Return the record itself, or one read from its file or made from a mapping.

    Raises JobError for an invalid file or mapping, InputError for a value of another type.
    """
    if isinstance(source, kind):
        return source
    if isinstance(source, str | os.PathLike):
        load = getattr(kind, "load", None)
        path = path_of(source, what)
        return load(path) if load else parse(kind, load_yaml(path, what), path)
    if isinstance(source, Mapping):
        return parse(kind, dict(source), f"The {what}")
    raise InputError(
        f"The {what} is of type {type(source).__name__}.", f"Pass the path of its file, a dict, or a {kind.__name__}."
    )


def path_of(path: str | os.PathLike[str], what: str) -> str:
    """Return the path as text. Raises InputError when the contents of the file were passed instead."""
    text = os.fspath(path)
    if "\n" in text:
        raise InputError(
            f"The {what} is a text of several lines, not a path.", "Write it into a file, and pass the file's path."
        )
    return text


def as_trials(source: TrialsLike, *, has_ps: bool = True) -> Trials:
    """Return trials from records, mappings, a data frame, or a CSV or Parquet file.

    Without `has_ps`, a missing `ps` is 0. A duplicate trial counts once; a warning is logged for duplicates and for
    trials with throughput 0. `Trials`, in which each counts once already, are returned as they are. Raises InputError
    for a value that is not a trial.
    """
    from sizewright.datasets.files.table_files import Table
    from sizewright.datasets.trials.files import count_once, read_trials, trials_of

    if isinstance(source, Trials):
        return source
    if isinstance(source, Trial):
        return Trials([source])
    if isinstance(source, str | os.PathLike):
        return _read_table(partial(read_trials, path_of(source, "table of trials"), has_ps=has_ps))
    rows = rows_in(source)
    if all(isinstance(row, Trial) for row in rows):
        return _log_notes(*count_once(rows))
    if wrong := [row for row in rows if not isinstance(row, Trial | Mapping)]:
        raise _not_trials(source, f" of {type(wrong[0]).__name__}")
    file_rows = named_rows(row.model_dump() if isinstance(row, Trial) else row for row in rows)
    table = Table(tuple(dict.fromkeys(name for row in file_rows for name in row.cells)), file_rows)
    return _read_table(partial(trials_of, table, "The table of trials", has_ps=has_ps))


def _read_table(read: Callable[[], TrialTable]) -> Trials:
    """Read a table; a remedy that names an option of the command line is replaced."""
    try:
        table = read()
    except StoreError as error:
        remedy = "Rename the columns." if "--" in error.remedy else error.remedy
        raise InputError(error.message, remedy) from None
    return _log_notes(table.trials, table.notes)


def _log_notes(trials: list[Trial], notes: Sequence[str]) -> Trials:
    for note in notes:
        _LOG.warning("%s", note)
    return Trials(trials)


def rows_in(table: Any) -> list[Any]:
    """Return the rows of a pandas, Polars or Arrow table, of a mapping of columns, or of any sequence; also one row."""
    if hasattr(table, "to_dict") and hasattr(table, "columns"):
        return list(flat(table).to_dict("records"))
    for method in ("to_dicts", "to_pylist"):
        if hasattr(table, method):
            return list(getattr(table, method)())
    if isinstance(table, Mapping):
        columns = [cell for cell in table.values() if isinstance(cell, Iterable) and not isinstance(cell, str)]
        if len(columns) < len(table) or not columns:
            return [table]
        try:
            return [dict(zip(table, cells, strict=True)) for cells in list(zip(*table.values(), strict=True))]
        except ValueError:
            raise InputError("The columns differ in length.", "Give each column a value for each row.") from None
    if isinstance(table, Iterable) and not isinstance(table, bytes):
        return list(table)
    raise _not_trials(table)


def named_rows(rows: Iterable[Mapping[Any, Any]]) -> list[FileRow]:
    """Return rows as if read from a file: numbered from 1, with names as text and cells of built-in types."""
    from sizewright.datasets.files.table_files import FileRow

    named = ({str(name).strip(): plain(cell) for name, cell in row.items()} for row in rows)
    return [FileRow(f"row {number}", cells) for number, cells in enumerate(named, 1)]


def flat(frame: Any) -> Any:
    """Return the frame with one header row (`throughput_mean` for a pair) and its named index as columns."""
    from sizewright.datasets.files.tables import check_unique_columns

    if getattr(frame.columns, "nlevels", 1) > 1:
        names = ["_".join(str(part) for part in name if str(part)) for name in frame.columns]
        frame = frame.set_axis(names, axis=1)
    check_unique_columns(list(frame.columns), "The table")
    labels = [name for name in getattr(getattr(frame, "index", None), "names", ()) if name is not None]
    return frame.reset_index([name for name in labels if name not in frame.columns]) if labels else frame


def _not_trials(source: object, of: str = "") -> InputError:
    return InputError(
        f"Trials cannot be of type {type(source).__name__}{of}.",
        "Pass a list of Trial or of dicts, a data frame, or the path of a CSV or Parquet file.",
    )


def plain(value: Any) -> Any:
    """Return a cell of pandas or numpy as a built-in type; None where it is missing."""
    try:
        if value is None or value != value:
            return None
    except TypeError:  # pandas.NA
        return None
    except ValueError:  # an array
        return str(value)
    return value.item() if hasattr(value, "item") else value
