"""Trials of known equations, of which the ceiling and the curve below it must be recovered."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.models.forms.allreduce import AllreduceModel
from sizewright.models.forms.dlrover import DlroverModel
from sizewright.models.layers.ceiling import CeilingModel
from sizewright.spec import Allocation

CPU_S = 1e-4  # of a worker for a sample
PLACES = [(1, 0.2), (1, 0.4), (1, 0.8), (2, 0.2), (2, 0.4), (3, 0.2), (4, 0.2), (4, 0.4)]


def trial(workers: int, cores: float, ceiling: float, noise: float = 0.0) -> Trial:
    """Each sample takes CPU_S of a worker's core, each step 20 ms more a further worker."""
    step = 512 * CPU_S / cores + 0.02 * (workers - 1)
    rate = min(workers * 512 / step, ceiling) * (1 + noise)
    return Trial(
        workers=workers, ps=0, throughput=rate, throughput_se=0.01 * rate, worker_cpu=cores, batch_size=512,
        worker_cpu_used=rate * CPU_S / workers,
    )  # fmt: skip


def trials(ceiling: float, seed: int = 0) -> list[Trial]:
    rng = np.random.default_rng(seed)
    return [trial(*place, ceiling, 0.02 * rng.standard_normal()) for place in PLACES]


@pytest.mark.parametrize("seed", range(5))
def test_trials_without_a_ceiling_have_none(seed: int) -> None:
    account = CeilingModel(AllreduceModel()).fit(trials(np.inf, seed)).explain()
    assert account.ceiling is None
    assert account.model == "allreduce"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ceiling", [4000.0, 6000.0])
def test_ceiling_and_the_curve_below_it_are_recovered(seed: int, ceiling: float) -> None:
    model = CeilingModel(AllreduceModel()).fit(trials(ceiling, seed))
    assert model.explain().ceiling == pytest.approx(ceiling, rel=0.05)
    more = [Allocation.of(4, 0, 0.8, 1.0, 512), Allocation.of(1, 0, 0.3, 1.0, 512)]
    many, few = model.predict(more)
    assert many == pytest.approx(ceiling, rel=0.05)
    assert few == pytest.approx(3000, rel=0.15)
    lower, upper = model.predict_interval(more)
    assert (lower <= model.predict(more)).all()
    assert (model.predict(more) <= upper).all()


def test_cpu_use_predicts_fewer_workers_if_all_trials_are_at_the_ceiling() -> None:
    model = CeilingModel(AllreduceModel()).fit(trials(900.0))
    assert model.explain().ceiling == pytest.approx(900, rel=0.03)
    assert model.predict([Allocation.of(1, 0, 0.05, 1.0, 512)])[0] == pytest.approx(500, rel=0.1)


def test_busy_workers_have_no_ceiling() -> None:
    """All cores are used, so the workers limit the throughput and not the input pipeline."""
    busy = [t.model_copy(update={"worker_cpu_used": t.worker_cpu}) for t in trials(4000.0)]
    assert CeilingModel(AllreduceModel()).fit(busy).explain().ceiling is None


def test_workers_that_their_quota_stops_have_no_ceiling() -> None:
    stopped = [t.model_copy(update={"throttled_s": 0.2 * t.workers, "duration_s": 1.0}) for t in trials(4000.0)]
    assert CeilingModel(AllreduceModel()).fit(stopped).explain().ceiling is None


def test_job_with_ps_has_a_ceiling() -> None:
    rows = []
    for workers, cores, ps, ps_cores in [
        (1, 0.3, 1, 0.2), (2, 0.3, 1, 0.2), (2, 0.3, 2, 0.3), (3, 0.4, 1, 0.4), (4, 0.4, 2, 0.2), (1, 0.6, 2, 0.3),
        (3, 0.2, 1, 0.1), (1, 0.2, 1, 0.3), (4, 0.2, 2, 0.1),
    ]:  # fmt: skip
        step = 512 * CPU_S / cores + 0.002 * workers / (ps * ps_cores)
        rate = min(workers * 512 / step, 3500.0)
        rows.append(
            Trial(
                workers=workers, ps=ps, throughput=rate, throughput_se=0.01 * rate, worker_cpu=cores, ps_cpu=ps_cores,
                batch_size=512, worker_cpu_used=rate * CPU_S / workers, ps_cpu_used=0.02,
            )
        )  # fmt: skip
    account = CeilingModel(DlroverModel()).fit(rows).explain()
    assert account.ceiling == pytest.approx(3500, rel=0.05)
