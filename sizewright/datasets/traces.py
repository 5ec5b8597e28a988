"""Traces of clusters: the arrival times, durations and resources of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.datasets.files.tables import check_unique_columns, read_table
from sizewright.datasets.trials.column_names import known, match_columns
from sizewright.errors import InputError
from sizewright.formatting import format_count
from sizewright.spec._paths import absolute
from sizewright.spec.units import parse_byte_count, parse_cores, parse_number, parse_seconds

Floats = NDArray[np.float64]
GIB = 1024**3
LONGEST_S = 1e10
"""The greatest length of a trace: three centuries."""


PAUSES = ("start_up_s", "change_s", "restart_s")
"""Columns of times for which a job does not train: after its first start, a change of its size, and a restart."""
LEFT_OUT = "left out since"
"""The column in which a reader states why a job is left out, such as "never ran"; empty for other jobs."""


@dataclass(frozen=True)
class Trace:
    """N jobs in order of arrival."""

    jobs: tuple[str, ...]
    arrived_s: Floats
    """Arrivals (N,) in seconds since the first."""
    duration_s: Floats
    """Running times (N,) with the resources in `needs`; NaN for jobs whose `samples` are known instead."""
    needs: dict[str, Floats]
    """Amounts (N,) of each resource: cores, bytes, GPUs."""
    notes: tuple[str, ...] = ()
    """Notes on rows that were left out or corrected, with the reason."""
    pauses: dict[str, Floats] = field(default_factory=dict)
    """Pauses (N,) by the names in `PAUSES`; NaN for jobs that state none."""
    gpu_kinds: tuple[str, ...] = ()
    """The kind of GPUs that each user requested, "" for any kind; empty if the trace does not say it."""
    curves: tuple[str, ...] = ()
    """The name of the speed curve of each job; empty if jobs have none of their own."""
    samples: Floats | None = None
    """Samples (N,) that each job trains on, from which and its curve a missing duration follows."""
    spread: Floats | None = None
    """Factor (N,) of a job's speed for each host more than it needs; NaN where the trace does not say it."""

    def __len__(self) -> int:
        return len(self.jobs)

    def between(self, from_s: float, until_s: float) -> Trace:
        """Return the jobs that arrived in this interval; their times count from its start."""
        return self.pick(np.flatnonzero((self.arrived_s >= from_s) & (self.arrived_s < until_s)), from_s)

    def pick(self, rows: NDArray[np.integer], from_s: float = 0.0) -> Trace:
        """Return the selected jobs; their times count from `from_s`."""
        return replace(
            self,
            jobs=tuple(self.jobs[i] for i in rows),
            arrived_s=self.arrived_s[rows] - from_s,
            duration_s=self.duration_s[rows],
            needs={name: amounts[rows] for name, amounts in self.needs.items()},
            gpu_kinds=tuple(self.gpu_kinds[i] for i in rows) if self.gpu_kinds else (),
            curves=tuple(self.curves[i] for i in rows) if self.curves else (),
            samples=None if self.samples is None else self.samples[rows],
            pauses={name: pause_s[rows] for name, pause_s in self.pauses.items()},
            spread=None if self.spread is None else self.spread[rows],
        )

    def pauses_of(self, name: str, default_s: float) -> Floats:
        """Return the pauses (N,) of that name in seconds, `default_s` for jobs that state none."""
        stated = self.pauses.get(name, np.full(len(self), np.nan))
        return np.where(np.isnan(stated), default_s, stated)


_PLAIN = known(
    "trace",
    ("job", "arrived_s", "duration_s", "gpu", "cpu", "memory_bytes", "gpu_kind", "curve", "samples", "spread", *PAUSES),
    {
        "job": "job_id jobid id name job_name",
        "arrived_s": "arrived arrival arrival_s arrival_time submit submit_s submit_time submitted submitted_at "
        "submitted_s submission_time submitted_time created_at creation_time timestamp time",
        "duration_s": "duration runtime runtime_s run_time run_time_s elapsed elapsed_s elapsed_time",
        "gpu": "gpus num_gpus num_gpu n_gpus gpu_num gpu_count",
        "cpu": "cpus cores num_cpus num_cpu n_cpus cpu_num cpu_count vcpus num_cores",
        "memory_bytes": "memory mem mem_bytes ram",
        "start_up_s": "start_up startup startup_s start_up_time startup_time",
        "change_s": "change_time",
        "restart_s": "restart_time",
        "gpu_kind": "gpu_type gpu_model gpu_name accelerator accelerator_type",
        "samples": "num_samples n_samples total_samples",
    },
)


def read_trace(path: str | Path, kind: str | None = None, columns: Mapping[str, str] | None = None) -> Trace:
    """Read a trace from a file, see `trace_of`. Raises InputError with one sentence where it cannot be read."""
    frame = read_table(absolute(path), "trace", headerless=_lacks_header, records=frame_of_records)
    if frame.columns[0] == "0":  # published without a header
        frame = _named(frame, str(path))
    return trace_of(frame, str(path), kind, columns)


def trace_of(
    frame: pd.DataFrame, source: str, kind: str | None = None, columns: Mapping[str, str] | None = None
) -> Trace:
    """Read a trace from a table; `kind` is one of `READERS`, by default detected by its columns.

    Errors call the table `source`. The columns of a plain trace may have other names: a synonym (`runtime`), or a name
    in `columns`, which maps a column of the table to one of a plain trace, or to "" to leave it out. Durations, times
    since the first job and amounts may have units (`1h`, `500m`, `8GB`); plain numbers are seconds, cores, bytes.

    Raises InputError with one sentence where the table cannot be read, or has no job that ran.
    """
    if kind is not None and kind not in READERS:
        raise InputError(f"There are no traces of kind '{kind}'.", f"Known: {', '.join(READERS)}.")
    frame = frame.rename(columns=lambda name: str(name).strip().lower())
    check_unique_columns(list(frame.columns), source)
    is_plain = kind == "plain" or (kind is None and READERS["plain"].columns <= set(frame.columns))
    if columns or (is_plain and LEFT_OUT not in frame):
        return _tidy(*_rename_columns(frame, columns or {}, source), source)
    for name, reader in READERS.items():
        if kind == name or (kind is None and reader.columns <= set(frame.columns)):
            missing = sorted(reader.columns - set(frame.columns))
            if missing:
                raise InputError(f"{source} has no column {missing[0]}, which {name} traces have.", "Name its kind.")
            return _tidy(reader.read(frame), [], source)
    meanings = {_PLAIN.meaning(name) for name in frame.columns}
    if "arrived_s" in meanings and meanings & {"duration_s", "samples"}:
        return _tidy(*_rename_columns(frame, {}, source), source)
    raise InputError(
        f"{source} is not a trace of a known kind: its columns are {', '.join(frame.columns[:12])}.",
        "A plain trace has arrived_s, duration_s or samples, and any of gpu, cpu, memory_bytes; map your columns to "
        "these, such as by --map YOUR_COLUMN=arrived_s (columns= in Python).",
    )


def _rename_columns(frame: pd.DataFrame, mapping: Mapping[str, str], path: str) -> tuple[pd.DataFrame, list[str]]:
    """Rename the columns of a plain trace, and return notes on how they were read.

    Raises InputError where a column is missing.
    """
    mapping = {name.strip().lower(): column for name, column in mapping.items()}
    matched = match_columns(list(frame.columns), mapping, path, _PLAIN)
    renamed = frame[list(matched.read_as)].rename(columns=matched.read_as)
    if "samples" in renamed and "duration_s" not in renamed:
        renamed["duration_s"] = np.nan  # it follows from the samples and the speed of the job
    if missing := [name for name in ("arrived_s", "duration_s") if name not in renamed]:
        raise InputError(
            f"{path} has no column {missing[0]}; it has {', '.join(frame.columns[:12])}.",
            f"Rename your column, or map it: --map YOUR_COLUMN={missing[0]} (columns= in Python).",
        )
    return _plain(renamed), [note.rstrip(".") for note in (matched.describe(),) if note]


def read_demand(path: str | Path) -> Floats:
    """Read the servers (T,) that inference needs in each step, from the column `servers` of a CSV file.

    Raises InputError where there is no such column, or a value is negative or not a number.
    """
    frame = read_table(absolute(path), "demand")
    if "servers" not in frame:
        raise InputError(f"{path} has no column servers.", "Add the servers that inference needs, one row per step.")
    demand = pd.to_numeric(frame["servers"], errors="coerce").to_numpy(float)
    if not len(demand) or not (np.isfinite(demand) & (demand >= 0)).all():
        raise InputError(f"{path} has a demand that is negative or not a number.", "Correct it.")
    return demand


_FAULTS: dict[str, Callable[[pd.DataFrame, list[str]], pd.Series]] = {
    "no time of arrival, or none that is a number or a date": lambda frame, _: ~np.isfinite(frame["arrived_s"]),
    "a duration that is 0, negative or unknown": lambda frame, _: (
        ~(np.isfinite(frame["duration_s"]) & (frame["duration_s"] > 0))
        & ~(frame["duration_s"].isna() & np.isfinite(frame["samples"]) & (frame["samples"] > 0))
    ),
    "a spread that does not lie above 0 and up to 1": lambda frame, _: (
        frame["spread"].notna() & ~((frame["spread"] > 0) & (frame["spread"] <= 1))
    ),
    "an amount of a resource that is not a number": lambda frame, resources: frame[resources].isna().any(axis=1),
    "a negative amount of a resource": lambda frame, resources: (frame[resources] < 0).any(axis=1),
    "nothing of any resource": lambda frame, resources: ~(frame[resources] > 0).any(axis=1),
    "a pause that is negative or not a number": lambda frame, _: (
        (frame[_pauses_in(frame)] < 0) | np.isinf(frame[_pauses_in(frame)])
    ).any(axis=1),
    "the name of an earlier one": lambda frame, _: frame["job"].duplicated(),
}


def _tidy(frame: pd.DataFrame, notes: list[str], source: str) -> Trace:
    """Build the trace in order of arrival, without invalid jobs; each correction adds a note."""
    resources = [name for name in ("gpu", "cpu", "memory_bytes") if name in frame]
    if LEFT_OUT in frame:
        left_out = frame[LEFT_OUT].fillna("").astype(str)
        for reason, count in left_out[left_out != ""].value_counts(sort=False).items():
            notes.append(_left_out(int(count), "it", "they", str(reason)))
        frame = frame[left_out == ""]
    arrived, note = _seconds(frame["arrived_s"])
    notes += note
    cells = frame[resources].replace(r"^\s*$", np.nan, regex=True)
    amounts = cells.apply(lambda column: _numbers(column, _AMOUNTS[str(column.name)])).replace(
        [np.inf, -np.inf], np.nan
    )
    amounts = amounts.mask(cells.isna(), 0.0)  # empty means 0; other text that is not a number stays unknown
    durations = _numbers(frame["duration_s"], parse_seconds)
    stated = frame[_pauses_in(frame)].replace(r"^\s*$", np.nan, regex=True)
    pauses = stated.apply(lambda column: _numbers(column, parse_seconds))
    pauses = pauses.mask(pauses.isna() & stated.notna(), -1.0)  # text that is not a time is no pause
    frame = frame.assign(
        arrived_s=arrived,
        duration_s=durations,
        samples=_numbers(frame["samples"], parse_number) if "samples" in frame else np.nan,
        spread=_spreads(frame["spread"]) if "spread" in frame else np.nan,
        **{name: _texts(frame[name]) if name in frame else "" for name in ("gpu_kind", "curve")},
    )
    frame = (
        frame[["job", "arrived_s", "duration_s", "samples", "spread", "gpu_kind", "curve"]].join(amounts).join(pauses)
    )
    for reason, fault in _FAULTS.items():
        wrong = fault(frame, resources)
        if wrong.any():
            notes.append(_left_out(int(wrong.sum()), "it has", "they have", reason))
            frame = frame[~wrong]
    return _sorted(frame, [name for name in resources if (frame[name] > 0).any()], notes, source)


_AMOUNTS: dict[str, Callable[[Any], float]] = {
    "gpu": parse_number, "cpu": parse_cores, "memory_bytes": parse_byte_count,
}  # fmt: skip


def _numbers(column: pd.Series, parse: Callable[[Any], float]) -> pd.Series:
    """Convert numbers, and texts with units; anything else is NaN."""
    if pd.api.types.is_timedelta64_dtype(column):
        return pd.Series(column.dt.total_seconds())
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    texts = column[numbers.isna() & column.notna()].astype(str)
    for at, text in texts[~texts.str.contains(_DATE)].items():
        with suppress(ValueError):
            numbers.at[at] = parse(text)
    return numbers


def _spreads(column: pd.Series) -> pd.Series:
    """Convert numbers; text that is not a number is 0, which is none of the valid ones, and empty cells are NaN."""
    is_empty = column.isna() | (column.astype(str).str.strip() == "")
    return _numbers(column, parse_number).fillna(0.0).mask(is_empty, np.nan)


def _texts(column: pd.Series) -> pd.Series:
    """Return stripped texts, "" where a cell is empty; whole numbers have no decimals."""
    return column.map(
        lambda cell: "" if pd.isna(cell) else str(int(cell) if isinstance(cell, float) and cell % 1 == 0 else cell)
    ).str.strip()


_DATE = r"\d-\d+-\d|/"


def _left_out(count: int, one: str, many: str, reason: str) -> str:
    return f"{count:,} jobs are left out: {many} {reason}" if count > 1 else f"1 job is left out: {one} {reason}"


def _seconds(column: pd.Series) -> tuple[pd.Series, list[str]]:
    """Convert times to seconds, and return notes on assumptions. Dates without a zone are taken as UTC."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return _dated(column), []
    numbers = _numbers(column, parse_seconds)
    if not column.empty and numbers.isna().all() and column.notna().any():
        return _dated(column), []
    finite = numbers[np.isfinite(numbers)]
    if finite.empty or finite.min() < _MILLISECONDS_FROM:
        return numbers, []
    unit, per_second = next((unit, per_second) for minimum, unit, per_second in _UNITS if finite.min() >= minimum)
    return numbers / per_second, [f"times are taken as {unit} since 1970"]


_MILLISECONDS_FROM = 1e11
"""A larger time since 1970 would be after the year 5000 in seconds, and is after 1973 in milliseconds."""
_UNITS = ((1e17, "nanoseconds", 1e9), (1e14, "microseconds", 1e6), (_MILLISECONDS_FROM, "milliseconds", 1e3))


def _dated(column: pd.Series) -> pd.Series:
    """Convert dates to seconds since 1970; other text is NaN."""
    texts = column.astype(str).str.strip()
    dates = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
    if dates.isna().all():
        dates = pd.to_datetime(texts, errors="coerce", utc=True, format="mixed", dayfirst=_begin_with_days(texts))
    return (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()


def _begin_with_days(texts: pd.Series) -> bool:
    """Return whether dates such as 01.02.2026 and 13/02/2026 begin with the day.

    Raises InputError where all of them are ambiguous.
    """
    parts = texts.str.extract(r"^(\d{1,2})([./-])(\d{1,2})\2\d{2,4}\b").dropna()
    if parts.empty or (parts[1] == ".").all():
        return not parts.empty
    first, second = parts[0].astype(int).max(), parts[2].astype(int).max()
    if first <= 12 and second <= 12:
        raise InputError(
            f"The date {texts[parts.index[0]]!r} is ambiguous: it could begin with the day or with the month.",
            "Write dates such as 2026-02-01.",
        )
    return bool(first > 12)


def _sorted(frame: pd.DataFrame, resources: list[str], notes: list[str], source: str) -> Trace:
    if frame.empty:
        raise InputError(f"{source} has no job that ran: {'; '.join(notes) or 'it is empty'}.", "Check the file.")
    if not frame["arrived_s"].is_monotonic_increasing:
        notes.append("rows were not in order of arrival and are sorted")
        frame = frame.sort_values("arrived_s", kind="stable")
    arrived = frame["arrived_s"].to_numpy(float)
    if not arrived[-1] / 2 - arrived[0] / 2 <= LONGEST_S / 2:  # halves, since a difference of floats may overflow
        raise InputError(
            f"Arrivals in {source} go from {arrived[0]:g} to {arrived[-1]:g} s, which is more than three centuries.",
            "Give them in seconds.",
        )
    amounts = {name: frame[name].to_numpy(float) for name in resources}
    kinds, curves = (tuple(frame[name]) if (frame[name] != "").any() else () for name in ("gpu_kind", "curve"))
    samples, spread = (
        frame[name].to_numpy(float) if frame[name].notna().any() else None for name in ("samples", "spread")
    )
    return Trace(
        jobs=tuple(frame["job"].astype(str)),
        arrived_s=arrived - arrived[0],
        duration_s=frame["duration_s"].to_numpy(float),
        needs=amounts,
        notes=tuple(notes),
        gpu_kinds=kinds,
        curves=curves,
        samples=samples,
        spread=spread,
        pauses={name: frame[name].to_numpy(float) for name in _pauses_in(frame)},
    )


def _pauses_in(frame: pd.DataFrame) -> list[str]:
    return [name for name in PAUSES if name in frame]


@dataclass(frozen=True)
class _Reader:
    columns: frozenset[str]
    read: Callable[[pd.DataFrame], pd.DataFrame]


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Read a plain trace: `arrived_s`, `duration_s` or `samples`, any of `gpu, cpu, memory_bytes`, and other columns.

    The others are `job`, `gpu_kind`, `curve` and `spread`.
    """
    return frame if "job" in frame else frame.assign(job=_numbered(frame))


def _philly(frame: pd.DataFrame) -> pd.DataFrame:
    """Read Microsoft's Philly (Jeon et al., ATC 2019) with one row per job: `timestamp, duration, num_gpus`."""
    return pd.DataFrame(
        {
            "job": _numbered(frame), "arrived_s": frame["timestamp"], "duration_s": frame["duration"],
            "gpu": frame["num_gpus"],
        }
    )  # fmt: skip


def frame_of_records(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Make a table of JSON records: Philly's as published, with the attempts of each job; else a column per key."""
    if not any("attempts" in job for job in records):
        return pd.DataFrame(records)
    return pd.DataFrame([_philly_job(job, number) for number, job in enumerate(records)])


def _philly_job(job: dict[str, Any], number: int) -> dict[str, Any]:
    """Make a row of a Philly job: the sum of the durations of its attempts, and the most GPUs of one attempt."""
    attempts = [each for each in job.get("attempts") or [] if isinstance(each, dict)]
    times = pd.DataFrame(
        [(each.get("start_time"), each.get("end_time")) for each in attempts], columns=["begun", "ended"]
    )
    seconds = (_dated(times["ended"]) - _dated(times["begun"])).to_numpy(float)
    gpus = [
        sum(len(machine.get("gpus") or []) for machine in each.get("detail") or [] if isinstance(machine, dict))
        for each in attempts
    ]
    ran = [(s, g) for s, g in zip(seconds, gpus, strict=True) if np.isfinite(s)]
    reason = "" if ran else "never ended" if times["begun"].notna().any() else "never ran"
    return {
        "job": job.get("jobid") or f"job-{number}", "arrived_s": job.get("submitted_time"),
        "duration_s": sum(s for s, _ in ran), "gpu": max((g for _, g in ran), default=0), LEFT_OUT: reason,
    }  # fmt: skip


def _helios(frame: pd.DataFrame) -> pd.DataFrame:
    """Read SenseTime's Helios (Hu et al., SC 2021) or Shanghai AI Laboratory's Acme (Hu et al., NSDI 2024)."""
    optional = {"cpu": frame["cpu_num"]} if "cpu_num" in frame else {}
    names = frame["job_id"].astype(str) if "job_id" in frame else _numbered(frame)
    return pd.DataFrame(
        {"job": names, "arrived_s": frame["submit_time"], "duration_s": frame["duration"], "gpu": frame["gpu_num"]}
        | optional
    )


def _openb(frame: pd.DataFrame) -> pd.DataFrame:
    """Read `openb_pod_list` of Alibaba's GPU trace of 2023 (Weng et al., ATC 2023), with one row per pod.

    Shared GPUs are fractions. A pod runs from the time it was scheduled until it was deleted.
    """
    numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in _OPENB - {"name"}}
    begun, ended = numbers["scheduled_time"], numbers["deletion_time"]
    reason = np.where(begun.isna(), "never ran", np.where(ended.isna(), "never ended", ""))
    return pd.DataFrame(
        {
            "job": frame["name"], "arrived_s": frame["creation_time"], "duration_s": ended - begun,
            "gpu": numbers["num_gpu"] * numbers["gpu_milli"] / 1000, "cpu": numbers["cpu_milli"] / 1000,
            "memory_bytes": numbers["memory_mib"] * 1024**2, LEFT_OUT: reason,
        }
    )  # fmt: skip


_OPENB = frozenset(
    {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"}
)
_ALIBABA = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
_STATUSES = {"terminated", "failed", "running", "waiting", "interrupted", "ready", "cancelled"}
_OTHER_ALIBABA_TABLES = {6: (3, "pai_job_table"), 9: (5, "pai_instance_table")}
"""Alibaba's tables without the requested resources: number of columns, index of the status, name."""


def _lacks_header(first: list[str]) -> bool:
    """Return whether a first row is a job of Alibaba's tables, which are published without a header."""
    return any(len(first) > place and first[place].lower() in _STATUSES for place in (3, 5))


def _named(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Name the columns of Alibaba's table of tasks. Raises InputError for another of its tables."""
    width = len(frame.columns)
    if width != len(_ALIBABA):
        name = _OTHER_ALIBABA_TABLES.get(width, (0, "a table that is not known"))[1]
        raise InputError(
            f"{source} has {format_count(width, 'column')} and no header, like Alibaba's {name}, which lacks the "
            "resources that jobs requested.",
            f"Use pai_task_table, with {len(_ALIBABA)} columns, or add a header.",
        )
    return frame.set_axis(list(_ALIBABA), axis=1)


def _alibaba(frame: pd.DataFrame) -> pd.DataFrame:
    """Read `pai_task_table` of Alibaba's PAI (Weng et al., NSDI 2022), with one row for each role of a job.

    Cores and GPUs are in per cent, memory in GB, as its documentation says. A job arrives with its first role (its
    submission time is in another table) and needs the sum of its roles. Only roles that succeeded count: a job without
    any has no times. Kinds of GPUs are not distinguished.
    """
    status = frame["status"].astype(str).str.strip()
    by_job = status.groupby(frame["job_name"], sort=False)
    statuses = by_job.agg(lambda each: "" if "Terminated" in set(each) else ", ".join(sorted(set(each))))
    frame = frame[status == "Terminated"]
    count = pd.to_numeric(frame["inst_num"], errors="coerce").fillna(1.0)
    amounts = {"cpu": ("plan_cpu", 0.01), "memory_bytes": ("plan_mem", GIB), "gpu": ("plan_gpu", 0.01)}
    needs = {
        name: pd.to_numeric(frame[column], errors="coerce").fillna(0.0) * count * unit
        for name, (column, unit) in amounts.items()
    }
    times = frame[["start_time", "end_time"]].apply(pd.to_numeric, errors="coerce")
    grouped = frame.assign(**needs, **times).groupby("job_name", sort=False)
    sums = grouped[list(needs)].sum()
    begins, ends = grouped["start_time"].min(), grouped["end_time"].max()
    jobs_frame = sums.assign(arrived_s=begins, duration_s=ends - begins).reindex(statuses.index)
    jobs_frame[LEFT_OUT] = statuses.map(lambda records: f"did not succeed ({records})" if records else "")
    return jobs_frame.reset_index(names="job")


def _numbered(frame: pd.DataFrame) -> list[str]:
    width = len(str(len(frame)))
    return [f"job-{number:0{width}d}" for number in range(len(frame))]


READERS = {
    "plain": _Reader(frozenset({"arrived_s", "duration_s"}), _plain),
    "philly": _Reader(frozenset({"timestamp", "duration", "num_gpus"}), _philly),
    "alibaba": _Reader(frozenset(_ALIBABA), _alibaba),
    "openb": _Reader(_OPENB, _openb),
    "helios": _Reader(frozenset({"submit_time", "duration", "gpu_num"}), _helios),
}
