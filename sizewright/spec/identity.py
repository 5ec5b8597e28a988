"""Which job a job is: the hash of what is trained and how, on whichever machine, in whichever folder, by whomever.

Data is known by its format and the names of its files as they are written, without their folder; a command by its
words and the values of its plain settings, with absolute paths cut to their last part; of what may be a secret the name
alone counts. Named tables and an equal list of rows are the same tables.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sizewright.spec._paths import absolute, without_folders
from sizewright.spec.model import FIRST_CRITEO_ROWS

if TYPE_CHECKING:
    from sizewright.spec.job import Job
    from sizewright.spec.model import Tables

HASH_VERSION = 3
"""Version 1 held absolute paths, and the rows of tables as they were written; version 2 all values of variables."""
_PATIENCE = ("start_s", "silent_s", "grace_s")
_SINCE_ADDED = {"embedding_device": "cpu", "max_staleness": None}


def describe(job: Job) -> dict[str, Any]:
    """Return all that the hash is of: name, samples, bounds, prices and folders are not in it."""
    described = _described(job)
    if command := described.get("command"):
        del command["folder"]
        command["run"] = [without_folders(word) for word in command["run"]]
    if job.data.path:
        described["data"]["path"] = _file_names(job.data.path)
    if not job.command:
        described["model"]["tables"]["rows"] = _rows(job.model.tables)
    return described


def hashes(job: Job) -> tuple[str, ...]:
    """Return the hash of today, and those of older versions where they are others: trials may be kept under them."""
    first, second = _described(job), describe(job)
    if job.command:
        first["command"] |= {"folder": absolute(job.command.folder), "run": job.command.run, "env": job.command.env}
        second["command"]["run"] = [without_folders(word) for word in job.command.run]
        second["command"]["env"] = {name: without_folders(value) for name, value in job.command.env.items()}
    if job.data.path:
        first["data"]["path"] = absolute(job.data.path)
    if not job.command and (isinstance(job.model.tables.rows, str) or job.model.tables.rows == FIRST_CRITEO_ROWS):
        first["model"]["tables"]["rows"] = _rows(job.model.tables)  # the name stood for other rows then
    return tuple(dict.fromkeys(_digest(each) for each in (describe(job), second, first)))


def differences(one: Job, other: Job) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two jobs are not the same, as a job file names them, with both values."""
    a, b = _flat(describe(one)), _flat(describe(other))
    keys = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _described(job: Job) -> dict[str, Any]:
    if job.command:
        told = job.model_dump(mode="json", include={"command", "training"})
        for name in _PATIENCE:
            del told["command"][name]
    else:
        told = job.model_dump(mode="json", include={"model", "data", "training"})
        del told["data"]["max_broken_share"], told["model"]["tables"]["counted"]
    del told["training"]["samples"]
    for name, default in _SINCE_ADDED.items():  # so that older trials stay valid
        if told["training"][name] == default:
            del told["training"][name]
    return told


def _rows(tables: Tables) -> int | str | list[int]:
    if tables.rows == "from-data":
        return tables.rows
    rows = tables.model_copy(update={"max_rows": None, "counted": None}).sizes()
    if rows == FIRST_CRITEO_ROWS:
        return "criteo-kaggle"
    return rows[0] if len(set(rows)) == 1 else list(rows)


def _file_names(path: str) -> str:
    parts = PurePath(path).parts
    first = next((i for i, part in enumerate(parts) if {"*", "?"} & set(part)), len(parts) - 1)
    return "/".join(parts[first:])


def _digest(described: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def _flat(described: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in described.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": value}
    return found
