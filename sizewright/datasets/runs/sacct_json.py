"""Read what Slurm's accounting keeps of jobs: the JSON of `sacct --json`, whose form changes with Slurm's version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sizewright.datasets.runs.sacct import SacctJob, SacctStep
from sizewright.errors import StoreError
from sizewright.formatting import MIB
from sizewright.redaction import shortened
from sizewright.spec._text_files import read_json

_AGAIN = "Write it again: sacct --json"
_MAX_NUMBER = 1 << 62


def read_document(text: str, path: str) -> list[SacctJob]:
    """Return the jobs of a JSON document.

    Raises StoreError, with the record and a remedy, for a text that is not JSON, or not that of sacct.
    """
    try:
        document = read_json(text)
    except ValueError as error:
        raise StoreError(f"{path} is not JSON: {error}.", f"It may be cut short. {_AGAIN}") from None
    records = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(records, list):
        raise StoreError(f"{path} is JSON, but not that of sacct: it has no list of jobs.", _AGAIN)
    jobs = []
    for number, record in enumerate(records, 1):
        try:
            jobs.append(_job(record))
        except KeyError as error:
            raise StoreError(f"{path}: job {number} has no {error.args[0]}, as those of sacct do.", _AGAIN) from None
        except ValueError as error:
            raise StoreError(f"{path}: job {number}: {error}.", f"Correct it, or: {_AGAIN}") from None
    return jobs


def _job(record: Any) -> SacctJob:
    parent, task = _number(record, "array", "job_id"), _at(record, "array", "task_id")
    group = _number(record, "het", "job_id")
    name = f"{parent}_{_number(record, 'array', 'task_id')}" if parent and _is_set(task) else ""
    memory_mib = _counts(_at(record, "tres", "allocated")).get("mem", 0)
    return SacctJob(
        id=name or str(group or _number(record, "job_id")),
        component=_number(record, "het", "job_offset") if group else 0,
        name=str(_at(record, "name")), state=_first(_at(record, "state", "current")),
        start_s=float(_number(record, "time", "start")) or None, elapsed_s=float(_number(record, "time", "elapsed")),
        memory_bytes=memory_mib * MIB, steps=[_step(each) for each in _list(record, "steps")],
    )  # fmt: skip


def _step(record: Any) -> SacctStep:
    tres = _counts(_at(record, "tres", "allocated"))
    # Slurm names the usage "requested", and counts allocated memory in MiB but used memory in bytes.
    peaks = _counts(_at(record, "tres", "requested", "max"))
    cpu_s = _number(record, "time", "total", "seconds") + _number(record, "time", "total", "microseconds") / 1e6
    return SacctStep(
        name=str(_at(record, "step", "id")).rpartition(".")[2], state=_first(_at(record, "state")),
        start_s=float(_number(record, "time", "start")), elapsed_s=float(_number(record, "time", "elapsed")),
        tasks=_number(record, "tasks", "count"), cpus=tres.get("cpu", 0),
        tres=tres | {"mem": tres.get("mem", 0) * MIB}, memory_peak_bytes=peaks.get("mem", 0), cpu_s=cpu_s,
    )  # fmt: skip


def _at(record: Any, *keys: str) -> Any:
    """Return the value at keys of nested objects. Raises KeyError with the path to the first that is missing."""
    for depth, key in enumerate(keys, 1):
        if not isinstance(record, dict) or key not in record:
            raise KeyError(".".join(keys[:depth]))
        record = record[key]
    return record


def _list(record: Any, *keys: str) -> list[Any]:
    value = _at(record, *keys)
    if not isinstance(value, list):
        raise ValueError(f"{'.'.join(keys)} is not a list")
    return value


def _number(record: Any, *keys: str) -> int:
    """Return a number, which newer versions write as `{"set": true, "number": 5}`; 0 where it is not set."""
    value = _at(record, *keys)
    if not _is_set(value):
        return 0
    number = value["number"] if isinstance(value, dict) else value
    if type(number) is not int or not 0 <= number < _MAX_NUMBER:
        raise ValueError(f"{'.'.join(keys)} is {shortened(number)}, not a number")
    return number


def _is_set(value: Any) -> bool:
    return bool(value.get("set") and "number" in value) if isinstance(value, dict) else value is not None


def _first(state: Any) -> str:
    """Return a state, which newer versions write as a list."""
    return str(state[0] if isinstance(state, Sequence) and not isinstance(state, str) and state else state)


def _counts(entries: Any) -> dict[str, int]:
    """Return the numbers of trackable resources by the names that the table has: `mem`, `gres/gpu`."""
    if not isinstance(entries, list):
        raise ValueError("its resources are not a list")
    named = [(_at(each, "type"), _at(each, "name"), each) for each in entries]
    return {
        f"{kind}/{name}" if name else str(kind): _number(each, "count")
        for kind, name, each in named
        if kind in ("cpu", "mem", "gres")  # the numbers of others may be below 0, for unknown
    }
