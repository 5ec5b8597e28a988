"""Traces of clusters: when jobs came, how long they ran, what they had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.spec._paths import absolute

Floats = NDArray[np.float64]
GIB = 1024**3
LONGEST_S = 1e10
"""Of a trace: three centuries."""


@dataclass(frozen=True)
class Trace:
    """N jobs in order of arrival."""

    jobs: tuple[str, ...]
    arrived_s: Floats
    """(N,) since the first."""
    duration_s: Floats
    """(N,): how long each ran with what it had."""
    needs: dict[str, Floats]
    """(N,) of each resource: cores, bytes, GPUs."""
    notes: tuple[str, ...] = ()
    """What was left out or put right, and why."""

    def __len__(self) -> int:
        return len(self.jobs)

    def between(self, from_s: float, until_s: float) -> Trace:
        """The jobs that came in this time, which begins at 0."""
        return self.pick(np.flatnonzero((self.arrived_s >= from_s) & (self.arrived_s < until_s)), from_s)

    def pick(self, rows: NDArray[np.integer], from_s: float = 0.0) -> Trace:
        """Some of the jobs; their times count from `from_s`."""
        needs = {name: amounts[rows] for name, amounts in self.needs.items()}
        jobs = tuple(self.jobs[i] for i in rows)
        return Trace(jobs, self.arrived_s[rows] - from_s, self.duration_s[rows], needs, self.notes)


def read_trace(path: str | Path, kind: str | None = None) -> Trace:
    """A trace file; `kind` is one of `READERS`, by default told by its columns.

    Raises InputError with one sentence where it cannot be read, or holds no job that ran.
    """
    frame = _frame(Path(absolute(path)))
    if kind is not None and kind not in READERS:
        raise InputError(f"There are no traces of kind '{kind}'.", f"Known: {', '.join(READERS)}.")
    for name, reader in READERS.items():
        if kind == name or (kind is None and reader.columns <= set(map(str, frame.columns))):
            missing = sorted(reader.columns - set(map(str, frame.columns)))
            if missing:
                raise InputError(f"{path} has no column {missing[0]}, which {name} traces have.", "Name its kind.")
            return _tidy(reader.read(frame), str(path))
    raise InputError(
        f"{path} is no trace that is known: its columns are {', '.join(map(str, frame.columns[:8]))}.",
        "A plain one has arrived_s, duration_s and any of gpu, cpu, memory_bytes.",
    )


def read_demand(path: str | Path) -> Floats:
    """(T,): servers that inference needs, step by step, from the column `servers` of a CSV file.

    Raises InputError where it has none, or a value that is negative or no number.
    """
    frame = _frame(Path(absolute(path)))
    if "servers" not in frame:
        raise InputError(f"{path} has no column servers.", "Give the servers that inference needs, a row a step.")
    demand = pd.to_numeric(frame["servers"], errors="coerce").to_numpy(float)
    if not len(demand) or not (np.isfinite(demand) & (demand >= 0)).all():
        raise InputError(f"{path} holds a demand that is negative or no number.", "Correct it.")
    return demand


def _frame(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, low_memory=False)
    except FileNotFoundError:
        raise InputError(f"No trace at {path}.", "Check the path.") from None
    except (OSError, UnicodeDecodeError, ValueError, EOFError) as error:
        told = " ".join(str(error).split())
        raise InputError(f"Cannot read the trace {path}: {told}.", "It is to be a CSV file, plain or .gz.") from None
    if len(frame.columns) == len(_ALIBABA) and not {"job_name", "arrived_s", "timestamp"} & set(frame.columns):
        frame = pd.read_csv(path, names=list(_ALIBABA), low_memory=False)  # published without a header
    return frame


_FAULTS: dict[str, Callable[[pd.DataFrame, list[str]], pd.Series]] = {
    "no time of arrival, or none that is a number": lambda frame, _: ~np.isfinite(frame["arrived_s"]),
    "a duration that is 0, negative or unknown": lambda frame, _: (
        ~(np.isfinite(frame["duration_s"]) & (frame["duration_s"] > 0))
    ),
    "a negative amount of a resource": lambda frame, resources: (frame[resources] < 0).any(axis=1),
    "nothing of any resource": lambda frame, resources: ~(frame[resources] > 0).any(axis=1),
    "the name of an earlier one": lambda frame, _: frame["job"].duplicated(),
}


def _tidy(frame: pd.DataFrame, source: str) -> Trace:
    """Sorted, without what has no time, nothing or the name of another; what was done is noted."""
    notes = []
    resources = [name for name in ("gpu", "cpu", "memory_bytes") if name in frame]
    numbers = frame[["arrived_s", "duration_s", *resources]].apply(pd.to_numeric, errors="coerce").astype(float)
    frame = frame[["job"]].join(numbers.fillna(dict.fromkeys(resources, 0.0)))
    for why, fault in _FAULTS.items():
        wrong = fault(frame, resources)
        if wrong.any():
            notes.append(f"{int(wrong.sum())} jobs are left out: they have {why}")
            frame = frame[~wrong]
    return _sorted(frame, [name for name in resources if (frame[name] > 0).any()], notes, source)


def _sorted(frame: pd.DataFrame, resources: list[str], notes: list[str], source: str) -> Trace:
    if frame.empty:
        raise InputError(f"{source} holds no job that ran: {'; '.join(notes) or 'it is empty'}.", "Check the file.")
    if not frame["arrived_s"].is_monotonic_increasing:
        notes.append("rows are not in order of arrival: sorted")
        frame = frame.sort_values("arrived_s", kind="stable")
    arrived = frame["arrived_s"].to_numpy(float)
    if not arrived[-1] / 2 - arrived[0] / 2 <= LONGEST_S / 2:  # halves, since a difference of floats may overflow
        raise InputError(
            f"Arrivals in {source} go from {arrived[0]:g} to {arrived[-1]:g} s, which is more than three centuries.",
            "Give them in seconds.",
        )
    amounts = {name: frame[name].to_numpy(float) for name in resources}
    jobs = tuple(frame["job"].astype(str))
    return Trace(jobs, arrived - arrived[0], frame["duration_s"].to_numpy(float), amounts, tuple(notes))


@dataclass(frozen=True)
class _Reader:
    columns: frozenset[str]
    read: Callable[[pd.DataFrame], pd.DataFrame]


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """`arrived_s, duration_s`, any of `gpu, cpu, memory_bytes`, and `job`."""
    return frame if "job" in frame else frame.assign(job=_numbered(frame))


def _philly(frame: pd.DataFrame) -> pd.DataFrame:
    """Microsoft's Philly (Jeon et al., ATC 2019), a row a job: `timestamp, duration, num_gpus`."""
    arrived = pd.to_datetime(frame["timestamp"], errors="coerce")
    seconds = (arrived - arrived.min()).dt.total_seconds()
    return pd.DataFrame(
        {"job": _numbered(frame), "arrived_s": seconds, "duration_s": frame["duration"], "gpu": frame["num_gpus"]}
    )


_ALIBABA = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip


def _alibaba(frame: pd.DataFrame) -> pd.DataFrame:
    """Alibaba's PAI (Weng et al., NSDI 2022), `pai_task_table`: a row for each role of a job.

    Cores and GPUs are in per cent, memory in GB, as its description says; a job arrives with its first role (its time
    of submission is in another table) and needs what all of its roles need. Only roles that ended well are taken: a
    job without any has no times. Kinds of GPUs are not told apart.
    """
    names = frame["job_name"].drop_duplicates()
    frame = frame[frame["status"] == "Terminated"]
    count = pd.to_numeric(frame["inst_num"], errors="coerce").fillna(1.0)
    amounts = {"cpu": ("plan_cpu", 0.01), "memory_bytes": ("plan_mem", GIB), "gpu": ("plan_gpu", 0.01)}
    needs = {
        name: pd.to_numeric(frame[column], errors="coerce").fillna(0.0) * count * unit
        for name, (column, unit) in amounts.items()
    }
    times = frame[["start_time", "end_time"]].apply(pd.to_numeric, errors="coerce")
    by_job = frame.assign(**needs, **times).groupby("job_name", sort=False)
    sums = by_job[list(needs)].sum()
    begins, ends = by_job["start_time"].min(), by_job["end_time"].max()
    return sums.assign(arrived_s=begins, duration_s=ends - begins).reindex(names).reset_index(names="job")


def _numbered(frame: pd.DataFrame) -> list[str]:
    width = len(str(len(frame)))
    return [f"job-{number:0{width}d}" for number in range(len(frame))]


READERS = {
    "plain": _Reader(frozenset({"arrived_s", "duration_s"}), _plain),
    "philly": _Reader(frozenset({"timestamp", "duration", "num_gpus"}), _philly),
    "alibaba": _Reader(frozenset(_ALIBABA), _alibaba),
}
