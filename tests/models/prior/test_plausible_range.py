"""How far throughputs may lie from a prediction."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.models.prior.plausible_range import plausible_range


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_trials_are_compared_with_the_prediction(count: int) -> None:
    assert plausible_range([1.0] * count, count) == (0.0, pytest.approx(np.log(20.0)))


def test_several_trials_are_compared_with_their_median() -> None:
    assert plausible_range([2.0, 2.5, 9.0], 3) == (2.5, pytest.approx(np.log(4.0)))
