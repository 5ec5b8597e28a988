"""Reconstruct finished jobs from Slurm's accounting: allocation, usage and outcome.

A replica is a task of the longest step of its job; a job without steps of `srun` has one replica, its script. The
components of a heterogeneous job are its roles, as the executor `slurm` submits them; other jobs have workers only.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from sizewright.datasets.files.table_files import check_json_size, check_table_size, read_text
from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.datasets.runs.sacct import COMMAND, UNFINISHED_STATES, SacctJob, SacctStep, read_table
from sizewright.datasets.runs.sacct_json import read_document
from sizewright.errors import StoreError
from sizewright.redaction import shortened
from sizewright.spec import ROLES, Allocation, Failure, Gpu, Group, Job, Outcome, Role
from sizewright.spec._paths import absolute
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count
from sizewright.task_progress import steps

_LOG = logging.getLogger(__name__)
_OOM = "OUT_OF_MEMORY"
_STATUSES: dict[str, Status] = {
    "COMPLETED": "finished", "CANCELLED": "stopped", "REVOKED": "stopped", "PREEMPTED": "failed", "FAILED": "failed",
    "TIMEOUT": "failed", "DEADLINE": "failed", "NODE_FAIL": "failed", "BOOT_FAIL": "failed", "LAUNCH_FAILED": "failed",
    _OOM: "failed",
}  # fmt: skip


class _Component(NamedTuple):
    """One role of a job, and the step whose tasks are its replicas."""

    role: Role
    job: SacctJob
    step: SacctStep

    @property
    def group(self) -> Group:
        """The replicas, with their shares of what Slurm allocated."""
        memory = self.step.tres.get("mem") or self.job.memory_bytes
        tasks = self.step.tasks
        return Group(replicas=tasks, cpu=self.step.cpus / tasks, memory_bytes=memory // tasks, gpu=self._gpu())

    @property
    def usage(self) -> JobUsage:
        """The peak memory of a replica and its mean cores, where Slurm measured them."""
        task_s = self.step.elapsed_s * self.step.tasks
        return JobUsage(
            memory_peak_bytes=self.step.memory_peak_bytes or None,
            cpu_used=self.step.cpu_s / task_s if self.step.cpu_s and task_s else None,
        )

    @property
    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel ended the component, or one of its steps, for its memory."""
        return any(_word(state) == _OOM for state in (self.job.state, *(step.state for step in self.job.steps)))

    def _gpu(self) -> Gpu | None:
        counts = {name: count for name, count in self.step.tres.items() if name.startswith("gres/gpu")}
        kinds = [name.partition(":")[2] for name in counts if ":" in name]
        count = max(counts.values(), default=0) // self.step.tasks
        if not count:
            return None
        return Gpu(count=count, kind=kinds[0]) if len(kinds) == 1 else Gpu(count=count)


def jobs_of_sacct(paths: Sequence[str | Path], *, job: Job | None = None) -> list[FinishedJob]:
    """Return the jobs that have ended, of files with the output of `sacct --parsable2` or `sacct --json`.

    Jobs that never started a step are left out, and so are those whose steps ran side by side within one component,
    since the roles of their tasks are unknown. `job` describes the jobs that have its name. Throughput is unknown for
    all of them.

    Raises StoreError for a file that cannot be read, with the line and a remedy, and where no file has such a job.
    """
    runs: dict[str, FinishedJob] = {}
    unfinished = unstarted = mixed = 0
    records = [record for path in paths for record in _read(Path(absolute(path)))]
    for components in steps("reading jobs", _runs(records)):
        if any(_status(each) == "running" for each in components):
            unfinished += 1
        elif any(each.start_s is None or _main_step(each) is None for each in components):
            unstarted += 1
        elif len(components) > len(ROLES) or any(_has_parallel_steps(each) for each in components):
            mixed += 1
        else:
            run = _finished_job(components, job)
            runs[run.id] = run
    others = [f"{unfinished} not finished"] * bool(unfinished)
    others += [f"{unstarted} without a step"] * bool(unstarted)
    others += [f"{mixed} whose tasks have unknown roles"] * bool(mixed)
    if not runs:
        raise StoreError(
            f"There is no job to add in {', '.join(map(str, paths))}: {' and '.join(others) or 'it has none at all'}.",
            f"Ask for jobs that have ended, with their steps (without -X): {COMMAND} --starttime=now-7days",
        )
    if job and not any(run.job for run in runs.values()):
        names = sorted({run.name for run in runs.values()})
        raise StoreError(
            f"No job has the name of the job file, {job.name}: they are {', '.join(names[:3])}.",
            "Give the job file the name that its jobs have in Slurm, or leave it out.",
        )
    if others:
        _LOG.warning("Left out %s.", " and ".join(others))
    return list(runs.values())


def _read(path: Path) -> list[SacctJob]:
    text = read_text(path)
    if text.lstrip()[0] in "{[":
        check_json_size(text, path)
        return read_document(text, str(path))
    check_table_size(path, rows=text.count("\n"))
    return read_table(text, str(path))


def _runs(records: Sequence[SacctJob]) -> list[list[SacctJob]]:
    """Return the components of each run, in order; a job that was requeued has several runs."""
    runs: list[list[SacctJob]] = []
    last_run: dict[str, list[SacctJob]] = {}
    for record in records:
        run = last_run.get(record.id)
        if run is None or any(record.component == other.component for other in run):
            last_run[record.id] = run = []
            runs.append(run)
        run.append(record)
    return [sorted(run, key=lambda record: record.component) for run in runs]


def _word(state: str) -> str:
    """Return the state without what follows it: CANCELLED for `CANCELLED by 1000`."""
    return state.split()[0] if state.split() else ""


def _status(record: SacctJob) -> Status:
    word = _word(record.state)
    if word in UNFINISHED_STATES:
        return "running"
    if word not in _STATUSES:
        raise StoreError(
            f"Job {record.id} has the state {shortened(record.state)}, which is none of Slurm's.",
            f"Run it again: {COMMAND}",
        )
    return _STATUSES[word]


def _main_step(record: SacctJob) -> SacctStep | None:
    """Return the longest step of `srun`, or else the script; None if neither has tasks and cores."""
    used = [step for step in record.steps if step.tasks and step.cpus and step.name != "extern"]
    started = [step for step in used if is_count(step.name.partition("+")[0])]
    return max(started or used, key=lambda step: (step.elapsed_s, step.tasks), default=None)


def _has_parallel_steps(record: SacctJob) -> bool:
    """Return whether two steps of `srun` ran at the same time."""
    started = sorted(
        (step.start_s, step.start_s + step.elapsed_s) for step in record.steps if is_count(step.name.partition("+")[0])
    )
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(started))


def _finished_job(records: Sequence[SacctJob], job: Job | None) -> FinishedJob:
    """Return the run; its first component decides its outcome, since that runs the script."""
    first = records[0]
    description = job if job and job.name == first.name else None
    roles = [role for role in ROLES if role != "ps" or description is None or description.has_ps]
    components = [
        _Component(role, record, step)
        for role, record in zip(roles, records, strict=False)
        if (step := _main_step(record))
    ]
    usages = {component.role: component.usage for component in components}
    groups = {component.role: (component.group,) for component in components}
    workers = components[0].group.replicas
    batch_size = description.batch_size_for(workers) if description else 1
    failures = tuple(
        # "*" is the number of the replica, which Slurm does not record.
        Failure(at_s=component.job.elapsed_s, replica=f"{component.role}-*", cause="oom")
        for component in components
        if component.ran_out_of_memory
    )
    started_at = datetime.fromtimestamp(first.start_s or 0.0, timezone.utc)
    status = _STATUSES[_word(first.state)]
    allocation = Allocation.model_validate(groups | {"batch_size": batch_size})
    return FinishedJob(
        id=f"slurm/{first.id}@{started_at:%Y%m%dT%H%M%S}", name=first.name, job=description, source="sacct",
        executor="slurm", started_at=started_at,
        stretches=(Segment(at_s=0.0, duration_s=first.elapsed_s, allocation=allocation),),
        outcome=Outcome(
            status=status, message="" if status == "finished" else f"Slurm's state is {first.state}.",
            duration_s=first.elapsed_s, failures=failures,
        ),
        worker=usages.get("worker", JobUsage()), ps=usages.get("ps", JobUsage()),
    )  # fmt: skip
