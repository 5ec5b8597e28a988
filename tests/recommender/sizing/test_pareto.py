from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sizewright.recommender.sizing.pareto import pareto_front

TIED = st.integers(0, 6).map(float)
POINTS = st.lists(st.tuples(TIED, TIED), min_size=1, max_size=40) | st.lists(
    st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=40
)


@given(POINTS)
def test_front_equals_that_of_pairwise_comparison(points: list[tuple[float, float]]) -> None:
    gain, cost = np.array(points).T
    front = pareto_front(gain, cost)
    undominated = {
        (g, c) for g, c in points if not any(g2 >= g and c2 <= c and (g2 > g or c2 < c) for g2, c2 in points)
    }
    assert {(gain[i], cost[i]) for i in front} == undominated
    assert len(front) == len(undominated)
    assert np.all(np.diff(cost[front]) > 0)
