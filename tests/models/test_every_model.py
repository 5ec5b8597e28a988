"""The contract of throughput models, for each of ours."""

from __future__ import annotations

import pandas as pd
import pytest

from sizewright.errors import InputError
from sizewright.models import BaseThroughputModel, ThroughputModel, get_model, model_names
from sizewright.testing import ModelContract, queueing

NAMES = model_names()


class TestEveryModel(ModelContract):
    @pytest.fixture(params=NAMES)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def model(self, name: str) -> BaseThroughputModel:
        return get_model(name)

    @pytest.fixture
    def trials(self, name: str) -> pd.DataFrame:
        if name == "allreduce":
            return queueing.table(0.02, seed=1).query("ps == 1").assign(ps=0)
        return queueing.sample_trials()

    def test_model_is_registered_by_its_name(self, name: str) -> None:
        assert get_model(name).name == name


def test_the_default_is_the_first() -> None:
    assert NAMES[0] == "default"
    assert type(get_model("default")) is ThroughputModel


def test_phases_are_needed_for_phases() -> None:
    with pytest.raises(InputError, match="have measured phases"):
        get_model("phases").fit(queueing.table())
    steps = queueing.with_phases(queueing.table()).drop(columns="batch_size")  # of a step, not of samples
    with pytest.raises(InputError, match="have measured phases"):
        get_model("phases").fit(steps)
