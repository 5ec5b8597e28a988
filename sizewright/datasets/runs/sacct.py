"""Read what Slurm's accounting keeps of jobs: the table of `sacct --parsable2`, with its header.

Its manual page describes the fields. A job, or each component of a heterogeneous job, has a line, and each of its steps
has one below it. Only steps have tasks and a memory peak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, TypeVar

from sizewright.errors import StoreError
from sizewright.formatting import format_count
from sizewright.redaction import shortened
from sizewright.spec.units import parse_byte_count, parse_count, parse_seconds

COLUMNS = (
    "JobID", "JobName", "State", "Start", "Elapsed", "NNodes", "NTasks", "AllocCPUS", "ReqMem", "AllocTRES", "MaxRSS",
    "TotalCPU",
)  # fmt: skip
"""The columns that are needed, in any order; others are ignored."""
COMMAND = f"sacct --parsable2 --format={','.join(COLUMNS)}"
UNFINISHED_STATES = frozenset(
    [
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    ]
)
"""The states of a job that may still run."""
_JOB_ID = re.compile(
    r"(?P<job>\d+(?:_(?:\d+|\[.*\]))?)(?:\+(?P<offset>\d+))?(?:\.(?P<step>[\w+]+))?", re.ASCII
)  # 17, 17_3 and 17_[4-9] of an array, 17+1 of a heterogeneous job, 17.batch, 17+1.0
_MEMORY = re.compile(r"[\d.]+[KMGTP]?", re.ASCII)
_NONE = ("", "Unknown", "None")
"""How sacct writes a time that does not exist, such as the start of a job that waits."""
_MAX_START_S = 1 << 38
T = TypeVar("T")


class SacctStep(NamedTuple):
    """A step of a job: the tasks that one `srun` started, or the job's script."""

    name: str
    """Its number, or batch, extern or interactive."""
    state: str
    start_s: float
    """Seconds since 1970."""
    elapsed_s: float
    tasks: int
    cpus: int
    """Of all its tasks; 0 where Slurm recorded none."""
    tres: Mapping[str, int]
    """What all its tasks were allocated: memory in bytes (`mem`), and the numbers of other resources."""
    memory_peak_bytes: int
    """Of the task with the highest peak; 0 where Slurm did not measure it."""
    cpu_s: float
    """CPU seconds of all its tasks."""


class SacctJob(NamedTuple):
    """A job, or one component of a heterogeneous job, with its steps."""

    id: str
    """Without the number of the component: 17 or 17_3."""
    component: int
    name: str
    state: str
    start_s: float | None
    """Seconds since 1970; None if it never started."""
    elapsed_s: float
    memory_bytes: int
    """Allocated on all its nodes; 0 where Slurm recorded none."""
    steps: list[SacctStep]


def read_table(text: str, path: str) -> list[SacctJob]:
    """Return the jobs of a table. Times are in the time zone of this host, as sacct prints those of its own.

    Raises StoreError, with the line and a remedy, for a text that is not such a table.
    """
    jobs: list[SacctJob] = []
    for row in _rows(text, path):
        match = _JOB_ID.fullmatch(row.cells["JobID"])
        if not match:
            raise row.fault("JobID", f"{shortened(row.cells['JobID'])} is not the id of a job or step")
        if step := match["step"]:
            if not jobs or (jobs[-1].id, jobs[-1].component) != (match["job"], int(match["offset"] or 0)):
                raise StoreError(
                    f"{row.where}: step {row.cells['JobID']} does not follow its job.", f"Run it again: {COMMAND}"
                )
            jobs[-1].steps.append(_step(row, step))
        else:
            jobs.append(_job(row, match["job"], int(match["offset"] or 0)))
    return jobs


class _Row(NamedTuple):
    """A line of the table: its cells by column, and where it is."""

    where: str
    cells: dict[str, str]

    def read(self, column: str, parse: Callable[[str], T]) -> T:
        """Return the value of a cell. Raises StoreError if `parse` raises ValueError."""
        try:
            return parse(self.cells[column])
        except (ValueError, OverflowError) as error:
            raise self.fault(column, str(error)) from None

    def fault(self, column: str, problem: str) -> StoreError:
        """Return an error on a cell."""
        return StoreError(f"{self.where}, {column}: {problem}.", f"Correct it, or run it again: {COMMAND}")


def _rows(text: str, path: str) -> Iterator[_Row]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    first_number, header = lines[0]
    names = header.strip().rstrip("|").split("|")
    if "JobID" not in names or len(names) == 1:
        raise StoreError(
            f"Line {first_number} of {path} is not the header of a table of sacct: {shortened(header.strip())}.",
            f"Write the table without --noheader: {COMMAND}",
        )
    if missing := [name for name in COLUMNS if name not in names]:
        raise StoreError(f"{path} lacks the columns {', '.join(missing)}.", f"Write it with all: {COMMAND}")
    for number, line in lines[1:]:
        if line.strip() == header.strip():  # of a second table in the same file
            continue
        cells = line.rstrip("\r").split("|")
        if header.strip().endswith("|"):  # --parsable
            cells = cells[:-1]
        surplus = len(cells) - len(names)
        if surplus > 0:  # sacct does not escape a | in the name of a job
            at = names.index("JobName")
            cells[at : at + surplus + 1] = ["|".join(cells[at : at + surplus + 1])]
        where = f"line {number} of {path}"
        if surplus < 0 or (number == lines[-1][0] and not text.endswith("\n")):
            problem = f"has {format_count(len(cells), 'cell')} for {format_count(len(names), 'column')}"
            raise StoreError(
                f"{where} {problem if surplus < 0 else 'does not end with a line break, as sacct writes it'}.",
                f"The table may be cut short. Run it again: {COMMAND}",
            )
        yield _Row(where, dict(zip(names, map(str.strip, cells), strict=True)))


def _job(row: _Row, job: str, component: int) -> SacctJob:
    tres = row.read("AllocTRES", _tres)
    return SacctJob(
        id=job, component=component, name=row.cells["JobName"], state=row.cells["State"],
        start_s=row.read("Start", _time), elapsed_s=row.read("Elapsed", _seconds),
        memory_bytes=tres.get("mem") or _requested_memory(row), steps=[],
    )  # fmt: skip


def _step(row: _Row, name: str) -> SacctStep:
    return SacctStep(
        name=name, state=row.cells["State"], start_s=row.read("Start", _time) or 0.0,
        elapsed_s=row.read("Elapsed", _seconds), tasks=row.read("NTasks", _count), cpus=row.read("AllocCPUS", _count),
        tres=row.read("AllocTRES", _tres), memory_peak_bytes=row.read("MaxRSS", _bytes),
        cpu_s=row.read("TotalCPU", _seconds),
    )  # fmt: skip


def _requested_memory(row: _Row) -> int:
    """Return the requested memory of all nodes; before Slurm 21.08, `4Gn` is of each node and `4Gc` of each core."""
    text = row.cells["ReqMem"]
    each = row.read("ReqMem", lambda cell: _bytes(cell[:-1] if cell[-1:] in ("n", "c") else cell))
    if text.endswith("n"):
        return each * row.read("NNodes", _count)
    return each * row.read("AllocCPUS", _count) if text.endswith("c") else each


def _tres(text: str) -> dict[str, int]:
    """Return the memory, in bytes, and the numbers of the other trackable resources: `cpu=4,mem=400M,gres/gpu=1`."""
    pairs = [each.partition("=") for each in text.split(",") if each]
    return {
        name: _bytes(amount) if name == "mem" else _count(amount)
        for name, _, amount in pairs
        if name in ("mem", "cpu", "node") or name.startswith("gres/gpu")
    }


def _bytes(text: str) -> int:
    """Return the bytes of `21432K` or `0.39G`, in powers of 1024; 0 for an empty text."""
    if text and not _MEMORY.fullmatch(text):
        raise ValueError(f"{shortened(text)} is not an amount of memory such as 512M")
    return parse_byte_count(f"{text}i" if text[-1:].isalpha() else text) if text else 0


def _count(text: str) -> int:
    return parse_count(text) if text else 0


def _seconds(text: str) -> float:
    """Return the seconds of `1-02:03:04` or `03:04.500`."""
    return parse_seconds(f"0:{text}" if text.count(":") == 1 else text) if text else 0.0


def _time(text: str) -> float | None:
    if text in _NONE:
        return None
    try:
        seconds = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        seconds = -1.0
    if not 0 <= seconds < _MAX_START_S:
        raise ValueError(f"{shortened(text)} is not a time such as 2026-01-31T08:00:00")
    return seconds
