"""Load the jobs that share a cluster, with their candidates, from a jobs file and the files that it names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizewright.api._records import QueueLike, StoreLike, as_record, named_rows, rows_in
from sizewright.api.inputs import load_job
from sizewright.api.sizing import recommend
from sizewright.cluster.problem.candidates import JobTable
from sizewright.datasets._columns import plain_type
from sizewright.datasets.files.table_files import FileRow, read_table
from sizewright.errors import InputError, NotEnoughDataError, NoTrialsError
from sizewright.spec import Allocation, Candidate, Cluster, Job, LeftOut, Plan, Queue, QueuedJob, Recommendation
from sizewright.spec._base import parse
from sizewright.spec.queue import CandidateRow
from sizewright.task_progress import part

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike


def as_queue(source: QueueLike) -> Queue:
    """Return the jobs of a cluster from a jobs file, its record, or a list of jobs.

    Entries of a list may hold records and data frames where a file names other files. Raises JobError, or InputError
    for a value of another type.
    """
    if isinstance(source, Queue | str | os.PathLike):
        return as_record(Queue, source, "queue of jobs")
    if isinstance(source, Job) or (isinstance(source, Mapping) and "jobs" not in source):
        source = [source]
    entries = source.get("jobs") if isinstance(source, Mapping) else source
    if not isinstance(entries, list | tuple):
        raise InputError(
            f"The queue of jobs is of type {type(source).__name__}.",
            "Pass the path of a jobs file, or a list of jobs or of dicts with its keys.",
        )
    other_keys = {key: value for key, value in source.items() if key != "jobs"} if isinstance(source, Mapping) else {}
    return as_record(Queue, other_keys | {"jobs": [_entry(entry) for entry in entries]}, "queue of jobs")


def _entry(value: Any) -> Any:
    """Return one job of the queue with files loaded as records; what is not understood is left to the validation."""
    if isinstance(value, Job | str | os.PathLike) or (isinstance(value, Mapping) and _is_job_mapping(value)):
        return {"job": load_job(value if not isinstance(value, os.PathLike) else Path(value))}
    if not isinstance(value, Mapping) or not isinstance(value.get("job"), str | os.PathLike | Job | Mapping):
        return value
    entry = dict(value) | {"job": load_job(value["job"])}
    sources = [key for key in ("recommendation", "table", "candidates") if entry.get(key) is not None]
    if len(sources) > 1:
        raise InputError(f"{entry['job'].name} has {sources[0]} and {sources[1]}.", "Give only one of them.")
    for key in ("table", "candidates"):
        if hasattr(entry.get(key), "columns") or (key == "table" and isinstance(entry.get(key), list | Mapping)):
            rows = named_rows(rows_in(entry.pop(key)))
            if not rows:
                raise InputError(f"The table of {entry['job'].name} has no rows.", "Give it a row for each candidate.")
            entry["candidates"] = _candidates(rows, "The table", entry["job"])
    if isinstance(entry.get("recommendation"), Mapping):
        entry["recommendation"] = as_record(Recommendation, entry["recommendation"], "recommendation")
    if isinstance(entry.get("current"), Plan):
        entry["current"] = entry["current"].target
    return {key: str(item) if isinstance(item, os.PathLike) else item for key, item in entry.items()}


def _is_job_mapping(value: Mapping[Any, Any]) -> bool:
    return "job" not in value and "name" in value and set(map(str, value)) <= Job.model_fields.keys()


def tables_in(
    queue: Queue, cluster: Cluster, store: StoreLike | None, prior: PriorLike
) -> tuple[list[JobTable], dict[str, Job], list[LeftOut]]:
    """Return the candidate tables of the jobs, the jobs by name, and the jobs that are left out.

    A job of unknown speed is left out if it waits, and keeps its allocation if it runs. Raises JobError or InputError
    for invalid files.
    """
    tables = list[JobTable]()
    jobs = dict[str, Job]()
    left_out = list[LeftOut]()
    last_arrival_s = max((queued.arrived for queued in queue.jobs if queued.arrived is not None), default=0.0)
    for number, queued in enumerate(queue.jobs):
        job = load_job(queued.job)
        with part("sizing jobs", number, len(queue.jobs)):
            loaded = _load_candidates(job, queued, cluster, store, prior)
        current, kept_because = _current(queued, job), ""
        if isinstance(loaded, LeftOut):
            if current is None:
                left_out.append(loaded)
                continue
            kept_because = f"{loaded.why.rstrip('.')}; it keeps its current allocation."
            loaded = (), None
        candidates, requested = loaded
        jobs.setdefault(job.name, job)
        # Unknown only for a job that keeps its allocation, whose utility is not used.
        remaining = queued.samples_left or job.samples or 1.0
        table = JobTable(
            name=job.name,
            candidates=candidates,
            samples_left=remaining,
            samples=max(job.samples or remaining, remaining),
            current=current,
            requested=requested,
            arrived_s=last_arrival_s + number if queued.arrived is None else queued.arrived,
            ran_s=queued.ran,
            servers=queued.servers,
            restart_s=queued.restart,
            change_price=queued.change_price,
            may_wait=queued.may_wait,
            kept_because=kept_because,
        )
        tables.append(table)
    return tables, jobs, left_out


def _load_candidates(
    job: Job, queued: QueuedJob, cluster: Cluster, store: StoreLike | None, prior: PriorLike
) -> tuple[tuple[Candidate, ...], Allocation | None] | LeftOut:
    """Return the candidates and the recommended allocation, or why the job is left out."""
    if not (queued.samples_left or job.samples):
        why = "neither its file (training.samples) nor the queue (samples_left) says how many samples it trains."
        return LeftOut(job=job.name, what="the job", why=why)
    if queued.candidates:
        return queued.candidates, None
    if queued.table:
        return _read_candidates(queued.table, job), None
    try:
        if queued.recommendation:
            recommendation = _load_recommendation(queued.recommendation, job)
        else:
            recommendation = recommend(job, store=store, cluster=cluster, prior=prior)
    except (NoTrialsError, NotEnoughDataError) as error:
        return LeftOut(job=job.name, what="the job", why=f"its speed is unknown: {error.message}")
    if recommendation.target is None:
        remedy = f" ({recommendation.remedies[0].text})" if recommendation.remedies else ""
        why = f"its recommendation is '{recommendation.status}'{remedy}"
        return LeftOut(job=job.name, what="the job", why=why)
    candidates = tuple(
        Candidate(
            allocation=alternative.allocation,
            throughput=alternative.throughput.value,
            interval=(alternative.throughput.lower, alternative.throughput.upper),
        )
        for alternative in recommendation.alternatives
    )
    return candidates, recommendation.target


def _load_recommendation(source: str | Recommendation, job: Job) -> Recommendation:
    recommendation = as_record(Recommendation, source, "recommendation")
    if recommendation.job != job.name:
        label = source if isinstance(source, str) else "The recommendation"
        raise InputError(
            f"{label} is for the job {recommendation.job}, not for {job.name}.", f"Pass one for {job.name}."
        )
    return recommendation


_COLUMNS = {name: plain_type(field.annotation) for name, field in CandidateRow.model_fields.items()}


def _read_candidates(path: str, job: Job) -> tuple[Candidate, ...]:
    table = read_table(path, is_known=_COLUMNS.__contains__, is_number=lambda name: _COLUMNS.get(name) in (int, float))
    return _candidates(table.rows, path, job)


def _candidates(rows: Iterable[FileRow], source: str, job: Job) -> tuple[Candidate, ...]:
    """Return a candidate per row; an empty cell counts as absent."""
    candidates = []
    for row in rows:
        cells = {name: cell for name, cell in row.cells.items() if cell not in ("", None)}
        candidate = parse(CandidateRow, cells, f"{source}, {row.where}")
        candidates.append(candidate.candidate(job.batch_size_for(candidate.workers)))
    return tuple(candidates)


def _current(queued: QueuedJob, job: Job) -> Allocation | None:
    if not isinstance(queued.current, str):
        return queued.current
    plan = Plan.load(queued.current)
    if plan.job.name != job.name:
        raise InputError(
            f"{queued.current} is a plan for the job {plan.job.name}, not for {job.name}.",
            f"Pass a plan for {job.name}.",
        )
    return plan.target
