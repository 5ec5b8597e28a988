"""Trials of one allocation count as one of which more is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sizewright.models import ThroughputModel
from sizewright.models.axes import measured
from sizewright.models.repeats import pooled
from sizewright.models.residual import ResidualProcess, Scales
from sizewright.testing import queueing

RNG = np.random.default_rng(0)


def repeated(times: int) -> pd.DataFrame:
    table = pd.concat([queueing.table().iloc[::4]] * times, ignore_index=True)
    return table.assign(throughput=table["throughput"] * RNG.lognormal(0, 0.05, len(table)))


def test_pooling_changes_neither_likelihood_nor_moments() -> None:
    trials = measured(repeated(3))
    rates, draws = np.log(trials.throughput), 40
    rates = rates - rates.mean()
    places, at = np.column_stack(trials.axes[:4]), RNG.uniform(0, 2, (5, 4))
    scales = Scales(RNG.uniform(0.05, 0.5, draws), RNG.uniform(0.01, 0.2, draws))
    told = pooled(trials.axes, rates)
    assert told.counts.tolist() == [3.0] * (len(rates) // 3)
    whole, few = ResidualProcess(places), ResidualProcess(places[told.rows], told.counts)
    want = whole.log_likelihood(np.tile(rates, (draws, 1)), scales)
    got = few.log_likelihood(np.tile(told.rates, (draws, 1)), scales) + told.log_likelihood(scales.noise)
    assert np.ptp(got - want) == pytest.approx(0.0, abs=1e-3)
    for a, b in zip(
        whole.moments(np.tile(rates, (draws, 1)), scales, at),
        few.moments(np.tile(told.rates, (draws, 1)), scales, at),
        strict=True,
    ):
        assert a == pytest.approx(b, abs=1e-4)


def test_a_thousand_trials_of_a_few_allocations_are_learned_from() -> None:
    few, many = repeated(1), repeated(80)
    narrow, wide = (
        np.log(np.divide(*ThroughputModel().fit(table).predict_interval(few, kind="mean")[::-1])).mean()
        for table in (many, few)
    )
    assert len(many) > 500
    assert narrow < wide / 2
