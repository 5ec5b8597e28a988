"""Trials of many jobs in the form that the mechanistic model is fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trial_bank.noise import is_steady, median_speed_factors, repeat_noise
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.formatting import format_count
from sizewright.models.prior.job_effects import FAMILIES
from sizewright.models.prior.mechanistic import START, Configurations, Observations, Seconds, fit
from sizewright.models.prior.work import Work, scale_of, work_of
from sizewright.models.table import Columns, as_columns, batch_sizes, filled
from sizewright.spec import Job

Floats = NDArray[np.float64]

_COLUMNS = (
    "workers",
    "ps",
    "worker_cpu",
    "ps_cpu",
    "batch_size",
    "sync",
    "table_scale",
    "embedding_bytes",
    "throughput",
    "worker_cpu_used",
    "ps_cpu_used",
)
_MAX_SHARE_OF_QUOTA = 1.1


class PriorRows(NamedTuple):
    """Trials (n,) that a prior can learn from."""

    configs: Configurations
    observations: Observations
    job: NDArray[np.int64]
    """Index of the row's job."""
    trial: NDArray[np.int64]
    """Index of the row's trial, among those that `as_rows` was called with."""
    family: NDArray[np.int64]

    @property
    def groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows that may be slower or faster together: those of a job, and those of a family."""
        return self.job, self.family

    def pick(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> PriorRows:
        """Return some of the rows."""
        configs = self.configs
        return PriorRows(
            configs=Configurations(
                workers=configs.workers[rows],
                ps=configs.ps[rows],
                worker_cpu=configs.worker_cpu[rows],
                ps_cpu=configs.ps_cpu[rows],
                sync=configs.sync[rows],
                work=Work(*(column[rows] for column in configs.work)),
            ),
            observations=Observations(
                self.observations.log_rates[rows], Seconds(*(column[rows] for column in self.observations.cpu))
            ),
            job=self.job[rows],
            trial=self.trial[rows],
            family=self.family[rows],
        )

    def distinct(self) -> PriorRows:
        """Return one row for all rows of a job at one allocation, with the medians of their observations."""
        configs = self.configs
        axes = [self.job, configs.workers, configs.ps, configs.worker_cpu, configs.ps_cpu, configs.sync, *configs.work]
        _, first, group = np.unique(np.column_stack(axes), axis=0, return_index=True, return_inverse=True)
        medians = Observations(
            _group_medians(self.observations.log_rates, group),
            Seconds(*(_group_medians(column, group) for column in self.observations.cpu)),
        )
        return self.pick(first)._replace(observations=medians)


def as_rows(trials: Sequence[Trial], jobs: Mapping[str, Job]) -> PriorRows:
    """Return the successful, steady trials with PS, at the host's usual speed, in the order of their jobs.

    `jobs` maps hashes to jobs. Raises NotEnoughDataError where no trial can be used.
    """
    factors = median_speed_factors(trials, repeat_noise(trials).exponent)
    job_numbers = {key: number for number, key in enumerate(jobs)}
    usable = [
        i for i, trial in enumerate(trials) if trial.usable and is_steady(trial) and trial.ps and trial.job_hash in jobs
    ]
    if not usable:
        raise NotEnoughDataError(
            f"None of {format_count(len(trials), 'trial')} succeeded, was steady, has PS, and belongs to a known job.",
            30,
        )
    picked = np.array(sorted(usable, key=lambda i: job_numbers[str(trials[i].job_hash)]), int)
    job = np.array([job_numbers[str(trials[i].job_hash)] for i in picked], int)
    columns = as_columns([trials[i] for i in picked], _COLUMNS)

    parts = []
    for number, description in enumerate(jobs.values()):
        of_job = job == number
        if of_job.any():
            parts.append(configurations_of(description, {name: column[of_job] for name, column in columns.items()}))
    configs = Configurations(
        workers=np.concatenate([part.workers for part in parts]),
        ps=np.concatenate([part.ps for part in parts]),
        worker_cpu=np.concatenate([part.worker_cpu for part in parts]),
        ps_cpu=np.concatenate([part.ps_cpu for part in parts]),
        sync=np.concatenate([part.sync for part in parts]),
        work=Work(*(np.concatenate(columns) for columns in zip(*(part.work for part in parts), strict=True))),
    )

    steps_per_second = columns["throughput"] / configs.work.samples  # of all workers
    worker_seconds = columns["worker_cpu_used"] * configs.workers / steps_per_second
    ps_seconds = columns["ps_cpu_used"] * configs.ps / steps_per_second
    worker_plausible = [worker_use_is_plausible(trials[i]) for i in picked]
    ps_plausible = [ps_use_is_plausible(trials[i]) for i in picked]
    cpu = Seconds(
        np.where((worker_seconds > 0) & worker_plausible, worker_seconds, np.nan),
        np.where((ps_seconds > 0) & ps_plausible, ps_seconds, np.nan),
    )
    families = np.array([FAMILIES.index(description.model.family) for description in jobs.values()])
    observations = Observations(np.log(columns["throughput"] * factors[picked]), cpu)
    return PriorRows(configs, observations, job, picked, families[job])


def fit_rows(rows: PriorRows, guess: Floats = START) -> Floats:
    """Return the parameters (k,) of the mechanistic model for these rows.

    The model's error at one allocation of a job is the same in each repeat, so repeats count once.
    """
    rows = rows.distinct()
    return fit(rows.configs, rows.observations, rows.groups, guess)


def worker_use_is_plausible(trial: Trial) -> bool:
    """Return whether the trial's workers used no more than their cores, within tolerance."""
    return (trial.worker_cpu_used or 0.0) <= _MAX_SHARE_OF_QUOTA * (trial.worker_cpu or np.inf)


def ps_use_is_plausible(trial: Trial) -> bool:
    """Return whether the trial's PS used no more than their cores, within tolerance."""
    return (trial.ps_cpu_used or 0.0) <= _MAX_SHARE_OF_QUOTA * (trial.ps_cpu or np.inf)


def configurations_of(job: Job, columns: Columns) -> Configurations:
    """Return allocations of one job; unknown batch size, tables and mode are those of the job."""
    batch = filled(columns["batch_size"], batch_sizes(job, columns["workers"]))
    scale = columns["table_scale"]
    scale_by_bytes = scale_of(job, columns["embedding_bytes"])
    return Configurations(
        workers=columns["workers"],
        ps=np.maximum(columns["ps"], 1.0),
        worker_cpu=filled(columns["worker_cpu"], 1.0),
        ps_cpu=filled(columns["ps_cpu"], 1.0),
        sync=filled(columns["sync"], float(job.training.sync == "sync")),
        work=work_of(job, batch, np.where(np.isnan(scale), scale_by_bytes, scale)),
    )


def _group_medians(column: Floats, group: NDArray[np.int64]) -> Floats:
    """Return the median of the known values of each group (g,); NaN where no value is known."""
    medians = np.full(group.max() + 1, np.nan)
    known_rows = np.flatnonzero(np.isfinite(column))
    order = known_rows[np.lexsort((column[known_rows], group[known_rows]))]
    numbers, starts, counts = np.unique(group[order], return_index=True, return_counts=True)
    values = column[order]
    medians[numbers] = (values[starts + (counts - 1) // 2] + values[starts + counts // 2]) / 2
    return medians
