from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.models.memory.memory_model import state_floats
from sizewright.spec import Optimizer
from sizewright.training.ps.optimizers import EPSILON, RULES, Floats, make_rule

STEPS, ROWS, WIDTH = 7, 5, 3


def gradients(seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((STEPS, ROWS, WIDTH)).astype(np.float32)


def run(name: str, grads: Floats, rate: float = 0.1) -> tuple[Floats, Floats]:
    """Weights and state after all gradients; weights begin as those of the reference."""
    rule = make_rule(Optimizer(name=name, learning_rate=rate))
    weights = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    state = np.zeros((ROWS, rule.state_width(WIDTH)), np.float32)
    for grad in grads:
        rule.update(weights, state, grad)
    return weights, state


def run_torch(make: type[torch.optim.Optimizer], grads: Floats, **options: float) -> Floats:
    weights = torch.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH).requires_grad_()
    optimizer = make([weights], **options)
    for grad in grads:
        weights.grad = torch.from_numpy(grad.copy())
        optimizer.step()
    result: Floats = weights.detach().numpy()
    return result


def test_sgd_matches_torch() -> None:
    np.testing.assert_allclose(run("sgd", gradients())[0], run_torch(torch.optim.SGD, gradients(), lr=0.1), atol=1e-7)


def test_adagrad_matches_torch() -> None:
    expected = run_torch(torch.optim.Adagrad, gradients(), lr=0.1, eps=float(EPSILON))
    np.testing.assert_allclose(run("adagrad", gradients())[0], expected, rtol=1e-5)


def test_rowwise_adagrad_equals_adagrad_for_equal_gradients() -> None:
    grads = gradients()
    grads[:] = grads[:, :, :1]
    np.testing.assert_allclose(run("rowwise_adagrad", grads)[0], run("adagrad", grads)[0], rtol=1e-5)


def test_rowwise_adagrad_keeps_the_mean_square_of_a_row() -> None:
    grads = gradients()
    np.testing.assert_allclose(run("rowwise_adagrad", grads)[1][:, 0], (grads**2).mean(2).sum(0), rtol=1e-5)


def test_adam_follows_its_formula_without_bias_correction() -> None:
    weights = np.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for grad in gradients().astype(np.float64):
        first = 0.9 * first + 0.1 * grad
        second = 0.999 * second + 0.001 * grad**2
        weights -= 0.1 * first / (np.sqrt(second) + 1e-8)
    got, state = run("adam", gradients())
    np.testing.assert_allclose(got, weights, rtol=1e-4)
    np.testing.assert_allclose(state, np.concatenate([first, second], axis=1), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_state_width_matches_the_memory_model(name: str) -> None:
    for width in (1, 3, 16):
        assert make_rule(Optimizer(name=name)).state_width(width) == state_floats(name, width)


@settings(max_examples=50, deadline=None)
@given(name=st.sampled_from(sorted(RULES)), seed=st.integers(0, 10**6))
def test_rows_are_updated_independently(name: str, seed: int) -> None:
    """One update of two blocks of rows is the update of each block."""
    rng, rule = np.random.default_rng(seed), make_rule(Optimizer(name=name, learning_rate=0.3))
    weights, grads = rng.standard_normal((2, 6, 4)).astype(np.float32)
    state = rng.random((6, rule.state_width(4)), dtype=np.float32)
    parts = [(weights[s].copy(), state[s].copy(), grads[s]) for s in (slice(0, 2), slice(2, 6))]
    rule.update(weights, state, grads)
    for part in parts:
        rule.update(*part)
    np.testing.assert_array_equal(weights, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(state, np.concatenate([part[1] for part in parts]))


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad"])
def test_no_gradient_changes_nothing(name: str) -> None:
    weights, state = run(name, np.zeros((STEPS, ROWS, WIDTH), np.float32))
    assert weights.ravel() == pytest.approx(np.linspace(-1, 1, ROWS * WIDTH), abs=1e-7)
    assert not state.any()
