from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import MIB
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.spec import Allocation, Bounds, Job, Prices, RoleBounds, Training
from sizewright.spec.objective import allocation_price

BOUNDS = Bounds(
    worker=RoleBounds(replicas=(1, 8), cpu=(0.5, 0.5), memory_bytes=(512 * MIB, 4096 * MIB)),
    ps=RoleBounds(replicas=(1, 4), cpu=(0.3, 0.3), memory_bytes=(512 * MIB, 4096 * MIB)),
)
JOB = Job(bounds=BOUNDS, training=Training(samples=10**8), objective="time")


def rate(workers: int, ps: int) -> float:
    """Each PS serves three workers."""
    return float(1000.0 * (workers**-4.0 + (3.0 * ps) ** -4.0) ** -0.25)


def trial(workers: int, ps: int, seed: int = 0) -> Trial:
    noise = float(np.exp(0.02 * np.random.default_rng(seed).standard_normal()))
    fields: dict[str, Any] = {"worker_cpu": 0.5, "ps_cpu": 0.3, "batch_size": 512, "job_hash": JOB.hash}
    return Trial(workers=workers, ps=ps, throughput=rate(workers, ps) * noise, **fields)


TRIALS = [trial(w, p, i) for i, (w, p) in enumerate([(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 4), (6, 3), (1, 4)])]


def at(workers: int, ps: int) -> Allocation:
    return Allocation.of(workers, ps, 0.5, 0.3, 512, 1024 * MIB, 1024 * MIB)


def test_undersized_job_is_enlarged() -> None:
    scaler = AutoScaler(JOB, TRIALS)
    assert scaler.refit([]) == ""
    action = scaler.act(at(2, 1), rate(2, 1), 0.02, 10**7, 1.0)
    assert action.target is not None
    assert action.target.replicas("worker") >= 7
    assert action.target.replicas("ps") >= 3
    assert action.target.ps[0].memory_bytes >= 512 * MIB
    assert "times the throughput" in action.reason


def test_well_sized_job_keeps_its_allocation() -> None:
    scaler = AutoScaler(JOB, TRIALS)
    scaler.refit([])
    action = scaler.act(at(8, 4), rate(8, 4), 0.02, 10**7, 1.0)
    assert not action.changes
    assert action.reason.startswith("The allocation is kept: ")


def test_refit_learns_from_the_run() -> None:
    """Trials before it claimed that more PS bring nothing."""
    wrong = [t.model_copy(update={"throughput": rate(t.workers, 1)}) for t in TRIALS]
    scaler = AutoScaler(JOB, wrong)
    scaler.refit([])
    before = scaler.act(at(8, 1), rate(8, 1), 0.02, 10**7, 1.0)
    assert not before.changes
    scaler.refit([trial(8, 2), trial(8, 4), trial(8, 3), trial(6, 4)])
    assert scaler.act(at(8, 1), rate(8, 1), 0.02, 10**7, 1.0).changes


def test_steps_are_legal() -> None:
    scaler = AutoScaler(JOB, TRIALS, scaling=Scaling(max_added_workers=2))
    scaler.refit([])
    action = scaler.act(at(2, 1), rate(2, 1), 0.02, 10**7, 1.0)
    assert action.target is not None
    assert action.target.replicas("worker") <= 4


def test_without_evidence_the_allocation_is_kept() -> None:
    scaler = AutoScaler(JOB)
    assert scaler.refit([]) != ""
    assert scaler.act(at(2, 1), 1000.0, 0.02, 10**7, 1.0).reason == "Too little is known about other allocations."


@pytest.mark.parametrize("samples_left", [100_000, 10**9])
def test_change_must_pay_for_its_seconds(samples_left: int) -> None:
    scaler = AutoScaler(JOB, TRIALS)
    scaler.refit([])
    action = scaler.act(at(2, 1), rate(2, 1), 0.02, samples_left, 90.0)
    assert action.changes == (samples_left > 10**6)


def test_trials_of_a_slower_host_contribute_ratios_only() -> None:
    """Otherwise earlier trials and the run would pull the curve in different directions."""
    slow = [t.model_copy(update={"throughput": 0.4 * (t.throughput or 0.0)}) for t in TRIALS]
    scaler = AutoScaler(JOB, slow)
    assert scaler.refit([trial(2, 1)]) == ""
    assert scaler._fitted is not None
    predicted = scaler._fitted.model.predict(TRIALS)
    assert np.abs(np.log(predicted / [t.throughput for t in TRIALS])).max() < 0.1


def test_allocation_beyond_the_bounds_is_compared_as_it_is() -> None:
    """Twelve workers run although eight are allowed; their throughput is not that of eight."""
    scaler = AutoScaler(JOB, TRIALS)
    scaler.refit([])
    action = scaler.act(at(12, 4), rate(12, 4), 0.02, 10**7, 1.0)
    assert not action.changes
    assert scaler.act(at(12, 1), rate(12, 1), 0.02, 10**7, 1.0).changes


def test_choices_are_on_the_pareto_front() -> None:
    scaler = AutoScaler(JOB, TRIALS)
    scaler.refit([])
    choices = scaler.act(at(2, 1), rate(2, 1), 0.02, 10**7, 1.0).choices
    assert [each.throughput_times for each in choices] == sorted(each.throughput_times for each in choices)
    assert all(1 <= each.allocation.replicas("worker") <= 8 for each in choices)


def test_job_without_memory_limits_gets_none() -> None:
    scaler = AutoScaler(JOB, TRIALS)
    scaler.refit([])
    unlimited = Allocation.of(1, 1, 0.5, 0.3, 512)
    target = scaler.act(unlimited, rate(1, 1), 0.01, 10**7, 1.0).target
    assert target is not None
    assert {group.memory_bytes for _, group in target.groups} == {0}


def test_measured_memory_need_is_priced_and_bounded() -> None:
    """Fewer PS than two would each need more than they may have."""
    prices = Prices(core_hour=0.01, gib_hour=1.0)
    max_bytes = JOB.bounds.ps.memory_bytes[1]
    scaler = AutoScaler(JOB.model_copy(update={"prices": prices, "objective": "cost"}), TRIALS)
    scaler.refit([])
    action = scaler.act(at(2, 4), rate(2, 4), 0.02, 10**7, 1.0, ps_needs=lambda ps: 1.5 * max_bytes / ps)
    allocations = [choice.allocation for choice in action.choices] + ([action.target] if action.target else [])
    assert allocations
    for allocation in allocations:
        assert allocation.replicas("ps") >= 2
        assert 1.5 * max_bytes / allocation.replicas("ps") <= allocation.ps[0].memory_bytes <= max_bytes
    for choice in action.choices:
        price = allocation_price(choice.allocation, prices) / allocation_price(at(2, 4), prices)
        assert choice.price_times == pytest.approx(price)


def test_resize_costs_its_own_seconds() -> None:
    """With 60 s for replicas that come, only more cores of those that are there pay for so short a job."""
    wide = RoleBounds(replicas=(1, 8), cpu=(0.25, 1.0))
    job = JOB.model_copy(update={"bounds": JOB.bounds.model_copy(update={"worker": wide})})
    known = [
        t.model_copy(update={"worker_cpu": cores, "throughput": (t.throughput or 0) * cores / 0.5})
        for t in TRIALS
        for cores in (0.25, 0.5, 1.0)
    ]
    scaler = AutoScaler(job, known)
    scaler.refit([])
    samples_left = int(30 * rate(2, 4))
    assert not scaler.act(at(2, 4), rate(2, 4), 0.02, samples_left, 60.0).changes
    target = scaler.act(at(2, 4), rate(2, 4), 0.02, samples_left, 60.0, 0.05).target
    assert target is not None
    assert (target.replicas("worker"), target.replicas("ps")) == (2, 4)
    assert target.worker[0].cpu > 0.5


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_changes_of_a_running_job_keep_its_global_batch(workers: int) -> None:
    job = JOB.model_copy(update={"training": Training(global_batch_size=2048, samples=10**8)})
    scaler = AutoScaler(job, [each.model_copy(update={"batch_size": None}) for each in TRIALS])
    scaler.refit([], workers)
    current = at(workers, 1).model_copy(update={"batch_size": job.batch_size_for(workers)})
    action = scaler.act(current, rate(workers, 1), 0.02, 10**7, 1.0)
    assert action.choices
    for choice in action.choices:
        assert choice.allocation.replicas("worker") * choice.allocation.batch_size == 2048


def test_candidates_keep_the_observed_speed_and_are_on_the_pareto_front() -> None:
    """The run is half as fast as the trials: only their ratios count."""
    scaler = AutoScaler(JOB, TRIALS)
    assert scaler.candidates(at(2, 1), rate(2, 1)) == ()  # nothing is fitted yet
    scaler.refit([])
    candidates = scaler.candidates(at(2, 1), 0.5 * rate(2, 1))
    prices = [allocation_price(each.allocation, JOB.prices) for each in candidates]
    assert len(candidates) > 4
    assert prices == sorted(prices)
    assert all(a.throughput < b.throughput for a, b in itertools.pairwise(candidates))
    for each in candidates:
        true = 0.5 * rate(each.allocation.replicas("worker"), each.allocation.replicas("ps"))
        assert each.throughput == pytest.approx(true, rel=0.25)
