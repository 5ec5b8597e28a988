from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sizewright.datasets.trials.files import export_trials
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.profiler.planner.measured_table import one_table, read_tables, split_tables, without_noise
from tests.helpers.measured_tables import measured_table, trial_table


def test_noise_of_table_is_estimated_and_smoothed() -> None:
    clean, noisy = measured_table(), measured_table(0.05, 3)
    smoothed, noise, _ = noisy.smoothed
    assert noise == pytest.approx(0.05, rel=0.5)
    assert np.median(np.abs(smoothed / clean.raw - 1)) < np.median(np.abs(noisy.raw / clean.raw - 1)) * 1.2
    smoothed, noise, _ = clean.smoothed
    assert noise < 0.02
    assert smoothed == pytest.approx(clean.raw, rel=0.02)


def test_table_without_noise_has_smoothed_rates() -> None:
    rows = trial_table(0.05, 3).assign(status="ok")
    rows.loc[rows.workers == 7, ["throughput", "status"]] = [np.nan, "oom"]
    noisy = one_table(rows, "made")
    calm = without_noise(noisy)
    assert calm.raw == pytest.approx(noisy.smoothed[0])
    assert [len(m) for m in calm.measurements] == [1] * 12 + [0] * 3


def test_file_is_split_by_job_mode_and_batch_size(tmp_path: Path) -> None:
    parts = [
        trial_table().assign(job=job, sync=sync, batch_size=batch)
        for job, sync, batch in [("a", "async", 16), ("a", "sync", 16), ("b", "async", 16), ("b", "async", 256)]
    ]
    tables = split_tables(pd.concat(parts), "many")
    assert sorted(t.name for t in tables) == [
        "many-a-async-16",
        "many-a-sync-16",
        "many-b-async-16",
        "many-b-async-256",
    ]
    assert all(len(t) == 15 for t in tables)
    export_trials([Trial.model_validate(row) for row in parts[0].to_dict("records")], tmp_path / "one.csv")
    assert len(read_tables([tmp_path / "one.csv"])[0]) == 15
    total = trial_table().assign(batch_size=lambda f: 420 // f.workers)
    assert [t.name for t in split_tables(total, "total")] == ["total"]


def test_missing_throughput_counts_as_failure(tmp_path: Path) -> None:
    rows = trial_table()
    rows.loc[rows.workers == 7, "throughput"] = np.nan
    rows.to_csv(tmp_path / "holed.csv", index=False)
    [holed] = read_tables([tmp_path / "holed.csv"])
    assert (holed.raw == 0).sum() == 3


def test_table_with_cores_in_some_rows_only_raises_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "half.csv"
    trial_table().assign(worker_cpu=[1.0] * 5 + [None] * 10).to_csv(path, index=False)
    with pytest.raises(InputError, match="Table half: 10 of the candidates lack worker_cpu"):
        read_tables([path])


def test_too_small_table_raises(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    trial_table().head(4).assign(extra="x").to_csv(path, index=False)
    with pytest.raises(InputError, match="6 distinct allocations"):
        read_tables([path])
