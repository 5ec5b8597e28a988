from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from sizewright.datasets.clicks.logs import ClickLog
from sizewright.datasets.clicks.synthetic import BASE_RATE, SyntheticLog, write_criteo
from sizewright.errors import ClickLogError
from sizewright.spec import CRITEO_KAGGLE_ROWS


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    clicks = labels.sum()
    return float((rankdata(scores)[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks)))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("zipf", [0.0, 1.0, 1.05])
def test_labels_can_be_learned(zipf: float, seed: int) -> None:
    log = SyntheticLog(CRITEO_KAGGLE_ROWS, zipf=zipf, seed=seed)
    batch = next(log.batches(40_000))
    assert 0.75 < auc(batch.labels, log.true_probability(batch)) < 0.85
    assert batch.labels.mean() == pytest.approx(0.25, abs=0.03)


def test_a_linear_model_learns_from_it() -> None:
    batches = SyntheticLog(CRITEO_KAGGLE_ROWS, seed=2).batches(30_000)
    train, test = next(batches), next(batches)
    design = np.column_stack([train.dense, np.ones(len(train.labels))])
    weights = np.linalg.lstsq(design, train.labels, rcond=None)[0]
    assert auc(test.labels, test.dense @ weights[:-1]) > 0.6


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.integers(1, 10**7), min_size=1, max_size=5), zipf=st.floats(0, 3), seed=st.integers(0, 99))
def test_ids_stay_in_their_tables(rows: list[int], zipf: float, seed: int) -> None:
    batch = next(SyntheticLog(rows, zipf=zipf, seed=seed).batches(300))
    assert batch.ids.shape == (300, len(rows))
    assert (batch.ids >= 0).all()
    assert (batch.ids < np.array(rows)).all()
    assert set(np.unique(batch.labels)) <= {0.0, 1.0}


@pytest.mark.parametrize("zipf", [0.0, 0.7, 1.0, 1.3])
def test_ids_follow_the_bounded_power_law(zipf: float) -> None:
    ids = next(SyntheticLog([50], zipf=zipf).batches(200_000)).ids[:, 0]
    edges = np.arange(1, 52, dtype=float)
    law = np.log(edges) if zipf == 1 else edges ** (1 - zipf)
    expected = np.diff(law) / (law[-1] - law[0])
    assert np.bincount(ids, minlength=50) / len(ids) == pytest.approx(expected, abs=0.004)


def test_seed_and_shard_fix_the_stream() -> None:
    def first_batch(seed: int, shard: tuple[int, int]) -> np.ndarray:
        return next(SyntheticLog([1000] * 4, seed=seed).batches(50, shard=shard)).ids

    assert np.array_equal(first_batch(1, (0, 2)), first_batch(1, (0, 2)))
    assert np.array_equal(first_batch(1, (1, 2)), first_batch(1, (1, 3)))
    assert not np.array_equal(first_batch(1, (0, 2)), first_batch(1, (1, 2)))
    assert not np.array_equal(first_batch(1, (0, 1)), first_batch(2, (0, 1)))


def test_tables_have_as_many_columns_as_their_pooling() -> None:
    rows, pooling = [50, 7, 2000], [1, 4, 300]
    log = SyntheticLog(rows, pooling=pooling)
    batch = next(log.batches(4000))
    assert batch.ids.shape == (4000, 305)
    first, many, last = np.split(batch.ids, np.cumsum(pooling)[:-1], axis=1)
    assert [ids.max() < size for ids, size in zip((first, many, last), rows, strict=True)] == [True] * 3
    assert batch.labels.mean() == pytest.approx(BASE_RATE, abs=0.04)
    swapped = batch._replace(ids=np.concatenate([first, many[:, ::-1], last], axis=1))
    np.testing.assert_allclose(log.true_probability(swapped), log.true_probability(batch), rtol=1e-4)


def test_no_numeric_columns_and_tables_of_one_row() -> None:
    log = SyntheticLog([1, 1], dense_features=0)
    batch = next(log.batches(2000))
    assert batch.dense.shape == (2000, 0)
    assert log.true_probability(batch) == pytest.approx(np.full(2000, 0.25), abs=0.01)


@pytest.mark.parametrize(("name", "header"), [("log.tsv", False), ("log.csv", True), ("log.tsv.gz", False)])
def test_written_log_reads_back(tmp_path: Path, name: str, header: bool) -> None:
    log = SyntheticLog([100, 5000, 3], dense_features=4, seed=5)
    write_criteo(tmp_path / name, log, 700, header=header, missing=False)
    batch = next(ClickLog(str(tmp_path / name), dense_features=4, tables=3).batches(1000))
    expected = next(islice(log.batches(700), 1))
    assert np.array_equal(batch.labels, expected.labels)
    assert np.allclose(batch.dense, expected.dense)
    assert np.array_equal(batch.ids, expected.ids + 1)


def test_fields_are_missing_as_in_public_logs(tmp_path: Path) -> None:
    write_criteo(tmp_path / "log", SyntheticLog(CRITEO_KAGGLE_ROWS), 2000)
    ids = next(ClickLog(str(tmp_path / "log")).batches(2000)).ids
    assert 0.08 < (ids == 0).mean() < 0.13


def test_unwritable_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="Cannot write"):
        write_criteo(tmp_path / "no" / "folder", SyntheticLog([5]), 5)
