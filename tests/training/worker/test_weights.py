from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sizewright.training.worker.networks import FAMILIES, make_network
from sizewright.training.worker.weights import FlatWeights
from tests.helpers.training_parts import small_job


@pytest.mark.parametrize("family", FAMILIES)
def test_flat_weights_share_memory_with_the_network(family: str) -> None:
    network = make_network(small_job(family=family).model)
    before = [p.detach().clone() for p in network.parameters()]
    flat = FlatWeights(network)
    np.testing.assert_array_equal(flat.weights, np.concatenate([p.numpy().ravel() for p in before]))
    flat.weights[:] = 0.25
    flat.put_weights()
    assert all((p == 0.25).all() for p in network.parameters())


def backward(network: nn.Module, seed: int) -> None:
    model = small_job().model
    torch.manual_seed(seed)
    inputs = torch.randn(4, model.dense_features), torch.randn(4, model.tables.count, model.row_widths[0])
    device = next(network.parameters()).device
    network(*(each.to(device) for each in inputs)).sum().backward()


def check(device: str) -> None:
    """Gradients gather as torch's do, and restart at zero once they are taken."""
    ours, theirs = (make_network(small_job().model) for _ in range(2))
    flat = FlatWeights(ours.to(device))
    for round_ in range(2):
        for step in range(2):
            backward(ours, 10 * round_ + step)
            backward(theirs, 10 * round_ + step)
        expected = np.concatenate([p.grad.numpy().ravel() for p in theirs.parameters() if p.grad is not None])
        np.testing.assert_allclose(flat.take_grads(), expected, rtol=1e-4, atol=1e-5)
        theirs.zero_grad()
    assert not flat.take_grads().any()


def test_gradients_accumulate_like_torch_until_taken() -> None:
    check("cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this host has no GPU")
def test_gpu_gradients_accumulate_like_torch() -> None:
    check("cuda")
    network = make_network(small_job().model).to("cuda")
    flat = FlatWeights(network)
    flat.weights[:] = 0.25
    flat.put_weights()
    assert all((p.cpu() == 0.25).all() for p in network.parameters())


def test_taken_gradients_are_unaffected_by_new_ones() -> None:
    network = make_network(small_job().model)
    flat = FlatWeights(network)
    backward(network, 1)
    taken = flat.take_grads()
    before = taken.copy()
    backward(network, 2)
    np.testing.assert_array_equal(taken, before)
    assert before.any()


def test_network_without_weights_is_supported() -> None:
    flat = FlatWeights(nn.Identity())
    assert flat.weights.size == flat.take_grads().size == 0
    flat.put_weights()
