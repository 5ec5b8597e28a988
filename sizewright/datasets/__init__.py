"""Click logs, the trial table and its store, job history, the bank of trials, and traces of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.datasets.clicks.batch import Batch
    from sizewright.datasets.clicks.logs import ClickLog, ReadReport
    from sizewright.datasets.clicks.source import open_source
    from sizewright.datasets.clicks.synthetic import SyntheticLog, write_criteo
    from sizewright.datasets.clicks.vocabulary import Vocabulary, count_rows
    from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
    from sizewright.datasets.runs.history import History
    from sizewright.datasets.runs.history_files import export_history, import_history
    from sizewright.datasets.traces import Trace, read_demand, read_trace
    from sizewright.datasets.trial_bank.card import Card
    from sizewright.datasets.trial_bank.files import Bank, load_bank
    from sizewright.datasets.trial_bank.shapes import BankJob
    from sizewright.datasets.trials.column_names import Columns
    from sizewright.datasets.trials.files import TrialTable, export_trials, import_trials, read_trials
    from sizewright.datasets.trials.store import TrialStore
    from sizewright.datasets.trials.trial import Trial

_HOMES = {
    "Card": "sizewright.datasets.trial_bank.card",
    "Bank": "sizewright.datasets.trial_bank.files",
    "BankJob": "sizewright.datasets.trial_bank.shapes",
    "Batch": "sizewright.datasets.clicks.batch",
    "ClickLog": "sizewright.datasets.clicks.logs",
    "FinishedJob": "sizewright.datasets.runs.finished_job",
    "History": "sizewright.datasets.runs.history",
    "ReadReport": "sizewright.datasets.clicks.logs",
    "Segment": "sizewright.datasets.runs.finished_job",
    "SyntheticLog": "sizewright.datasets.clicks.synthetic",
    "Trace": "sizewright.datasets.traces",
    "Trial": "sizewright.datasets.trials.trial",
    "TrialStore": "sizewright.datasets.trials.store",
    "JobUsage": "sizewright.datasets.runs.finished_job",
    "Vocabulary": "sizewright.datasets.clicks.vocabulary",
    "count_rows": "sizewright.datasets.clicks.vocabulary",
    "export_history": "sizewright.datasets.runs.history_files",
    "export_trials": "sizewright.datasets.trials.files",
    "import_history": "sizewright.datasets.runs.history_files",
    "import_trials": "sizewright.datasets.trials.files",
    "read_trials": "sizewright.datasets.trials.files",
    "TrialTable": "sizewright.datasets.trials.files",
    "Columns": "sizewright.datasets.trials.column_names",
    "load_bank": "sizewright.datasets.trial_bank.files",
    "open_source": "sizewright.datasets.clicks.source",
    "read_demand": "sizewright.datasets.traces",
    "read_trace": "sizewright.datasets.traces",
    "write_criteo": "sizewright.datasets.clicks.synthetic",
}

__all__ = [
    "Bank",
    "BankJob",
    "Batch",
    "Card",
    "ClickLog",
    "Columns",
    "FinishedJob",
    "History",
    "JobUsage",
    "ReadReport",
    "Segment",
    "SyntheticLog",
    "Trace",
    "Trial",
    "TrialStore",
    "TrialTable",
    "Vocabulary",
    "count_rows",
    "export_history",
    "export_trials",
    "import_history",
    "import_trials",
    "load_bank",
    "open_source",
    "read_demand",
    "read_trace",
    "read_trials",
    "write_criteo",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
