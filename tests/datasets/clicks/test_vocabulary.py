from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.datasets.clicks.distinct_counts import extrapolate, power_law
from sizewright.datasets.clicks.synthetic import SyntheticLog, write_criteo
from sizewright.datasets.clicks.vocabulary import DistinctCounter, count_rows
from sizewright.errors import ClickLogError
from sizewright.spec import Data, Job, Model, Tables, Training

ROWS = (30, 400, 3000, 20_000, 100_000, 700_000, 3_000_000)


@pytest.mark.parametrize("zipf", [0.0, 0.8, 1.05, 1.3])
def test_vocabulary_is_estimated_from_a_twentieth_of_the_samples(zipf: float) -> None:
    samples, samples_read = 400_000, 20_000
    ids = next(SyntheticLog(ROWS, zipf=zipf, seed=3).batches(samples)).ids
    covered, closer = 0, []
    for column in ids.T:
        truth = len(np.unique(column))
        counts = np.unique(column[:samples_read], return_counts=True)[1]
        distinct = extrapolate(counts, samples_read, samples)
        naive = power_law(len(counts), float((counts == 1).sum()), samples_read, samples)
        covered += int(distinct.lower) <= truth <= np.ceil(distinct.upper)
        assert distinct.estimate == pytest.approx(truth, rel=0.25)
        closer.append(abs(distinct.estimate - truth) <= abs(naive - truth) + 1)
    assert covered >= len(ROWS) - 1
    assert sum(closer) >= len(ROWS) - 1


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    more=st.integers(0, 10**6),
    share=st.sampled_from([1.0, 0.5]),
)
def test_bounds_are_in_order(counts: list[int], more: int, share: float) -> None:
    samples_read = round(sum(counts) / share)
    distinct = extrapolate(np.array(counts), samples_read, samples_read + more, share)
    assert distinct.lower <= distinct.estimate <= distinct.upper
    assert distinct.upper <= distinct.seen / share + more + distinct.seen
    assert share < 1 or distinct.lower >= distinct.seen
    assert share < 1 or distinct.upper <= distinct.seen + more


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=50), min_size=1, max_size=5))
def test_distinct_counts_exactly_within_its_capacity(parts: list[list[int]]) -> None:
    distinct = DistinctCounter(1000)
    for part in parts:
        distinct.add(np.array(part, dtype=np.int64))
    everything = np.concatenate([np.array(part) for part in parts])
    expected = np.unique(everything, return_counts=True)[1]
    assert np.array_equal(distinct.id_counts().counts, expected)
    assert distinct.id_counts().share == 1.0


def test_distinct_beyond_its_capacity_keeps_a_fair_share() -> None:
    distinct = DistinctCounter(4096)
    for start in range(0, 200_000, 20_000):
        distinct.add(np.arange(start, start + 20_000, dtype=np.int64))
    counts, share = distinct.id_counts()
    assert len(counts) <= 4096
    assert len(counts) / share == pytest.approx(200_000, rel=0.08)


def job(path: Path, samples: int) -> Job:
    return Job(
        model=Model(dense_features=2, tables=Tables(count=2, rows="from-data")),
        data=Data(format="criteo", path=str(path)),
        training=Training(samples=samples),
    )


def test_exact_when_every_sample_is_read(tmp_path: Path) -> None:
    log = SyntheticLog([40, 10_000], dense_features=2, seed=1)
    write_criteo(tmp_path / "log", log, 3000, missing=False)
    for samples in (3000, 1000):
        vocabulary = count_rows(job(tmp_path / "log", samples))
        ids = next(log.batches(3000)).ids[:samples]
        assert vocabulary.exact
        assert vocabulary.samples_read == samples
        assert vocabulary.rows == tuple(len(np.unique(column)) for column in ids.T)
        assert all(table.lower == table.estimate == table.upper for table in vocabulary.tables)
    assert job(tmp_path / "log", 1000).with_rows(vocabulary.rows).model.tables.known


def test_extrapolates_beyond_the_rows_read(tmp_path: Path) -> None:
    write_criteo(tmp_path / "log", SyntheticLog([40, 10_000], dense_features=2, seed=1), 3000)
    vocabulary = count_rows(job(tmp_path / "log", 50_000), max_rows_read=2000)
    assert not vocabulary.exact
    assert vocabulary.samples_read == 2000
    small, large = vocabulary.tables
    assert small.seen <= small.estimate <= 45
    assert large.seen < large.estimate <= large.upper


def test_the_growth_of_each_table_is_noted(tmp_path: Path) -> None:
    log = SyntheticLog([40, 10_000], dense_features=2, seed=1)
    write_criteo(tmp_path / "log", log, 4000, missing=False)
    vocabulary = count_rows(job(tmp_path / "log", 50_000))
    assert vocabulary.growth_samples == (1000, 1500, 2250, 3375, 4000)
    ids = next(log.batches(4000)).ids
    for table, column in zip(vocabulary.tables, ids.T, strict=True):
        assert table.growth == tuple(len(np.unique(column[:sample])) for sample in vocabulary.growth_samples)


def test_synthetic_data_has_no_log() -> None:
    with pytest.raises(ClickLogError, match="synthetic"):
        count_rows(Job())
