from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.spec import Optimizer
from sizewright.training.ps.dense import DenseSlice, dense_rule
from sizewright.training.ps.optimizers import RULES, Floats

SIZE = 12
CUTS = st.lists(st.integers(0, SIZE), max_size=4).map(lambda cuts: [0, *sorted(cuts), SIZE])


def rule(name: str) -> Optimizer:
    return Optimizer(name=name, learning_rate=0.1)


def gradients(steps: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((steps, SIZE)).astype(np.float32)


def full_slice(name: str) -> DenseSlice:
    return DenseSlice(0, np.linspace(-1, 1, SIZE, dtype=np.float32), dense_rule(rule(name)))


def cut(parts: list[DenseSlice], cuts: list[int]) -> list[DenseSlice]:
    """Return the same weights and state in other slices."""
    new = [parts[0].like(a, b) for a, b in pairwise(cuts)]
    for target in new:
        for part in parts:
            begin, weights, state = part.part(target.start, target.end)
            if len(weights):
                target.put(begin, weights, state)
    return new


def joined(parts: list[DenseSlice]) -> tuple[Floats, Floats]:
    values = [part.part(0, SIZE) for part in parts]
    return np.concatenate([each[1] for each in values]), np.concatenate([each[2] for each in values])


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(RULES)), first=CUTS, second=CUTS, steps=st.integers(0, 4))
def test_repartitioned_slices_train_like_the_full_vector(
    name: str, first: list[int], second: list[int], steps: int
) -> None:
    """Weights and optimizer state, in any division, are those of the undivided vector."""
    reference, parts = full_slice(name), cut([full_slice(name)], first)
    for number, grads in enumerate(gradients(2 * steps)):
        if number == steps:
            parts = cut(parts, second)
        reference.update(grads)
        for part in parts:
            part.update(grads[part.start : part.end])
    weights, state = joined(parts)
    np.testing.assert_array_equal(weights, reference.part(0, SIZE)[1])
    np.testing.assert_array_equal(state, reference.part(0, SIZE)[2])


@settings(max_examples=60, deadline=None)
@given(cuts=CUTS, runs=CUTS)
def test_runs_update_their_intersection_with_a_slice(cuts: list[int], runs: list[int]) -> None:
    marked = [slice(a, b) for a, b in list(pairwise(runs))[::2]]
    (grads,) = gradients(1)
    reference = full_slice("adagrad")
    for run in marked:
        reference.update(grads, [run])
    parts = cut([full_slice("adagrad")], cuts)
    for part in parts:
        assert part.total == SIZE
        part.update(grads[part.start : part.end], part.inside(marked))
    np.testing.assert_array_equal(joined(parts)[0], reference.part(0, SIZE)[1])


@pytest.mark.parametrize("name", sorted(RULES))
def test_each_weight_has_its_own_accumulator(name: str) -> None:
    """Row-wise Adagrad is Adagrad here: otherwise all weights of a slice would share one accumulator."""
    dense = full_slice(name)
    dense.update(gradients(1)[0])
    width = {"sgd": 0, "adagrad": 1, "rowwise_adagrad": 1, "adam": 2}[name]
    assert dense.part(0, SIZE)[2].shape == (SIZE, width)
    if name in ("adagrad", "rowwise_adagrad"):  # the first step is the learning rate for any gradient
        np.testing.assert_allclose(np.abs(dense.copy() - full_slice(name).copy()), 0.1, rtol=1e-4)


def test_returned_and_accepted_weights_are_copies() -> None:
    weights = np.zeros(4, np.float32)
    dense = DenseSlice(0, weights, dense_rule(rule("adam")))
    weights[:] = 7
    dense.copy()[:] = 7
    for array in dense.part(0, 4)[1:]:
        array[:] = 7
    assert not dense.copy().any()
    assert not dense.part(0, 4)[2].any()
