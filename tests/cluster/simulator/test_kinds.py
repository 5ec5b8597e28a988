"""GPUs of several kinds: jobs run on the kind that they request, or on each kind on which their speed is known."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

import sizewright as sw
from sizewright.cluster import Elasticity, Settings
from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator
from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.curves import workload_of
from sizewright.cluster.simulator.engine import Simulation
from sizewright.cluster.simulator.kinds import resolve_requests
from sizewright.cluster.simulator.measured_curves import MeasuredCurve
from sizewright.cluster.simulator.scenario import capacity_at, load_on
from sizewright.cluster.simulator.state import SimulationState
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError
from sizewright.spec.simulation import SimulatedRun

EXACT = Elasticity(share=0.0, error=0.0, change_s=0.0, restart_s=0.0)
AT_ONCE = Settings(every_s=0.0)
HOSTS = {
    "hosts": [
        {"kind": "old", "count": 1, "cpu": 8, "memory": "64Gi", "gpu": "v100:2"},
        {"kind": "new", "count": 1, "cpu": 8, "memory": "64Gi", "gpu": "a100:2"},
    ]
}
KINDS = ("v100", "a100")


def trace_of(gpus: Any, kinds: Any, duration_s: Any = 100.0, arrived_s: Any = 0.0) -> Trace:
    count = len(gpus)
    return Trace(
        tuple(f"j{i}" for i in range(count)),
        np.broadcast_to(np.asarray(arrived_s, float), count).copy(),
        np.broadcast_to(np.asarray(duration_s, float), count).copy(),
        {"gpu": np.asarray(gpus, float)},
        gpu_kinds=tuple(kinds),
    )


def run(trace: Any, policy: str = "fifo", **options: Any) -> tuple[SimulatedRun, tuple[str, ...]]:
    given_options = {"cluster": HOSTS, "elasticity": EXACT, "settings": AT_ONCE} | options
    answer = sw.simulate(trace, policies=[policy], **given_options)
    return answer.runs[0], answer.assumptions


def test_each_kind_is_a_resource_with_its_own_use() -> None:
    result, assumptions = run(trace_of([2, 1], ["v100", "a100"], [100, 50]))
    assert result.capacity == {"gpu:v100": 2.0, "gpu:a100": 2.0}
    assert (result.figures["use_gpu:v100"], result.figures["use_gpu:a100"]) == pytest.approx((1.0, 0.25))
    assert result.figures["use"] == pytest.approx((200 + 50) / 400)
    assert "a job runs only on the kind of GPU that it requests" in assumptions


def test_job_waits_for_the_kind_that_it_requests() -> None:
    result, _ = run(trace_of([2, 2], ["v100", "v100"]))
    assert result.figures["makespan_s"] == pytest.approx(200)
    result, assumptions = run(trace_of([2, 2], ["v100", ""]))
    assert result.figures["makespan_s"] == pytest.approx(100)
    assert "a job that requests no kind of GPU runs on any, equally fast" in assumptions


def test_mixed_kinds_count_as_one_resource_and_the_assumptions_say_so() -> None:
    trace = trace_of([4], [])
    with pytest.raises(InputError, match="No job of the trace fits"):
        run(trace)
    result, assumptions = run(trace, mixes=True)
    assert result.capacity == {"gpu": 4.0}
    assert "GPUs of all kinds are equally fast, and one job may have several kinds" in assumptions
    with pytest.raises(InputError, match="kinds that are mixed count as equal"):
        run(trace_of([1], ["v100"]), mixes=True)


CURVES = pd.DataFrame(
    [("j0", "v100", 1, 10), ("j0", "a100", 1, 25), ("j0", "a100", 2, 40), ("j1", "a100", 2, 90)],
    columns=["job", "gpu_kind", "size", "throughput"],
)  # fmt: skip


def test_measured_jobs_have_their_own_speed_on_each_kind() -> None:
    """Samples become durations by the speed at the request; a faster kind and size shortens them."""
    trace = pd.DataFrame(
        {"job": ["j0", "j1"], "arrived_s": [0, 1000], "samples": [4000, 9000], "gpu": [1, 2], "gpu_kind": ["v100", ""]}
    )
    rigid, _ = run(trace, curves=CURVES)
    assert rigid.completion_s[::100] == pytest.approx((9000 / 90, 4000 / 10))
    elastic, assumptions = run(
        trace, "default", curves=CURVES, elasticity=Elasticity(error=0.0, change_s=0.0, restart_s=0.0)
    )
    assert elastic.completion_s[::100] == pytest.approx((9000 / 90, 4000 / 40))
    assert "100 % of the jobs are elastic, at the sizes of their curves" in assumptions
    assert "a job runs on each kind of GPU on which its speed is known" in assumptions


def test_kinds_of_the_trace_have_a_capacity_by_load() -> None:
    trace = trace_of([1, 2, 3], ["a", "b", ""], arrived_s=[0, 50, 100])
    resources = ["gpu:a", "gpu:b"]
    assert capacity_at(trace, 1.0, resources).tolist() == [2.0, 4.0]  # the job of any kind is shared out 1 to 2
    assert load_on(trace, np.array([1.0, 8.0]), resources) == pytest.approx(1.0)
    assert load_on(trace, np.array([4.0, 4.0]), resources) == pytest.approx(6 / 8)
    result, _ = run(trace, cluster=None, loads=[0.5])
    assert result.capacity == {"gpu:a": 4.0, "gpu:b": 8.0}


@of_hypothesis(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(sorted(ALLOCATORS)))
def test_no_policy_gives_a_job_a_kind_that_it_does_not_request(seed: int, policy: str) -> None:
    rng = np.random.default_rng(seed)
    trace = trace_of(
        rng.choice([1, 2, 4], 20), rng.choice([*KINDS, ""], 20), rng.lognormal(5, 1, 20),
        np.sort(rng.uniform(0, 2000, 20)) * (np.arange(20) > 0),
    )  # fmt: skip
    workload = workload_of(trace, seed=seed, kinds=KINDS)
    named = np.array([kind != "" for kind in trace.gpu_kinds])
    own = np.array([KINDS.index(kind) if kind else 0 for kind in trace.gpu_kinds])
    other = workload.needs[np.arange(20), :, 1 - own]
    assert not (other[named] * workload.offered[named]).any()
    supply = Capacity(np.array([16.0, 8.0]))
    result = Simulation(workload, supply, get_allocator(policy), Settings(every_s=60.0, seed=seed)).run()
    assert np.isfinite(result.finished_s).all()
    assert not result.attained[named, 1 - own[named]].any()
    assert (result.used <= 1 + 1e-9).all()
    assert (result.attained.sum(axis=0) >= result.allocated - 1e-6).all()


def test_request_for_any_kind_means_the_one_with_room() -> None:
    workload = workload_of(trace_of([2, 2, 1, 1], ["v100", "", "", "a100"]), EXACT, kinds=KINDS)
    live = np.arange(4)
    capacity: Floats = np.array([2.0, 4.0])

    def kinds_of(current: Ints) -> list[int]:
        columns = resolve_requests(workload, live, current, capacity)
        return workload.needs[live, columns].argmax(axis=1).tolist()

    assert kinds_of(np.zeros(4, dtype=np.intp)) == [0, 1, 1, 1]
    on_v100 = np.flatnonzero(workload.meets_request[1] & (workload.needs[1, :, 0] > 0))[0]
    assert kinds_of(np.array([0, on_v100, 0, 0])) == [0, 0, 1, 1]


def test_attained_service_counts_gpus_of_every_kind_and_cores_of_other_jobs() -> None:
    trace = trace_of([2, 0], ["a100", ""])
    trace.needs["cpu"] = np.array([4.0, 8.0])
    workload = workload_of(trace, EXACT, kinds=KINDS)
    state = SimulationState(workload)
    state.advance(0.0)
    state.assign(np.arange(2), workload.requested)
    state.advance(10.0)
    assert workload.resources == ["gpu:v100", "gpu:a100", "cpu"]
    assert state.attained.tolist() == [[0.0, 20.0, 40.0], [0.0, 0.0, 80.0]]
    assert workload.units(state.attained).tolist() == [20.0, 80.0]


@pytest.mark.parametrize(
    ("kinds", "curves", "message"),
    [
        (["h100", "h100"], None, r"Job j0 \(and 1 more\) requests GPUs of kind h100, which no host"),
        (["a100", "v100"], CURVES, "Job j1 requests GPUs of kind v100, on which its curve j1 has no speed"),
        (["", ""], CURVES.assign(gpu_kind="tpu", size=[1, 2, 3, 2]), "speeds on tpu only, but hosts have v100, a100"),
        (
            ["v100", "a100"],
            CURVES.assign(size=[1, 1, 2, 4]),
            "Job j1 requests the size 2, but its curve j1 goes from 4",
        ),
        (["v100", "a100"], CURVES[:3], "Job j1 has no curve, but other jobs"),
        (["v100", "a100"], pd.concat([CURVES, CURVES.assign(job="x")[:2]]), "a curve for the job x, which the trace"),
    ],
)
def test_kinds_and_curves_that_do_not_match_are_refused(kinds: list[str], curves: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(trace_of([1, 2], kinds), curves=curves)


def test_samples_without_a_speed_are_refused() -> None:
    trace = pd.DataFrame({"arrived_s": [0], "samples": [10], "gpu": [1]})
    with pytest.raises(InputError, match="has samples but no duration, and no speed of its own"):
        run(trace, cluster=None, loads=[0.9])


def test_kinds_of_curves_need_kinds_of_gpus() -> None:
    with pytest.raises(InputError, match="neither a cluster nor the trace names kinds"):
        run(trace_of([1, 2], [], arrived_s=[0, 9]), cluster=None, loads=[0.9], curves=CURVES)
    cores = Trace(("j0", "j1"), np.zeros(2), np.ones(2), {"gpu": np.array([1.0, 0]), "cpu": np.array([1.0, 2])})
    with pytest.raises(InputError, match="Job j1 requests no GPUs, but its curve j1 has speeds by their kind"):
        run(cores, curves=CURVES)


def test_curves_of_other_jobs_are_dealt_out_and_the_assumptions_say_so() -> None:
    others = CURVES.assign(job="x", size=[1, 1, 2, 4])
    trace = trace_of([2] * 20, ["a100"] * 20)
    with pytest.raises(InputError, match="The curve x belongs to no job of the trace, and has only one size on v100"):
        run(trace, curves=others)
    _, assumptions = run(trace, curves=others[1:])
    assert "1 curve of speeds belong to no job of the trace; the seed deals" in " ".join(assumptions)
    workload = workload_of(
        trace, curves={"x": MeasuredCurve("x", {"v100": (np.array([1.0, 4]), np.array([1.0, 2])),
                                                "a100": (np.array([1.0, 4]), np.array([4.0, 8]))}, 4.0)}, kinds=KINDS,
    )  # fmt: skip
    at_request = workload.requests(np.arange(20))
    assert np.allclose(workload.speed[at_request], 1.0)
    slow = workload.needs[:, :, 0] == 2.0
    assert np.allclose(workload.speed[slow], 0.25)


def test_jobs_that_name_a_curve_share_it() -> None:
    trace = trace_of([1, 1], ["v100", "v100"])
    named = Trace(**(vars(trace) | {"curves": ("j0", "j0")}))
    result, _ = run(named, curves=CURVES, elasticity=EXACT)
    assert result.completion_s[50] == pytest.approx(100)
    with pytest.raises(InputError, match="Job j1 names the curve z, which does not exist"):
        run(Trace(**(vars(trace) | {"curves": ("j0", "z")})), curves=CURVES)
    with pytest.raises(InputError, match=r"Job j0 names the curve j0, which does not exist\. Give the curves"):
        run(named)


def test_published_speeds_by_kind_are_brought_in(shared: Path) -> None:
    """Gavel's measured throughputs (Narayanan et al., OSDI 2020) make each job as fast as measured on its kind."""
    path = shared / "data" / "gavel" / "simulation_throughputs.json.gz"
    table = json.loads(gzip.decompress(path.read_bytes()))
    rows = [
        (name, kind, size, speeds["null"])
        for kind in ("v100", "k80")
        for key, speeds in table[kind].items()
        for name, size in [ast.literal_eval(key)]
        if speeds["null"] > 0
    ]
    curves = pd.DataFrame(rows, columns=["job", "gpu_kind", "size", "throughput"])
    name = "ResNet-18 (batch size 16)"
    known = curves[(curves.job == name) & (curves["size"] == 1)].set_index("gpu_kind").throughput
    trace = pd.DataFrame({"arrived_s": [0, 1e6], "samples": 1e4, "gpu": 1, "curve": name, "gpu_kind": ["v100", "k80"]})
    cluster = {"hosts": [{"kind": k, "cpu": 8, "memory": "64Gi", "gpu": f"{k}:1"} for k in ("v100", "k80")]}
    result, _ = run(trace, curves=curves, cluster=cluster)
    assert result.completion_s[::100] == pytest.approx((1e4 / known["v100"], 1e4 / known["k80"]))
    best, _ = run(trace, "default", curves=curves, cluster=cluster)
    assert best.completion_s[100] == pytest.approx(1e4 / known["v100"])
