"""Growth of tables: streams of finite Zipf vocabularies, whose rows at the end are counted, not modelled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models.memory.row_growth import RowGrowth, growth_of_tables

SAMPLES = 400_000
TABLES = [(v, s) for v in (2000, 20_000, 100_000, 500_000) for s in (0.7, 1.05, 1.3)]


def stream(vocabulary: int, exponent: float, seed: int, samples: int = SAMPLES, drift: float = 0.0) -> np.ndarray:
    """Ids (n,); with drift, that share of the samples brings ids never seen before."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1.0, vocabulary + 1) ** -exponent
    ids = np.searchsorted(np.cumsum(shares / shares.sum()), rng.random(samples))
    fresh = rng.random(samples) < drift
    ids[fresh] = vocabulary + 1 + np.arange(fresh.sum())
    return ids


def growth(ids: np.ndarray, until: float, points: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids after more and more samples, up to a share of the stream."""
    first = np.sort(np.unique(ids, return_index=True)[1])
    at = np.geomspace(until * len(ids) / 50, until * len(ids), points).astype(int)
    return at, np.searchsorted(first, at, side="left")


def power_law(samples: np.ndarray, rows: np.ndarray, at: float) -> float:
    """Heaps's law through the growth, by least squares in logarithms."""
    slope, level = np.polyfit(np.log(samples), np.log(rows), 1)
    return float(np.exp(level + slope * np.log(at)))


@pytest.mark.parametrize(
    ("until", "within", "seeds"),
    [(0.05, 0.20, 1), *(pytest.param(*case, 2, marks=pytest.mark.long) for case in ((0.05, 0.20), (0.20, 0.10)))],
)
def test_final_rows_are_predicted_from_the_first_samples(until: float, within: float, seeds: int) -> None:
    errors, naive, crossed = [], [], []
    for vocabulary, exponent in TABLES:
        for seed in range(seeds):
            ids = stream(vocabulary, exponent, seed)
            truth = len(np.unique(ids))
            at, rows = growth(ids, until)
            model = RowGrowth(seed=seed).fit(at, rows)
            errors.append(abs(model.predict(len(ids)) / truth - 1))
            naive.append(abs(power_law(at, rows, len(ids)) / truth - 1))
            crossed.append(truth > model.upper(len(ids), 0.95))
    assert np.mean(np.array(errors) <= within) >= 0.9
    assert max(errors) <= 2.5 * within
    assert np.median(errors) < 0.5 * np.median(naive)
    assert np.mean(crossed) <= 0.05


@pytest.mark.long
def test_bounds_hold_for_other_laws_than_zipfs() -> None:
    """Shifted, log-normal and broken power laws: the value may be off, the bound must not be crossed."""
    rank = np.arange(1.0, 100_001)
    normal = np.sort(np.random.default_rng(1).lognormal(0, 2.5, len(rank)))[::-1]
    broken = np.where(rank < 2000, rank**-0.8, rank**-1.6 * 2000**0.8)
    crossed = []
    for shares in ((rank + 10) ** -1.05, (rank + 1000) ** -1.1, normal, broken):
        for seed in range(3):
            draws = np.random.default_rng(seed).random(SAMPLES)
            ids = np.searchsorted(np.cumsum(shares / shares.sum()), draws)
            model = RowGrowth(seed=seed).fit(*growth(ids, 0.2))
            truth = len(np.unique(ids))
            assert model.predict(len(ids)) == pytest.approx(truth, rel=0.3)
            crossed.append(truth > model.upper(len(ids), 0.95))
    assert sum(crossed) <= 1


def test_each_table_is_drawn_separately() -> None:
    at, rows = growth(stream(20_000, 1.05, 0, 50_000), 0.2)
    first, second = growth_of_tables(at.tolist(), [rows.tolist()] * 2) or []
    assert abs(np.corrcoef(first.draw(50_000), second.draw(50_000))[0, 1]) < 0.5
    assert growth_of_tables([10, 20], [[1, 2]]) is None


@pytest.mark.long
def test_a_vocabulary_that_drifts_keeps_growing() -> None:
    errors, crossed = [], []
    for seed in range(6):
        ids = stream(20_000, 1.05, seed, drift=0.02)
        truth = len(np.unique(ids))
        model = RowGrowth(seed=seed).fit(*growth(ids, 0.2))
        errors.append(abs(model.predict(len(ids)) / truth - 1))
        crossed.append(truth > model.upper(len(ids), 0.95))
        still = RowGrowth(seed=seed).fit(*growth(stream(20_000, 1.05, seed), 0.2))
        more, none = (m.predict(10 * SAMPLES) - m.predict(SAMPLES) for m in (model, still))
        assert more > 1.5 * none
    assert np.median(errors) < 0.1
    assert sum(crossed) <= 1


def test_a_known_vocabulary_is_never_exceeded() -> None:
    ids = stream(20_000, 1.05, 0)
    model = RowGrowth(vocabulary=20_000).fit(*growth(ids, 0.02))
    assert model.upper(1e12, 0.99) <= 20_000
    assert model.predict(SAMPLES) == pytest.approx(len(np.unique(ids)), rel=0.08)


@given(st.integers(0, 1000), st.floats(0.5, 1.5))
@settings(max_examples=8, deadline=None)
def test_forecasts_are_in_order_and_grow(seed: int, exponent: float) -> None:
    at, rows = growth(stream(5000, exponent, seed, 50_000), 0.2)
    model = RowGrowth(seed=seed).fit(at, rows)
    last = float(rows[-1])
    for samples in (20_000, 50_000, 500_000):
        low, high = model.predict_interval(samples)
        assert rows[-1] <= low <= model.predict(samples) <= high <= samples
        assert model.predict(samples) >= last * 0.999
        last = model.predict(samples)
    assert model.predict(at[0]) == rows[0]


@pytest.mark.parametrize(
    ("samples", "rows", "message"),
    [
        ([10, 20], [5, 8], "2 points are too few to forecast"),
        ([10, 20, 15], [5, 8, 9], "must grow"),
        ([10, 20, 30], [5, 8, 7], "must not shrink"),
        ([10, 20, 30], [11, 12, 13], "rows must not exceed samples"),
        ([10, 20, 30], [5, np.nan, 7], "must not shrink"),
        ([10, 20, 30], [5, 6], "samples has 3 numbers, but rows has 2"),
    ],
)
def test_invalid_growth_is_refused(samples: list[float], rows: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RowGrowth().fit(samples, rows)
    assert issubclass(NotEnoughDataError, InputError)


def test_more_rows_than_the_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="vocabulary is 5"):
        RowGrowth(vocabulary=5).fit([10, 20, 30], [5, 6, 7])


def test_invalid_arguments_of_forecasts_are_refused() -> None:
    with pytest.raises(InputError, match="not fitted yet"):
        RowGrowth().predict(1e6)
    grown = RowGrowth().fit([100, 200, 300], [50, 80, 100])
    for ask in (lambda: grown.predict_interval(1e3, 90), lambda: grown.upper(1e3, 95)):
        with pytest.raises(InputError, match="must lie between 0 and 1"):
            ask()
    with pytest.raises(InputError, match="got nan"):
        grown.predict(float("nan"))
    with pytest.raises(InputError, match="must be numbers"):
        RowGrowth().fit(["a", "b", "c"], [1, 2, 3])
    with pytest.raises(InputError, match="vocabulary is nan"):
        RowGrowth(float("nan")).fit([100, 200, 300], [50, 80, 100])
    with pytest.raises(NotEnoughDataError, match="1 more point"):
        RowGrowth().fit([100, 200], [50, 80])
