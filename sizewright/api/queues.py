"""Jobs that share a cluster, as the allocation problem takes them: from a jobs file and what it names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizewright.api._records import QueueLike, StoreLike, as_record, named_rows, rows_in
from sizewright.api.inputs import load_job
from sizewright.api.sizing import recommend
from sizewright.cluster.candidates import JobTable
from sizewright.datasets._columns import plain_type
from sizewright.datasets.table_files import Row, read_table
from sizewright.errors import InputError, NotEnoughDataError, NoTrialsError
from sizewright.how_far import part
from sizewright.spec import Allocation, Candidate, Cluster, Job, LeftOut, Plan, Queue, QueuedJob, Recommendation
from sizewright.spec._base import parse
from sizewright.spec.queue import CandidateRow

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike


def as_queue(given: QueueLike) -> Queue:
    """The jobs file, its record, or its jobs as a list, whose entries may hold records and data frames for files.

    Raises JobError for what cannot be one.
    """
    if isinstance(given, Queue | str | os.PathLike):
        return as_record(Queue, given, "queue of jobs")
    if isinstance(given, Job) or (isinstance(given, Mapping) and "jobs" not in given):
        given = [given]
    entries = given.get("jobs") if isinstance(given, Mapping) else given
    if not isinstance(entries, list | tuple):
        raise InputError(
            f"The queue of jobs is of type {type(given).__name__}.",
            "Pass the path of a jobs file, or a list of jobs or of dicts with its keys.",
        )
    others = {name: each for name, each in given.items() if name != "jobs"} if isinstance(given, Mapping) else {}
    return as_record(Queue, others | {"jobs": [_entry(each) for each in entries]}, "queue of jobs")


def _entry(given: Any) -> Any:
    """One job, with what its names stand for as records; what is not understood is left for the record to refuse."""
    if isinstance(given, Job | str | os.PathLike) or (isinstance(given, Mapping) and _is_a_job(given)):
        return {"job": load_job(given if not isinstance(given, os.PathLike) else Path(given))}
    if not isinstance(given, Mapping) or not isinstance(given.get("job"), str | os.PathLike | Job | Mapping):
        return given
    entry = dict(given) | {"job": load_job(given["job"])}
    brings = [name for name in ("recommendation", "table", "candidates") if entry.get(name) is not None]
    if len(brings) > 1:
        raise InputError(f"{entry['job'].name} has {brings[0]} and {brings[1]}.", "Give one of them.")
    for name in ("table", "candidates"):
        if hasattr(entry.get(name), "columns") or (name == "table" and isinstance(entry.get(name), list | Mapping)):
            rows = named_rows(rows_in(entry.pop(name)))
            if not rows:
                raise InputError(f"The table of {entry['job'].name} brings no candidates.", "Give it a row for each.")
            entry["candidates"] = _candidates(rows, "The table", entry["job"])
    if isinstance(entry.get("recommendation"), Mapping):
        entry["recommendation"] = as_record(Recommendation, entry["recommendation"], "recommendation")
    if isinstance(entry.get("current"), Plan):
        entry["current"] = entry["current"].target
    return {name: str(each) if isinstance(each, os.PathLike) else each for name, each in entry.items()}


def _is_a_job(given: Mapping[Any, Any]) -> bool:
    return "job" not in given and "name" in given and set(map(str, given)) <= Job.model_fields.keys()


def tables_in(queue: Queue, cluster: Cluster, store: StoreLike | None, prior: PriorLike) -> tuple[
    list[JobTable], dict[str, Job], list[LeftOut]
]:  # fmt: skip
    """Tables and jobs by name; jobs that nothing is known of are left out, or go on with what they have.

    Raises JobError or InputError for files that are not what they should be.
    """
    tables, jobs, left_out = list[JobTable](), dict[str, Job](), list[LeftOut]()
    last = max((queued.arrived for queued in queue.jobs if queued.arrived is not None), default=0.0)
    for number, queued in enumerate(queue.jobs):
        job = load_job(queued.job)
        with part("sizing jobs", number, len(queue.jobs)):
            answer = _answer(job, queued, cluster, store, prior)
        current, fixed = _current(queued, job), ""
        if isinstance(answer, LeftOut):
            if current is None:
                left_out.append(answer)
                continue
            fixed, answer = f"{answer.why.rstrip('.')}; it goes on with what it has.", ((), None)
        candidates, requested = answer
        jobs.setdefault(job.name, job)
        left = queued.samples_left or job.samples or 1.0  # unknown only where it goes on, and nothing is weighed
        table = JobTable(
            name=job.name, candidates=candidates, samples_left=left, samples=max(job.samples or left, left),
            current=current, requested=requested,
            arrived_s=last + number if queued.arrived is None else queued.arrived, ran_s=queued.ran,
            held=queued.servers, restart_s=queued.restart, change_price=queued.change_price, may_wait=queued.may_wait,
            fixed=fixed,
        )  # fmt: skip
        tables.append(table)
    return tables, jobs, left_out


def _answer(
    job: Job, queued: QueuedJob, cluster: Cluster, store: StoreLike | None, prior: PriorLike
) -> tuple[tuple[Candidate, ...], Allocation | None] | LeftOut:
    """Candidates, and the one that is asked for."""
    if not (queued.samples_left or job.samples):
        why = "neither its file (training.samples) nor the queue (samples_left) says how many samples it trains"
        return LeftOut(job=job.name, what="the job", why=f"{why}.")
    if queued.candidates:
        return queued.candidates, None
    if queued.table:
        return _rows(queued.table, job), None
    told = "its recommendation"
    try:
        found = _recommendation(queued.recommendation, job) if queued.recommendation else None
        found = found or recommend(job, store=store, cluster=cluster, prior=prior)
    except (NoTrialsError, NotEnoughDataError) as error:
        return LeftOut(job=job.name, what="the job", why=f"nothing tells how fast it is: {error.message}")
    if found.target is None:
        remedy = f" ({found.remedies[0].text})" if found.remedies else ""
        return LeftOut(job=job.name, what="the job", why=f"{told} is '{found.status}'{remedy}")
    return tuple(
        Candidate(
            allocation=each.allocation, throughput=each.throughput.value,
            interval=(each.throughput.lower, each.throughput.upper),
        )
        for each in found.alternatives
    ), found.target  # fmt: skip


def _recommendation(given: str | Recommendation, job: Job) -> Recommendation:
    found = as_record(Recommendation, given, "recommendation")
    if found.job != job.name:
        what = given if isinstance(given, str) else "It"
        raise InputError(f"{what} is the recommendation for {found.job}, and the job is {job.name}.", "Give its own.")
    return found


_CELLS = {name: plain_type(field.annotation) for name, field in CandidateRow.model_fields.items()}


def _rows(path: str, job: Job) -> tuple[Candidate, ...]:
    table = read_table(path, is_known=_CELLS.__contains__, is_number=lambda name: _CELLS.get(name) in (int, float))
    return _candidates(table.rows, path, job)


def _candidates(rows: Iterable[Row], source: str, job: Job) -> tuple[Candidate, ...]:
    """Empty cells are absent."""
    return tuple(
        parse(CandidateRow, {name: cell for name, cell in row.cells.items() if cell not in ("", None)},
              f"{source}, {row.where}").candidate(job.training.batch_size)
        for row in rows
    )  # fmt: skip


def _current(queued: QueuedJob, job: Job) -> Allocation | None:
    if not isinstance(queued.current, str):
        return queued.current
    plan = Plan.load(queued.current)
    if plan.job.name != job.name:
        raise InputError(f"{queued.current} is a plan for {plan.job.name}, and the job is {job.name}.", "Name its own.")
    return plan.target
