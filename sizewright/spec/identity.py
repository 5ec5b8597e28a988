"""The identity of a job: a hash of what is trained and how, independent of machine, folder and user.

Data is identified by its format and the names of its files without their folder; a command by its words and the values
of its plain settings, with absolute paths cut to their last part. Of a possible secret only the name counts. Named
tables and an equal list of rows are the same tables.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from sizewright.spec._paths import absolute, without_folders
from sizewright.spec.model import FIRST_CRITEO_ROWS

if TYPE_CHECKING:
    from sizewright.spec.job import Job
    from sizewright.spec.model import Tables

T = TypeVar("T")
HASH_VERSION = 3
"""Version 1 held absolute paths, and the rows of tables as they were written; version 2 all values of variables."""
_PATIENCE = ("start_s", "silent_s", "grace_s")
_SINCE_ADDED = {"embedding_device": "cpu", "max_staleness": None, "global_batch_size": None}


def describe(job: Job) -> dict[str, Any]:
    """Return the content of the hash, which excludes name, samples, bounds, prices and folders."""
    described = _described(job)
    if command := described.get("command"):
        del command["folder"]
        command["run"] = [without_folders(word) for word in command["run"]]
    if job.data.path:
        described["data"]["path"] = _file_names(job.data.path)
    if not job.command:
        tables = described["model"]["tables"]
        tables |= {"rows": _rows(job.model.tables), "dim": _shortened(job.model.tables.dims)}
        if "pooling" in tables:
            tables["pooling"] = _shortened(job.model.tables.poolings)
        if "dtype" in tables:
            tables["dtype"] = _shortened(job.model.tables.dtypes)
        if "optimizer" in tables:
            tables["optimizer"] = _shortened(job.model.table_optimizers)
    return described


def hashes(job: Job) -> tuple[str, ...]:
    """Return the current hash, then differing hashes of older versions, under which trials may be stored."""
    first, second = _described(job), describe(job)
    if job.command:
        first["command"] |= {"folder": absolute(job.command.folder), "run": job.command.run, "env": job.command.env}
        second["command"]["run"] = [without_folders(word) for word in job.command.run]
        second["command"]["env"] = {name: without_folders(value) for name, value in job.command.env.items()}
    if job.data.path:
        first["data"]["path"] = absolute(job.data.path)
    if not job.command and (isinstance(job.model.tables.rows, str) or job.model.tables.rows == FIRST_CRITEO_ROWS):
        first["model"]["tables"]["rows"] = _rows(job.model.tables)  # in version 1 the name stood for other rows
    return tuple(dict.fromkeys(_digest(content) for content in (describe(job), second, first)))


def differences(one: Job, other: Job) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two jobs differ, named as in a job file, with both values."""
    a, b = _flat(describe(one)), _flat(describe(other))
    keys = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _described(job: Job) -> dict[str, Any]:
    if job.command:
        described = job.model_dump(mode="json", include={"command", "training"})
        for name in _PATIENCE:
            del described["command"][name]
        if job.command.processes == 1:
            del described["command"]["processes"]  # as before commands had it
    else:
        described = job.model_dump(mode="json", include={"model", "data", "training"})
        del described["data"]["max_broken_share"], described["model"]["tables"]["counted"]
        if set(job.model.tables.poolings) == {1}:
            del described["model"]["tables"]["pooling"]  # as before tables had it
        if set(job.model.tables.dtypes) == {"float32"}:
            del described["model"]["tables"]["dtype"]
        if set(job.model.table_optimizers) == {job.model.optimizer.name}:
            del described["model"]["tables"]["optimizer"]
    for name in ("samples", "loaders", "checkpoint"):  # trials record their loaders
        del described["training"][name]
    for name, default in _SINCE_ADDED.items():  # so that older trials stay valid
        if described["training"][name] == default:
            del described["training"][name]
    return described


def _rows(tables: Tables) -> int | str | list[int]:
    if tables.rows == "from-data":
        return tables.rows
    rows = tables.model_copy(update={"max_rows": None, "counted": None}).sizes()
    return "criteo-kaggle" if rows == FIRST_CRITEO_ROWS else _shortened(rows)


def _shortened(values: tuple[T, ...]) -> T | list[T]:
    return values[0] if len(set(values)) == 1 else list(values)


def _file_names(path: str) -> str:
    parts = PurePath(path).parts
    first = next((i for i, part in enumerate(parts) if {"*", "?"} & set(part)), len(parts) - 1)
    return "/".join(parts[first:])


def _digest(described: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def _flat(described: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in described.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat
