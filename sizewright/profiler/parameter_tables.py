"""The measured tables that a prior of parameters is learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sizewright.datasets.trial_bank.files import load_bank
from sizewright.datasets.trials.trial import Trials
from sizewright.models.default.parameter_prior import NamedTable
from sizewright.profiler.planner.measured_table import MeasuredTable, read_tables

_MAX_ALLOCATIONS = 40
"""More allocations of a table hardly change its posterior, and take longer."""
_MIN_TRIALS = 8


def tables_of_files(paths: Sequence[str], columns: Mapping[str, str] | None = None) -> list[NamedTable]:
    """Return the tables in files of trials; those of one file are a family.

    Raises StoreError or InputError for a file or table that cannot be used.
    """
    return [parameter_table(table, Path(path).stem) for path in paths for table in read_tables([path], columns)]


def parameter_table(table: MeasuredTable, family: str) -> NamedTable:
    """Return the trials of a measured table at no more than 40 allocations, evenly over its rows."""
    measured = [rows for rows in table.rows if len(rows)]
    kept = np.unique(np.linspace(0, len(measured) - 1, _MAX_ALLOCATIONS).astype(int))
    return NamedTable(table.name, family, pd.concat([measured[i] for i in kept]))


def bank_tables(bank: str | None = None) -> list[NamedTable]:
    """Return a table for each job of a bank, by default the shipped one, with eight or more successful trials.

    Raises StoreError where the bank cannot be read.
    """
    loaded = load_bank(None if bank == "shipped" else bank)
    jobs = {key: [trial for trial in loaded.trials if trial.job_hash == key and trial.usable] for key in loaded.jobs}
    return [
        NamedTable(loaded.jobs[key].job.name, "bank", Trials(trials))
        for key, trials in jobs.items()
        if len(trials) >= _MIN_TRIALS
    ]
