"""What the host did to each trial is told by the CPU seconds of a sample, where these are otherwise smooth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sizewright.models import ThroughputModel
from sizewright.models.host_state import HostState
from sizewright.profiler.planner.measured_table import one_table

AXES = ["workers", "ps", "worker_cpu", "ps_cpu"]


def quota_bound(count: int, host_sd: float, repeats: int = 1) -> tuple[pd.DataFrame, np.ndarray]:
    """Return trials that use all of their cores, and the state of the host in each of them."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "workers": rng.integers(1, 9, count),
            "ps": rng.integers(1, 5, count),
            "worker_cpu": rng.choice([0.2, 0.5, 1.0], count),
            "ps_cpu": rng.choice([0.1, 0.3], count),
        }
    )
    table = pd.concat([table] * repeats, ignore_index=True).assign(batch_size=256)
    state = rng.normal(0, host_sd, len(table))
    cores = table.workers * table.worker_cpu + table.ps * table.ps_cpu
    seconds = 1e-4 * table.workers**-0.1 * table.worker_cpu**-0.2 * np.exp(state)
    return table.assign(
        throughput=cores / seconds, worker_cpu_used=table.worker_cpu, ps_cpu_used=table.ps_cpu
    ), state  # fmt: skip


def test_the_state_of_the_host_is_recovered() -> None:
    trials, truth = quota_bound(12, 0.1)
    state = HostState.of(trials)
    assert np.corrcoef(state.deviation, truth)[0, 1] > 0.7
    assert 0.05 < state.sd < 0.2


def test_a_steady_host_leaves_trials_as_they_are() -> None:
    trials, _ = quota_bound(12, 0.001, repeats=2)
    state = HostState.of(trials)
    assert np.abs(state.deviation).max() < 0.02
    assert state.sd < 0.02


def test_changes_of_the_cpu_seconds_that_repeat_are_no_state_of_the_host() -> None:
    """Code that waits busily uses all of its cores at any throughput; repeats show that this is no noise."""
    trials, _ = quota_bound(12, 0.0, repeats=3)
    jumps = np.tile(np.random.default_rng(0).normal(0, 0.3, 12), 3)
    state = HostState.of(trials.assign(throughput=trials.throughput * np.exp(jumps)))
    assert np.abs(state.deviation).max() < 0.15


@pytest.mark.parametrize("left", [[], ["worker_cpu_used"]])
def test_trials_that_do_not_tell_the_cores_used_are_left_alone(left: list[str]) -> None:
    trials, _ = quota_bound(8, 0.1)
    state = HostState.of(trials[[*AXES, "throughput", *left]].head(2 if left else 8))
    assert not state.deviation.any()
    assert state.sd == 0


def test_a_use_above_the_cores_is_ignored() -> None:
    trials, _ = quota_bound(8, 0.1)
    trials.loc[3, "worker_cpu_used"] = 5.0
    assert HostState.of(trials).deviation[3] == 0


def test_the_model_repeats_better_and_expects_the_state_of_another_trial() -> None:
    trials, _ = quota_bound(12, 0.12)
    truth = trials.assign(throughput=quota_bound(12, 0.0)[0].throughput)
    corrected, blind = (
        ThroughputModel().fit(table) for table in (trials, trials.drop(columns=["worker_cpu_used", "ps_cpu_used"]))
    )
    errors = [np.abs(np.log(m.predict(truth) / truth.throughput)).mean() for m in (corrected, blind)]
    assert errors[0] < errors[1]
    assert corrected.explain().host_sd > 0.05
    lower, upper = corrected.predict_interval(truth)
    assert np.log(upper / lower).min() > 3 * corrected.explain().host_sd


def test_the_truth_of_a_table_is_that_of_a_host_in_its_mean_state() -> None:
    trials, _ = quota_bound(12, 0.1, repeats=2)
    table = one_table(trials, "quota")
    truth = quota_bound(12, 0.0)[0].throughput.to_numpy()[: len(table)]
    errors = [np.std(np.log(smoothed[0] / truth)) for smoothed in (table.smoothed, table.smoothed_as_measured)]
    assert errors[0] < errors[1]
