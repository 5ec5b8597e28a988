from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.models.forms.allreduce import AllreduceModel
from sizewright.spec import Allocation

BETA, COMPUTE, EXCHANGE, MESSAGES = 0.004, 3e-5, 0.012, 0.003
PLACES = [(1, 0.5, 256), (1, 1.0, 256), (2, 0.5, 256), (2, 1.0, 512), (3, 1.0, 256), (4, 0.5, 512), (5, 1.0, 256)]


def rate(workers: int, cores: float, batch: int) -> float:
    step = BETA + COMPUTE * batch / cores + EXCHANGE * (workers - 1) / workers + MESSAGES * (workers - 1)
    return workers * batch / step


def trials() -> list[Trial]:
    return [
        Trial(workers=w, ps=0, worker_cpu=c, batch_size=m, throughput=rate(w, c, m), throughput_se=0.0)
        for w, c, m in PLACES
    ]


def test_known_parameters_are_recovered() -> None:
    model = AllreduceModel().fit(trials())
    parameters = model.explain().parameters
    assert [parameters[name] for name in ("beta", "compute", "exchange", "messages")] == pytest.approx(
        [BETA, COMPUTE, EXCHANGE, MESSAGES], rel=1e-6
    )
    unseen = [Allocation.of(8, 0, 0.25, 1.0, 128), Allocation.of(6, 0, 2.0, 1.0, 1024)]
    assert list(model.predict(unseen)) == pytest.approx([rate(8, 0.25, 128), rate(6, 2.0, 1024)], rel=1e-6)


def test_trials_of_one_worker_leave_the_exchange_pinned() -> None:
    alone = [t.model_copy(update={"workers": 1, "batch_size": 64 * i}) for i, t in enumerate(trials(), 1)]
    account = AllreduceModel().fit(alone).explain()
    assert {"exchange", "messages"} <= set(account.pinned)


def test_allocation_without_workers_is_refused() -> None:
    with pytest.raises(InputError, match="workers is 0"):
        AllreduceModel().fit([t.model_copy(update={"workers": 0}) for t in trials()])


def test_step_takes_time_without_any_term() -> None:
    counts = [2, 3, 4, 6]
    rows = {"workers": counts, "ps": [0] * 4, "throughput": [100 * w / (w - 1) for w in counts]}
    model = AllreduceModel().fit(rows)
    one = {"workers": [1], "ps": [0]}
    assert 100 < model.predict(one)[0] <= 1000 * (1 + 1e-9)
    low, high = model.predict_interval(one)
    assert 0 < 10 * low[0] < model.predict(one)[0] < high[0] / 10 < np.inf
