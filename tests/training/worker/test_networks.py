from __future__ import annotations

import pytest
import torch

from sizewright.models.memory.memory_model import dense_floats
from sizewright.spec import Job, Model, Tables
from sizewright.training.worker.networks import FAMILIES, Dlrm, make_network
from tests.helpers.training_parts import small_job

SAMPLES = 6


def inputs(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    embedded = torch.randn(SAMPLES, model.tables.count, model.row_widths[0], requires_grad=True)
    return torch.randn(SAMPLES, model.dense_features), embedded


@pytest.mark.parametrize("family", FAMILIES)
def test_network_gives_one_logit_per_sample_and_all_gradients(family: str) -> None:
    model = small_job(family=family).model
    network = make_network(model)
    dense, embedded = inputs(model)
    logits = network(dense, embedded)
    assert logits.shape == (SAMPLES,)
    logits.square().sum().backward()
    assert embedded.grad is not None
    assert (embedded.grad.flatten(0, 1).abs().sum(0) > 0).all()  # every column of a row
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_do_not_mix(family: str) -> None:
    model = small_job(family=family).model
    network = make_network(model)
    dense, embedded = inputs(model)
    torch.testing.assert_close(network(dense[2:3], embedded[2:3]), network(dense, embedded)[2:3], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("widths", [(), (7,), (9, 5, 3)])
@pytest.mark.parametrize("cin", [(4,), (6, 3, 5)])
def test_dense_weights_match_the_memory_model(family: str, widths: tuple[int, ...], cin: tuple[int, ...]) -> None:
    tables = Tables(count=5, rows=10, dim=3)
    model = Model(family=family, dense_features=4, tables=tables, bottom_mlp=widths, top_mlp=widths, cin=cin)
    assert sum(p.numel() for p in make_network(model).parameters()) == dense_floats(Job(model=model))


@pytest.mark.parametrize("family", FAMILIES)
def test_seed_fixes_the_weights_without_touching_torchs_generator(family: str) -> None:
    model = small_job(family=family).model
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, twin, other = make_network(model), make_network(model), make_network(model, seed=1)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), twin.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_dlrm_crosses_every_pair_of_fields_once() -> None:
    model = small_job().model
    network = make_network(model)
    assert isinstance(network, Dlrm)
    fields = model.tables.count + 1
    pairs = {divmod(int(pair), fields) for pair in network.get_buffer("pairs")}
    assert pairs == {(a, b) for a in range(fields) for b in range(a)}


@pytest.mark.parametrize("family", ["wide_deep", "xdeepfm"])
def test_column_0_of_a_row_is_its_linear_weight(family: str) -> None:
    model = small_job(family=family).model
    network = make_network(model)
    dense, embedded = inputs(model)
    raised = embedded.detach().clone()
    raised[:, 1, 0] += 2.5
    difference = network(dense, raised) - network(dense, embedded)
    torch.testing.assert_close(difference, torch.full((SAMPLES,), 2.5), atol=1e-5, rtol=1e-5)
