"""Click logs, the trial table and its store, job history, the bank of trials, and traces of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.datasets.bank.card import Card
    from sizewright.datasets.bank.files import Bank, load_bank
    from sizewright.datasets.bank.shapes import BankJob
    from sizewright.datasets.batch import Batch
    from sizewright.datasets.click_logs import ClickLog, ReadReport
    from sizewright.datasets.column_names import Columns
    from sizewright.datasets.finished import FinishedJob, Stretch, Usage
    from sizewright.datasets.history import History
    from sizewright.datasets.history_files import export_history, import_history
    from sizewright.datasets.source import open_source
    from sizewright.datasets.store import TrialStore
    from sizewright.datasets.synthetic import SyntheticLog, write_criteo
    from sizewright.datasets.traces import Trace, read_demand, read_trace
    from sizewright.datasets.trial_files import TrialTable, export_trials, import_trials, read_trials
    from sizewright.datasets.trials import Trial
    from sizewright.datasets.vocabulary import Vocabulary, count_rows

_HOMES = {
    "Card": "sizewright.datasets.bank.card",
    "Bank": "sizewright.datasets.bank.files",
    "BankJob": "sizewright.datasets.bank.shapes",
    "Batch": "sizewright.datasets.batch",
    "ClickLog": "sizewright.datasets.click_logs",
    "FinishedJob": "sizewright.datasets.finished",
    "History": "sizewright.datasets.history",
    "ReadReport": "sizewright.datasets.click_logs",
    "Stretch": "sizewright.datasets.finished",
    "SyntheticLog": "sizewright.datasets.synthetic",
    "Trace": "sizewright.datasets.traces",
    "Trial": "sizewright.datasets.trials",
    "TrialStore": "sizewright.datasets.store",
    "Usage": "sizewright.datasets.finished",
    "Vocabulary": "sizewright.datasets.vocabulary",
    "count_rows": "sizewright.datasets.vocabulary",
    "export_history": "sizewright.datasets.history_files",
    "export_trials": "sizewright.datasets.trial_files",
    "import_history": "sizewright.datasets.history_files",
    "import_trials": "sizewright.datasets.trial_files",
    "read_trials": "sizewright.datasets.trial_files",
    "TrialTable": "sizewright.datasets.trial_files",
    "Columns": "sizewright.datasets.column_names",
    "load_bank": "sizewright.datasets.bank.files",
    "open_source": "sizewright.datasets.source",
    "read_demand": "sizewright.datasets.traces",
    "read_trace": "sizewright.datasets.traces",
    "write_criteo": "sizewright.datasets.synthetic",
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
    "ReadReport",
    "Stretch",
    "SyntheticLog",
    "Trace",
    "Trial",
    "TrialStore",
    "TrialTable",
    "Usage",
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
    __getattr__, __dir__ = lazily(__name__, _HOMES)
