"""A prior of parameters is learned as the theory of normal hierarchies says, and its file is checked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sizewright.errors import NotEnoughDataError, StoreError
from sizewright.models import ThroughputModel
from sizewright.models.default import curve
from sizewright.models.default.parameter_prior import NamedTable, Normals, ParameterPrior, learn_parameters
from sizewright.models.default.predictor import posterior_draws
from sizewright.testing import queueing

RNG = np.random.default_rng(0)


def posterior(values: np.ndarray, prior: Normals) -> np.ndarray:
    """Return draws whose mean and variance are those of a normal mean, of which `values` are observed with sd 0.3."""
    means, sds = curve.prior_of(prior)
    variance = 1 / (1 / sds**2 + 1 / 0.3**2)
    mean = variance * (means / sds**2 + values / 0.3**2)
    draws = RNG.standard_normal((4000, len(means)))
    return mean + np.sqrt(variance) * (draws - draws.mean(axis=0)) / draws.std(axis=0)


def test_the_prior_becomes_that_of_the_tables() -> None:
    truth = np.random.default_rng(1).normal(2.0, 0.5, (400, len(curve.NAMES)))
    observed = truth + np.random.default_rng(2).normal(0, 0.3, truth.shape)
    learned = learn_parameters([NamedTable(str(i), str(i), row) for i, row in enumerate(observed)], posterior)
    means, sds = np.array(list(learned.normals.values())).T
    assert means == pytest.approx(2.0, abs=0.15)
    hand_set, hand_sds = curve.prior_of()  # which counts as four tables
    expected = np.sqrt((400 * 0.5**2 + 4 * (hand_sds**2 + (hand_set - means) ** 2)) / 404)
    assert sds == pytest.approx(expected, rel=0.15)
    assert len(learned.tables) == 400


def test_a_large_family_counts_as_few_tables() -> None:
    one, many = np.full(len(curve.NAMES), -1.0), np.full(len(curve.NAMES), 1.0)
    tables = [NamedTable("a", "a", one)] * 8 + [NamedTable("b", "b", many)] * 80
    means = np.array([mean for mean, _ in learn_parameters(tables, posterior).normals.values()])
    hand_set, _ = curve.prior_of()
    assert means == pytest.approx(4 * hand_set / 20, abs=0.4)


def test_too_few_tables_are_refused() -> None:
    with pytest.raises(NotEnoughDataError, match="2 tables are too few"):
        learn_parameters([NamedTable("a", "a", np.zeros(1))] * 2, posterior)


def test_a_learned_prior_is_read_back_and_used(tmp_path: Path) -> None:
    table = queueing.table().sample(8, random_state=0)
    prior = learn_parameters([NamedTable(name, name, table) for name in "abc"], posterior_draws)
    prior.save(tmp_path / "p.json")
    loaded = ParameterPrior.load(tmp_path / "p.json")
    assert loaded.tables == ("a", "b", "c")
    assert loaded.normals["fixed"] == pytest.approx(prior.normals["fixed"], abs=1e-3)
    hand_set, learned = ThroughputModel().fit(table), ThroughputModel(loaded.normals).fit(table)
    assert not np.allclose(hand_set.draws_, learned.draws_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "its version is 9"),
        ({"tables": ["others"]}, "checksum"),
        ({"parameters": {"fixed": [0.0]}, "sha256": None}, "checksum"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "p.json"
    ParameterPrior({"fixed": (0.0, 1.0)}, ("t",)).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(StoreError, match=message):
        ParameterPrior.load(path)


def test_an_unknown_parameter_is_refused(tmp_path: Path) -> None:
    ParameterPrior({"fixed": (0.0, 1.0), "other": (0.0, 1.0)}).save(tmp_path / "p.json")
    with pytest.raises(StoreError, match="'other' is not a parameter"):
        ParameterPrior.load(tmp_path / "p.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no prior of parameters"):
        ParameterPrior.load(tmp_path / "none.json")
