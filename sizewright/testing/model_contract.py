"""The contract of every throughput model, as a class of pytest tests to subclass.

from sizewright.testing import ModelContract

class TestMine(ModelContract):
    @pytest.fixture
    def model(self):
        return MyModel()
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.validation import check_is_fitted

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models import BaseThroughputModel
from sizewright.models.factory import validated
from sizewright.models.table import ALLOCATION_AXES
from sizewright.profiler import TrialPlanner
from sizewright.testing import queueing

ROUNDING = 1 + 1e-6
PLANNED = ("workers", "ps", "worker_cpu", "ps_cpu")

INVALID: list[tuple[str, Any, str]] = [
    ("worker_cpu", -1.0, "worker_cpu is -1"),
    ("workers", 0, "workers is 0"),
    ("sync", "BSP", "sync is 'BSP'"),
    ("batch_size", np.inf, "batch_size is inf"),
]
"""Columns with invalid values, and parts of the messages about them."""


class ModelContract:
    """Tests of a throughput model. Subclass it, name the subclass Test…, and define the fixture `model`."""

    max_error: ClassVar[float] = 0.5
    """Maximum relative error of the median prediction for `trials`, after fitting two thirds of them."""

    @pytest.fixture
    def model(self) -> BaseThroughputModel:
        """Return the model under test, not fitted."""
        raise NotImplementedError("define the fixture `model`")

    @pytest.fixture
    def trials(self) -> pd.DataFrame:
        """Return trials that differ in workers, PS, worker_cpu and ps_cpu.

        These are of a queueing network with 2 % of noise. Override it for a model that needs other trials.
        """
        return queueing.sample_trials()

    def test_model_has_base_class_and_name(self, model: BaseThroughputModel) -> None:
        """It is a `BaseThroughputModel` and has a name."""
        assert isinstance(model, BaseThroughputModel), "subclass sizewright.models.BaseThroughputModel"
        assert isinstance(model.name, str), "a model needs a name"
        assert model.name, "a model needs a name"

    def test_curves_are_positive_and_support_is_a_distance(
        self, model: BaseThroughputModel, trials: pd.DataFrame
    ) -> None:
        """Curves are samples/s, at most as many as asked for; support is a distance."""
        model.fit(trials)
        curves = model.curves(trials, 50, np.random.default_rng(0))
        assert curves.ndim == 2
        assert 1 <= len(curves) <= 50
        assert curves.shape[1] == len(trials)
        assert np.all(np.isfinite(curves) & (curves > 0))
        support = model.support(trials)
        assert support.shape == (len(trials),)
        assert np.all(support >= 0)

    def test_planner_tries_distinct_allocations_and_recommends_a_candidate(
        self, model: BaseThroughputModel, trials: pd.DataFrame
    ) -> None:
        """A planner asks for other allocations by its curves, and recommends one of the candidates."""
        table = trials.drop_duplicates(list(PLANNED)).set_index(list(PLANNED))["throughput"]
        planner = TrialPlanner(table.index.to_frame(index=False), "time", max_trials=8, predictor=validated(model))
        asked = []
        while (allocation := planner.ask()) is not None:
            asked.append(_place(allocation))
            planner.tell(allocation, float(table[asked[-1]]))
        assert model.min_trials < len(asked) <= 8
        assert len(set(asked)) == len(asked)
        assert _place(planner.best()) in table.index

    def test_predictions_are_accurate_and_inside_their_intervals(
        self, model: BaseThroughputModel, trials: pd.DataFrame
    ) -> None:
        """Predictions are accurate; intervals are wider for a trial than for the mean, and for more coverage."""
        model.fit(trials.sample(2 * len(trials) // 3, random_state=0))
        predicted = model.predict(trials)
        assert predicted.shape == (len(trials),)
        assert np.median(np.abs(predicted / trials["throughput"] - 1)) < self.max_error
        width = {}
        for coverage, kind in ((0.9, "trial"), (0.9, "mean"), (0.5, "trial")):
            lower, upper = model.predict_interval(trials, coverage, kind)  # type: ignore[arg-type]
            assert np.all((lower > 0) & (lower <= predicted * ROUNDING) & (predicted <= upper * ROUNDING))
            width[coverage, kind] = upper - lower
        assert np.all(width[0.9, "mean"] <= width[0.9, "trial"] * ROUNDING), (
            "the interval of the mean must not be wider than that of a trial"
        )
        assert np.all(width[0.5, "trial"] <= width[0.9, "trial"] * ROUNDING), "more coverage needs a wider interval"
        middle, lower, upper = model.predict_with_interval(trials, 0.8)
        assert np.array_equal(middle, predicted)
        for one, other in zip((lower, upper), model.predict_interval(trials, 0.8), strict=True):
            assert np.array_equal(one, other)

    def test_model_is_a_scikit_learn_estimator(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """Parameters, clones, cross-validation and pickling work, and an unfitted model raises NotFittedError."""
        assert model.set_params(**model.get_params()) is model
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
        with pytest.raises(NotFittedError):
            model.predict(trials)
        assert model.fit(trials) is model
        check_is_fitted(model)
        with pytest.raises(NotFittedError):
            check_is_fitted(clone(model))
        folds = KFold(3, shuffle=True, random_state=0)
        assert cross_val_predict(clone(model), trials, trials["throughput"], cv=folds).shape == (len(trials),)
        copy = pickle.loads(pickle.dumps(model))
        assert np.array_equal(copy.predict(trials), model.predict(trials))

    def test_same_trials_give_same_predictions(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """Predictions do not depend on the type of table or on earlier fits, and ignore failed trials."""
        expected = clone(model).fit(trials).predict(trials)
        rows: list[Any] = [Trial.model_validate(row) for row in trials.to_dict("records")]
        failed = trials.iloc[:3].assign(status="failed", throughput=9e9)
        tables: list[Any] = [trials, rows, {c: trials[c].to_numpy() for c in trials}, pd.concat([trials, failed])]
        for table in tables:
            assert np.allclose(model.fit(table).predict(trials), expected)

    def test_explanation_names_model_and_parameters(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """The explanation has the evidence that a recommendation shows."""
        explanation = model.fit(trials).explain()
        assert explanation.model == model.name
        assert explanation.enough
        assert explanation.distinct_allocations >= explanation.needed
        assert set(explanation.pinned) <= set(explanation.parameters)
        assert np.isfinite(list(explanation.parameters.values())).all()

    def test_missing_and_invalid_throughputs_are_refused(
        self, model: BaseThroughputModel, trials: pd.DataFrame
    ) -> None:
        """Trials without throughput, and invalid throughputs, raise InputError."""
        with pytest.raises(InputError):
            model.fit({"workers": [1, 2], "ps": [1, 1]}, [0.0, np.nan])
        for wrong in (np.inf, -1.0):
            with pytest.raises(InputError, match="infinite or negative"):
                model.fit(trials, np.r_[wrong, trials["throughput"][1:]])
        for odd in (["fast"] * len(trials), trials["throughput"].to_numpy()[:, None], trials["throughput"][:3]):
            with pytest.raises(InputError, match="throughput"):
                model.fit(trials, odd)

    def test_too_few_distinct_trials_are_refused(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """Too few distinct trials raise NotEnoughDataError, which has the number of missing trials."""
        for few in (trials.iloc[:2], pd.concat([trials.iloc[:1]] * 5), pd.concat([trials.iloc[:2]] * 4)):
            with pytest.raises(NotEnoughDataError) as caught:
                model.fit(few)
            assert caught.value.missing > 0

    def test_invalid_allocations_are_refused(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """Invalid values raise InputError in `fit` and in `predict`."""
        fitted = clone(model).fit(trials)
        for column, value, message in INVALID:
            odd = trials.assign(**{column: value})
            with pytest.raises(InputError, match=message):
                clone(model).fit(odd)
            with pytest.raises(InputError, match=message):
                fitted.predict(odd)

    def test_varied_columns_are_required_in_predict(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """A column in which the trials differ is required in `predict`; other columns are optional."""
        model.fit(trials)
        with pytest.raises(InputError, match="worker_cpu"):
            model.predict(trials.drop(columns="worker_cpu"))
        assert np.allclose(model.predict(trials.drop(columns="batch_size")), model.predict(trials))
        assert model.predict(trials.iloc[:0]).shape == (0,)

    def test_sync_accepts_words_and_booleans(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """`sync` may be words or booleans, and may be missing."""
        words = np.where(np.arange(len(trials)) % 2, "async", "sync")
        trials = trials.assign(sync=words)
        expected = clone(model).fit(trials).predict(trials)
        missing = trials.assign(sync=trials["sync"].astype("string").mask(words == "async", pd.NA))
        assert np.isfinite(clone(model).fit(missing).predict(trials)).all()
        for booleans in (trials["sync"] == "sync", (trials["sync"] == "sync").to_numpy()):
            columns = {c: trials[c].to_numpy() for c in trials} | {"sync": booleans}
            assert np.allclose(clone(model).fit(columns).predict(columns), expected)
        with pytest.raises(InputError, match="must be 0 or 1"):
            model.fit(trials.assign(sync=7))

    def test_invalid_tables_and_options_are_refused(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """Tables without column names, and invalid options of intervals, raise InputError."""
        plain: Any = trials[list(ALLOCATION_AXES)].to_numpy()
        with pytest.raises(InputError, match="named columns"):
            model.fit(plain, trials["throughput"])
        model.fit(trials)
        uneven = {column: trials[column].to_numpy() for column in ALLOCATION_AXES} | {"ps": [1]}
        odd: list[Any] = [None, "allocations", 5, plain, uneven]
        for table in odd:
            with pytest.raises(InputError, match=r"named columns|have 1 to"):
                model.predict(table)
        for options in ({"coverage": 1.5}, {"kind": "mode"}):
            with pytest.raises(InputError):
                model.predict_interval(trials, **options)

    def test_single_allocation_is_a_table_of_one_row(self, model: BaseThroughputModel, trials: pd.DataFrame) -> None:
        """A row of a data frame, a mapping, and a list of one mapping give the same prediction."""
        expected = model.fit(trials).predict(trials)[0]
        ones: list[Any] = [trials.iloc[0], trials.iloc[0].to_dict(), [trials.iloc[0].to_dict()]]
        for one in ones:
            assert model.predict(one) == pytest.approx([expected])


def _place(allocation: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(allocation[axis] for axis in PLANNED)
