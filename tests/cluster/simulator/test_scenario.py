"""A scenario turns a trace into a result: capacity by load, drawn jobs, speed curves, and excluded jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sizewright.cluster.simulator.curves import Elasticity, power_law, resample_trace, workload_of
from sizewright.cluster.simulator.engine import Settings
from sizewright.cluster.simulator.measured_curves import measured_curve, read_curves
from sizewright.cluster.simulator.report import mean_of, rows_of, run_of
from sizewright.cluster.simulator.scenario import Loans, Scenario, capacity_at, simulate_scenario
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError

FAST = Settings(every_s=60.0)


def trace_of(seed: int = 0, jobs: int = 60, **needs: object) -> Trace:
    rng = np.random.default_rng(seed)
    arrived = np.sort(rng.uniform(0, 20000, jobs))
    columns = {name: np.broadcast_to(np.asarray(n, float), jobs).copy() for name, n in needs.items()}
    return Trace(
        tuple(f"j{i}" for i in range(jobs)), arrived - arrived[0], rng.lognormal(6, 1, jobs),
        columns or {"gpu": rng.choice([1.0, 2.0, 4.0], jobs)},
    )  # fmt: skip


def test_capacity_follows_from_the_load() -> None:
    trace = trace_of()
    half, full = (capacity_at(trace, load, ["gpu"])[0] for load in (0.5, 1.0))
    assert half == pytest.approx(2 * full, abs=2)
    assert full == np.ceil((trace.duration_s * trace.needs["gpu"]).sum() / trace.arrived_s[-1])
    with pytest.raises(InputError, match="must be above 0"):
        capacity_at(trace, 0.0, ["gpu"])


def test_same_scenario_gives_the_same_result() -> None:
    scenario = Scenario("default", 0.9, seed=3, settings=FAST)
    first, again = (simulate_scenario(trace_of(), scenario).result for _ in range(2))
    other = simulate_scenario(trace_of(), replace(scenario, seed=4)).result
    assert np.array_equal(first.finished_s, again.finished_s)
    assert not np.array_equal(first.finished_s, other.finished_s)


def test_resampled_trace_reports_its_rate_factor() -> None:
    more, factor = resample_trace(trace_of(), 150, seed=1)
    assert (len(more), factor, len(set(more.jobs))) == (150, 2.5, 150)
    assert (np.diff(more.arrived_s) >= 0).all()
    assert more.arrived_s[-1] <= trace_of().arrived_s[-1] + 60


def test_sizes_are_integer_gpus_and_rigid_jobs_have_one() -> None:
    workload = workload_of(trace_of(), Elasticity(share=0.5), seed=1)
    sizes = workload.needs[:, :, 0][workload.offered]
    assert (sizes == np.floor(sizes)).all()
    counts = workload.offered[:, 1:].sum(axis=1)
    assert (counts == 1).any()
    assert counts.max() >= 3
    rows = np.arange(len(workload))
    assert np.allclose(workload.speed[rows, workload.requested], 1.0)
    assert np.allclose(np.log(workload.known_work / workload.work).std(), 0.5, atol=0.2)


def test_cores_and_memory_grow_together() -> None:
    workload = workload_of(trace_of(cpu=4.0, memory_bytes=8e9), Elasticity(multiples=(0.5, 1.0, 2.0)))
    assert list(workload.resources) == ["cpu", "memory_bytes"]
    assert np.allclose(workload.needs[:, 3], [8.0, 16e9])
    result = simulate_scenario(trace_of(cpu=4.0, memory_bytes=8e9), Scenario("default", 0.8, settings=FAST)).result
    assert np.isfinite(result.finished_s).all()


def test_curve_interpolates_its_measurements(tmp_path: Path) -> None:
    curve = measured_curve(np.array([4.0, 1.0, 2.0]), np.array([300.0, 100.0, 180.0]), at=2.0)
    assert list(curve(np.array([0.5, 1.0, 1.5, 2.0, 9.0]))) == pytest.approx(
        [100 / 180, 1.0, 240 / 180, 300 / 180, 300 / 180]
    )
    assert power_law(0.5)(np.array([4.0])) == pytest.approx([2.0])
    table = tmp_path / "curves.csv"
    table.write_text("job,size,throughput\na,1,10\na,2,18\na,4,30\nb,1,5\nb,2,10\n")
    curves = read_curves(table)
    assert curves["a"](np.array([1.0, 2.0])) == pytest.approx([1.0, 30 / 18])
    workload = workload_of(trace_of(), curves=[curves["a"]])
    ratio = workload.speed[:, 4] / workload.speed[:, 3]
    assert np.allclose(ratio, 30 / 18)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size\n1\n", "no column throughput"),
        ("size,throughput\n1,0\n2,3\n", "not above 0"),
        ("size,throughput\n1,2\n1,3\n", "has a size twice"),
        ("job,size,throughput\n,1,3\n", "a row without job"),
        ("gpu_kind,size,throughput\n,1,3\n", "a row without gpu_kind"),
        ("size,throughput\nx,2\n", "not above 0"),
    ],
)
def test_invalid_curves_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_curves(path)
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"status": "infeasible", "job": "a", "evidence": {"trials": 0}}))
    with pytest.raises(InputError, match="does not have speeds at several sizes"):
        read_curves(answer)


def test_oversized_jobs_are_excluded_and_long_ones_noted() -> None:
    trace = trace_of()
    trace.needs["gpu"][3] = 10_000.0
    trace.duration_s[5] = 1e6
    trace.duration_s[3] = 1.0
    outcome = simulate_scenario(trace, Scenario("fifo", 0.9, settings=FAST, elasticity=Elasticity(share=0.0)))
    assert len(outcome.result.finished_s) == 59
    assert any("1 job left out: the cluster is too small" in note for note in outcome.notes)
    assert any("1 job takes longer than the whole trace" in note for note in outcome.notes)


def test_loans_follow_a_typical_day_or_a_demand() -> None:
    day = simulate_scenario(trace_of(), Scenario("aryl", 0.9, settings=FAST, loans=Loans(4)))
    none = simulate_scenario(trace_of(), Scenario("aryl", 0.9, settings=FAST, loans=Loans(4, demand=np.full(300, 4.0))))
    assert day.capacity == none.capacity
    assert day.result.figures()["jct_s"] <= none.result.figures()["jct_s"]
    slower = simulate_scenario(trace_of(), Scenario("aryl", 0.9, settings=FAST, loans=Loans(4, speed=0.5)))
    assert slower.result.figures()["jct_s"] > day.result.figures()["jct_s"]
    with pytest.raises(InputError, match="above 0, got 0"):
        Loans(4, speed=0.0)
    with pytest.raises(InputError, match="have one resource"):
        simulate_scenario(trace_of(cpu=1.0, memory_bytes=1e9), Scenario("aryl", loans=Loans(4)))


def test_means_have_intervals_over_seeds() -> None:
    mean = mean_of([1.0, 2.0, 3.0])
    assert (mean.value, mean.lower) == (2.0, pytest.approx(2 - 4.303 / 3**0.5, abs=1e-3))
    assert mean_of([5.0]).upper == 5.0
    runs = [run_of(simulate_scenario(trace_of(), Scenario("fifo", 0.9, s, settings=FAST)), ["gpu"]) for s in range(3)]
    (row,) = rows_of(runs)
    assert (row.seeds, row.policy) == (3, "fifo")
    assert row.figures["jct_s"].value == pytest.approx(np.mean([run.figures["jct_s"] for run in runs]))
    assert len(runs[0].completion_s) == 101
