"""Trials of many jobs as what physics is fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.bank.noise import repeat_noise, usual_speed_factors
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.prior.experience import FAMILIES
from sizewright.models.prior.physics import START, Places, Seconds, Told, fit
from sizewright.models.prior.work import Work, scale_of, work_of
from sizewright.models.table import Columns, as_columns, known
from sizewright.spec import Job
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

_COLUMNS = (
    "workers", "ps", "worker_cpu", "ps_cpu", "batch_size", "sync", "table_scale", "embedding_bytes",
    "throughput", "worker_cpu_used", "ps_cpu_used",
)  # fmt: skip


_MOST_OF_QUOTA = 1.1


class Rows(NamedTuple):
    """Trials (n,) that can be learned from."""

    at: Places
    told: Told
    job: NDArray[np.int64]
    """Which of the jobs."""
    trial: NDArray[np.int64]
    """Which of the trials that were given."""
    family: NDArray[np.int64]

    @property
    def groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows that may be slower or faster together: those of a job, and of a family."""
        return self.job, self.family

    def pick(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Rows:
        """Some of them."""
        at = self.at._replace(
            **{name: column[rows] for name, column in self.at._asdict().items() if name != "work"},
            work=Work(*(column[rows] for column in self.at.work)),
        )
        told = Told(self.told.log_rates[rows], Seconds(*(column[rows] for column in self.told.cpu)))
        return Rows(at, told, self.job[rows], self.trial[rows], self.family[rows])

    def distinct(self) -> Rows:
        """One for all rows of a job at one place, which tells their medians."""
        at = self.at
        axes = [self.job, at.workers, at.ps, at.worker_cpu, at.ps_cpu, at.sync, *at.work]
        _, first, group = np.unique(np.column_stack(axes), axis=0, return_index=True, return_inverse=True)
        told = Told(_medians(self.told.log_rates, group), Seconds(*(_medians(c, group) for c in self.told.cpu)))
        return self.pick(first)._replace(told=told)


def as_rows(trials: Sequence[Trial], jobs: Mapping[str, Job]) -> Rows:
    """Trials with PS that ended well, at the usual speed of the host, in the order of their jobs.

    Raises NotEnoughDataError where there are none.
    """
    factors = usual_speed_factors(trials, repeat_noise(trials).exponent)
    numbers = {key: number for number, key in enumerate(jobs)}
    picked = np.array(
        sorted(
            (i for i, t in enumerate(trials) if t.usable and t.ps and t.job_hash in jobs),
            key=lambda i: numbers[str(trials[i].job_hash)],
        ),
        int,
    )
    if not len(picked):
        raise NotEnoughDataError(
            f"None of {format_count(len(trials), 'trial')} ended well, with PS, and of a job that is told.", 30
        )
    job = np.array([numbers[str(trials[i].job_hash)] for i in picked], int)
    columns = as_columns([trials[i] for i in picked], _COLUMNS)
    parts = [
        places_of(one, {name: column[job == number] for name, column in columns.items()})
        for number, one in enumerate(jobs.values())
        if (job == number).any()
    ]
    at = _joined(parts)
    steps = columns["throughput"] / at.work.samples  # of all workers, in a second
    cpu = Seconds(
        columns["worker_cpu_used"] * at.workers / steps,
        columns["ps_cpu_used"] * at.ps / steps,
    )
    sound = [[told(trials[i]) for i in picked] for told in (worker_told, ps_told)]
    cpu = Seconds(*(np.where((column > 0) & ok, column, np.nan) for column, ok in zip(cpu, sound, strict=True)))
    families = np.array([FAMILIES.index(one.model.family) for one in jobs.values()])
    return Rows(at, Told(np.log(columns["throughput"] * factors[picked]), cpu), job, picked, families[job])


def fitted(rows: Rows, guess: Floats = START) -> Floats:
    """Physics (k,) that rows tell. What it is wrong by at one place of a job is the same each time: it counts once."""
    rows = rows.distinct()
    return fit(rows.at, rows.told, rows.groups, guess)


def _medians(column: Floats, group: NDArray[np.int64]) -> Floats:
    """Of the known values of each group (g,); NaN where none is."""
    found = np.full(group.max() + 1, np.nan)
    known_ones = np.flatnonzero(np.isfinite(column))
    order = known_ones[np.argsort(group[known_ones], kind="stable")]
    numbers, starts = np.unique(group[order], return_index=True)
    found[numbers] = [np.median(part) for part in np.split(column[order], starts[1:])] if len(numbers) else []
    return found


def worker_told(trial: Trial) -> bool:
    """Whether its workers did not use more than their cores."""
    return (trial.worker_cpu_used or 0.0) <= _MOST_OF_QUOTA * (trial.worker_cpu or np.inf)


def ps_told(trial: Trial) -> bool:
    """The same of its PS."""
    return (trial.ps_cpu_used or 0.0) <= _MOST_OF_QUOTA * (trial.ps_cpu or np.inf)


def places_of(job: Job, columns: Columns) -> Places:
    """Allocations of one job; what a row does not tell is as the job has it."""
    batch = known(columns["batch_size"], job.training.batch_size)
    scale = columns["table_scale"]
    by_bytes = scale_of(job, columns["embedding_bytes"])
    return Places(
        columns["workers"],
        np.maximum(columns["ps"], 1.0),
        known(columns["worker_cpu"], 1.0),
        known(columns["ps_cpu"], 1.0),
        known(columns["sync"], float(job.training.sync == "sync")),
        work_of(job, batch, np.where(np.isnan(scale), by_bytes, scale)),
    )


def _joined(parts: Sequence[Places]) -> Places:
    works = Work(*(np.concatenate(columns) for columns in zip(*(part.work for part in parts), strict=True)))
    others = [np.concatenate(columns) for columns in zip(*(part[:-1] for part in parts), strict=True)]
    workers, ps, worker_cpu, ps_cpu, sync = others
    return Places(workers, ps, worker_cpu, ps_cpu, sync, works)
