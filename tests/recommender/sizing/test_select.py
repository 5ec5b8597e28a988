from __future__ import annotations

import itertools
import math
from io import StringIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from sizewright.cli.tables import print_recommendation
from sizewright.formatting import GIB, MIB
from sizewright.models import ThroughputModel
from sizewright.models.forms.dlrover import DlroverModel
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.models.table import Table, as_columns
from sizewright.recommender.sizing.build import build_recommendation
from sizewright.recommender.sizing.evaluate_grid import measured_ranges
from sizewright.recommender.sizing.reasons import _one_more_worker
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import Selection
from sizewright.recommender.sizing.select import recommend, select
from sizewright.spec import Allocation, Bounds, Cluster, HostKind, Job, Prices, Quota, Recommendation, RoleBounds
from sizewright.spec.objective import allocation_price
from sizewright.spec.wording import infeasible_because, not_enough_because, sentence
from tests.helpers.synthetic_trials import BOUNDS, EMBEDDING_BYTES, PS_CPU, WORKER_CPU, rate, small_job, trials

SAMPLES = 10_000_000
OBJECTIVES = ["balanced", "cost", "time"]


def axes(allocation: Allocation) -> tuple[float, ...]:
    (worker,), (ps,) = allocation.worker, allocation.ps
    return (
        worker.replicas,
        ps.replicas,
        worker.cpu,
        ps.cpu,
        worker.memory_bytes,
        ps.memory_bytes,
        allocation.batch_size,
    )


def target_of(answer: Recommendation) -> Allocation:
    assert answer.status == "ok", answer.reasons
    assert answer.target is not None
    return answer.target


def memory_request(needed_bytes: float, min_bytes: int = 0) -> float:
    return max(math.ceil(needed_bytes / (64 * MIB)) * 64 * MIB, min_bytes)


def objectives(
    w: float, p: float, wc: float, pc: float, worker_bytes: float, ps_bytes: float, prices: tuple[float, float]
) -> dict[str, float]:
    """Return the objectives by definition, in plain Python."""
    hours = SAMPLES / rate(w, p, wc, pc) / 3600
    per_hour = (w * wc + p * pc) * prices[0] + (w * worker_bytes + p * ps_bytes) / GIB * prices[1]
    return {"time": hours, "cost": hours * per_hour, "balanced": hours * hours * per_hour}


def brute_force(
    job: Job, prices: tuple[float, float] = (1.0, 0.13)
) -> list[tuple[tuple[float, ...], dict[str, float]]]:
    """Return every allocation within the bounds, with its objectives."""
    memory = MemoryModel.fit(job, trials())
    allocations = []
    for w, p, wc, pc in itertools.product((1, 2, 3, 4), (1, 2, 3), WORKER_CPU, PS_CPU):
        worker_bytes = memory_request(memory.worker_request_bytes(np.array([256.0]))[0])
        ps_bytes = memory_request(memory.ps_request_bytes(np.array([float(p)]), np.array([float(w)]))[0])
        place = (w, p, wc, pc, worker_bytes, ps_bytes)
        allocations.append((place, objectives(*place, prices)))
    return allocations


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("prices", [(1.0, 0.13), (0.02, 3.0), (5.0, 0.0)])
def test_choice_minimises_the_objective_over_all_allocations(objective: str, prices: tuple[float, float]) -> None:
    job = small_job(objective=objective, prices={"core_hour": prices[0], "gib_hour": prices[1]})
    every = brute_force(job, prices)
    by_place = {place[:4]: place[4:] for place, _ in every}
    _, values = min(every, key=lambda row: row[1][objective])
    answer = recommend(SizingRequest(job, trials(), model=DlroverModel()))
    target = axes(target_of(answer))[:6]
    assert objectives(*target, prices)[objective] <= values[objective] * (
        1 + 1e-9
    )  # sizes between these are scored too
    if target[:4] in by_place:
        assert target[4:] == pytest.approx(by_place[target[:4]])
    assert answer.uncapped == answer.target
    predicted = answer.predicted
    assert predicted is not None
    assert predicted.completion_time_s.value == pytest.approx(SAMPLES / rate(*target[:4]), rel=1e-6)
    assert predicted.cost.value == pytest.approx(objectives(*target, prices)["cost"], rel=1e-6)
    assert predicted.throughput.value == pytest.approx(rate(*target[:4]), rel=1e-6)


@pytest.mark.parametrize("hours", [0.2, 0.3, 0.5, 3.0])
def test_deadline_choice_is_the_cheapest_that_meets_it(hours: float) -> None:
    job = small_job(objective="deadline", deadline=hours * 3600)
    # A hair of room: the fit recovers the form to within rounding.
    kept = [row for row in brute_force(job) if row[1]["time"] <= hours * (1 - 1e-7)]
    _, values = min(kept, key=lambda row: row[1]["cost"])
    target = target_of(recommend(SizingRequest(job, trials(), model=DlroverModel())))
    mine = objectives(*axes(target)[:6], (1.0, 0.13))
    assert mine["cost"] <= values["cost"] * (1 + 1e-9)
    assert mine["time"] <= hours


def test_a_deadline_is_met_nine_times_of_ten() -> None:
    deadline = 0.35 * 3600
    job = small_job(objective="deadline", deadline=deadline)
    met = []
    for seed in range(60):
        target = target_of(recommend(SizingRequest(job, trials(noise=0.03, seed=seed))))
        noise = np.random.default_rng(seed).lognormal(0, 0.03, 50)
        met.append(float(np.mean(rate(*axes(target)[:4]) * noise * deadline >= SAMPLES)))
    assert np.mean(met) >= 0.8


def test_target_and_alternatives_meet_the_deadline_with_one_sided_bound() -> None:
    noisy_trials = trials(noise=0.05, seed=3)
    deadline = 0.35 * 3600
    answer = recommend(SizingRequest(small_job(objective="deadline", deadline=deadline), noisy_trials))
    model = DlroverModel().fit(noisy_trials)

    def surely(allocation: Allocation) -> float:
        w, p, wc, pc, _, _, batch = axes(allocation)
        row = {"workers": [w], "ps": [p], "worker_cpu": [wc], "ps_cpu": [pc], "batch_size": [batch]}
        return float(model.predict_interval(row | {"embedding_bytes": [EMBEDDING_BYTES]}, 0.8)[0][0])

    for allocation in (target_of(answer), *(other.allocation for other in answer.alternatives)):
        assert SAMPLES / surely(allocation) <= deadline * (1 + 1e-9)


@given(
    coefficients=st.tuples(*[st.floats(1e-4, 1e-2), st.floats(1e-6, 1e-4), st.floats(0, 5e-3), st.floats(0, 5e-3)]),
    noise=st.floats(0, 0.3),
    seed=st.integers(0, 10**6),
    objective=st.sampled_from(OBJECTIVES),
    count=st.integers(8, 24),
)
@settings(max_examples=40, deadline=None)
def test_lower_target_upper_are_in_order_and_everything_is_within_the_bounds(
    coefficients: tuple[float, ...], noise: float, seed: int, objective: str, count: int
) -> None:
    answer = recommend(SizingRequest(small_job(objective=objective), trials(noise, seed, coefficients, count)))
    target = target_of(answer)
    assert answer.lower is not None
    assert answer.upper is not None
    low, middle, high = (allocation_price(a, Prices()) for a in (answer.lower, target, answer.upper))
    assert low <= middle <= high
    for allocation in (answer.lower, target, answer.upper, *(a.allocation for a in answer.alternatives)):
        assert 1 <= allocation.replicas("worker") <= 4
        assert 1 <= allocation.replicas("ps") <= 3
        assert 0.5 <= allocation.worker[0].cpu <= 1.0
        assert 0.25 <= allocation.ps[0].cpu <= 0.5
    predicted = answer.predicted
    assert predicted is not None
    for estimate in (predicted.throughput, predicted.completion_time_s, predicted.cost):
        assert 0 < estimate.lower <= estimate.value <= estimate.upper
    assert [a.allocation for a in answer.alternatives if a.chosen] == [target]
    assert Recommendation.model_validate_json(answer.to_json()) == answer


@pytest.mark.parametrize("objective", ["balanced", "time", "cost"])
def test_lower_and_upper_overlap_the_interval_of_the_target(objective: str) -> None:
    decision = select(SizingRequest(small_job(objective=objective), trials(0.1, seed=4)))
    assert isinstance(decision, Selection)
    answer, scored, chosen = build_recommendation(decision), decision.scored, decision.chosen
    overlap = decision.allowed & (scored.objective_lower <= scored.objective_upper[chosen])
    overlap &= scored.objective_upper >= scored.objective_lower[chosen]
    for allocation, extreme in ((answer.lower, np.min), (answer.upper, np.max)):
        assert allocation is not None
        rows = np.column_stack([*list(vars(scored.grid).values())[:4]])
        memory = np.column_stack([scored.worker_memory_bytes, scored.ps_memory_bytes])
        row = np.flatnonzero((np.column_stack([rows, memory]) == np.array(axes(allocation)[:6])).all(axis=1))
        assert overlap[row].all()
        assert scored.price_per_hour[row] == pytest.approx(extreme(scored.price_per_hour[overlap]))


def test_bounds_narrow_as_evidence_grows() -> None:
    def breadth(noise: float) -> float:
        answer = recommend(SizingRequest(small_job(), trials(noise, seed=1)))
        assert answer.lower is not None
        assert answer.upper is not None
        return allocation_price(answer.upper, Prices()) / allocation_price(answer.lower, Prices())

    assert breadth(0.0) < breadth(0.2)


def test_alternatives_are_a_thinned_pareto_front_with_the_choice() -> None:
    answer = recommend(SizingRequest(small_job(), trials()))
    rates = [a.throughput.value for a in answer.alternatives]
    prices = [a.cost / a.completion_time_s for a in answer.alternatives]
    assert 3 <= len(rates) <= 13
    assert rates == sorted(rates)
    assert prices == sorted(prices)


def test_choice_avoids_the_more_expensive_resource() -> None:
    def used(core_hour: float, gib_hour: float) -> tuple[float, float]:
        """Core-hours and GiB-hours of the whole run."""
        job = small_job(objective="cost", prices={"core_hour": core_hour, "gib_hour": gib_hour})
        target = target_of(recommend(SizingRequest(job, trials())))
        hours = SAMPLES / rate(*axes(target)[:4]) / 3600
        return target.cores() * hours, target.memory_bytes() / GIB * hours

    dear_cores, dear_memory = used(50, 0.1), used(0.1, 50)
    assert dear_cores[0] < dear_memory[0]
    assert dear_cores[1] > dear_memory[1]


def test_evidence_names_trials_model_and_assumptions() -> None:
    evidence = recommend(SizingRequest(small_job(), trials(count=20))).evidence
    assert (evidence.trials, evidence.distinct_allocations, evidence.stage) == (20, 20, "pre_submission")
    assert (evidence.model, evidence.host, evidence.limited_by) == ("default", ("h1",), ("cgroup",))
    assert evidence.extrapolated is False
    one_size = [t for t in trials() if t.worker_cpu == 1.0]
    known, of_one = (
        recommend(SizingRequest(small_job(), t, model=DlroverModel())).evidence for t in (trials(count=20), one_size)
    )
    assert (known.model, known.pinned, of_one.pinned) == ("dlrover", (), ("compute",))
    assert any("Measure allocations that differ in cores per worker:" in text for text in of_one.to_be_surer)
    assert not any("allocations that differ" in text for text in known.to_be_surer)
    assert known.parameters["beta"] == pytest.approx(0.003)
    assert any("loopback" in text for text in evidence.assumptions)
    assert any("No cluster file" in text for text in evidence.assumptions)


def test_utilization_is_cpu_seconds_per_sample_times_the_predicted_rate() -> None:
    rows = [t.model_copy(update={"worker_cpu_used": t.throughput * 1e-4 / t.workers}) for t in trials() if t.throughput]
    answer = recommend(SizingRequest(small_job(), rows))
    assert answer.predicted is not None
    cores = target_of(answer).cores("worker")
    assert answer.predicted.worker_utilization == pytest.approx(
        min(1.0, 1e-4 * answer.predicted.throughput.value / cores), rel=1e-6
    )


def numbered(answer: Recommendation, status: str) -> list[str]:
    assert answer.status == status
    assert answer.target is None
    assert answer.predicted is None
    assert [remedy.number for remedy in answer.remedies] == list(range(1, len(answer.remedies) + 1))
    assert answer.remedies
    return [remedy.text for remedy in answer.remedies]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "there are no trials of this job"),
        (trials(count=3, status="failed", throughput=None, message="it fell over"), "the last: it fell over"),
        (trials(count=3, status="void"), "the last: void"),
        (trials(ps=0), "no successful trial has workers and PS, as this job does"),
    ],
)
def test_job_without_usable_trials_has_not_enough_data(rows: list[Any], why: str) -> None:
    answer = recommend(SizingRequest(small_job(), rows))
    remedies = numbered(answer, "not_enough_data")
    assert why in answer.reasons[0]
    assert [not_enough_because(*answer.reason_details)] == list(answer.reasons)
    assert "profile JOB --trials 9" in remedies[0]


def test_too_few_allocations_names_how_many_are_missing() -> None:
    rows = trials(count=3)
    account = DlroverModel().fit(rows).explain()
    answer = recommend(SizingRequest(small_job(), rows * 4, model=DlroverModel()))
    remedies = numbered(answer, "not_enough_data")
    more = f"At least {account.needed - 3} more distinct allocations are needed; existing trials are kept."
    assert remedies[0].endswith(more)
    assert f"3 distinct allocations were measured and {account.needed} are needed" in answer.reasons[0]
    assert answer.evidence.trials == 12
    assert answer.evidence.distinct_allocations == 3
    two = recommend(SizingRequest(small_job(), rows[:2] * 4))
    assert numbered(two, "not_enough_data")
    assert "8 trials at 2 distinct allocations are too few for a curve" in two.reasons[0]
    assert (two.evidence.trials, two.evidence.distinct_allocations) == (8, 2)


def test_too_few_allocations_names_why_other_trials_failed() -> None:
    said = "worker-0 ended.\nIts last lines:\n    planning\n    the plan is for 1 rank\n Its log: worker-0.log"
    failed = trials(count=2, status="failed", throughput=None, message=said)
    remedies = numbered(recommend(SizingRequest(small_job(), [*trials(count=2), *failed])), "not_enough_data")
    assert remedies[0].startswith("Remove the cause of 2 failed trials, or exclude these allocations")
    assert remedies[0].endswith("by the bounds: the plan is for 1 rank.")
    assert "profile JOB" in remedies[1]


@pytest.mark.parametrize(
    ("change", "cluster", "quantity"),
    [
        ({"bounds": {"ps": {"memory": [0, "64Mi"]}}}, None, "bounds.ps.memory to "),
        ({"bounds": {"worker": {"memory": [0, "64Mi"]}}}, None, "bounds.worker.memory to "),
        ({"objective": "deadline", "deadline": 60}, None, "deadline to "),
        ({}, Quota(cpu=0.5), "quota to 0.75 cores"),
        ({}, Quota(memory=64 * MIB), "quota to 1Gi"),
        ({}, HostKind(kind="tiny", count=99, cpu=0.3, memory=4 * GIB), "add hosts with 0.5 cores"),
    ],
)
def test_infeasible_has_numbered_remedies_with_quantities(change: dict[str, Any], cluster: Any, quantity: str) -> None:
    roomy = HostKind(kind="h", count=50, cpu=64, memory=256 * GIB)
    if isinstance(cluster, Quota):
        cluster = Cluster(hosts=(roomy,), quota=cluster)
    elif cluster:
        cluster = Cluster(hosts=(cluster,))
    if "bounds" in change:
        ((role, limits),) = change["bounds"].items()
        known = getattr(BOUNDS, role).model_dump()
        change = {"bounds": BOUNDS.model_dump() | {role: {"replicas": known["replicas"], "cpu": known["cpu"]} | limits}}
    answer = recommend(SizingRequest(small_job(**change), trials(), cluster=cluster))
    remedies = numbered(answer, "infeasible")
    assert quantity in remedies[0]
    assert answer.reasons[0].startswith("Infeasible: ")
    assert answer.reasons == (infeasible_because(*answer.reason_details),)


def test_keeping_the_deadline_that_the_remedy_names_makes_it_feasible() -> None:
    rows = trials(noise=0.05, workers=1)
    rows += [t.model_copy(update={"workers": 2, "throughput": (t.throughput or 0) * 1.9}) for t in rows]
    wide = BOUNDS.model_dump() | {"worker": {"replicas": [1, 400], "cpu": [0.5, 1.0], "memory": [0, "4Gi"]}}
    job = small_job(objective="deadline", deadline=60, bounds=wide)
    remedy = numbered(recommend(SizingRequest(job, rows)), "infeasible")[0]
    named = remedy.split("deadline to ")[1].split()[0]
    again = small_job(objective="deadline", deadline=named, bounds=wide)
    assert target_of(recommend(SizingRequest(again, rows))).replicas("worker") <= 4


def test_allocation_that_the_quota_excludes_is_not_proposed_as_a_trial() -> None:
    hosts = (HostKind(kind="h", count=100, cpu=64, memory=256 * GIB),)
    cluster = Cluster(hosts=hosts, quota=Quota(cpu=1))
    answer = recommend(SizingRequest(small_job(objective="time"), trials(), cluster=cluster))
    assert answer.uncapped != target_of(answer)
    assert not any("may be even better" in text for text in answer.evidence.to_be_surer)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_target_stays_within_twice_the_measured_range_unless_covered(objective: str) -> None:
    rows = [t for t in trials() if t.workers <= 2]
    wide = BOUNDS.model_dump() | {"worker": {"replicas": [1, 40], "cpu": [0.1, 3.0], "memory": [0, "4Gi"]}}
    job = small_job(objective=objective, bounds=wide)
    answer = recommend(SizingRequest(job, rows))
    target = target_of(answer)
    for allocation in (target, *(a.allocation for a in answer.alternatives)):
        assert allocation.replicas("worker") <= 4
        assert 0.25 <= allocation.worker[0].cpu <= 2
    assert answer.evidence.extrapolated is False
    if objective == "time":
        covered = recommend(SizingRequest(job, rows, extrapolate=True))
        assert target_of(covered).replicas("worker") > 4
        assert covered.evidence.extrapolated is True
        assert covered.target == answer.uncapped
        assert any("which may be even better" in text for text in answer.evidence.to_be_surer)
        assert any("measured range cap ruled out" in reason for reason in answer.reasons)
        (details,) = [reason for reason in answer.reason_details if reason.kind == "measured_range"]
        assert (details.values["workers_max"], details.values["cap"]) == (2.0, "measured range")
        assert answer.reasons == tuple(map(sentence, answer.reason_details))


def test_trial_is_suggested_if_all_allocations_exceed_the_measured_range() -> None:
    far = BOUNDS.model_dump() | {"worker": {"replicas": [20, 30], "cpu": [0.5, 1.0], "memory": [0, "4Gi"]}}
    answer = recommend(SizingRequest(small_job(bounds=far), trials()))
    remedies = numbered(answer, "not_enough_data")
    assert "Measure 20 workers" in remedies[0]
    assert "workers 1 to 4" in answer.reasons[0]
    assert recommend(SizingRequest(small_job(bounds=far), trials(), extrapolate=True)).status == "ok"


class Unsure(ThroughputModel):
    """Its intervals are wide for more than `known` workers."""

    known = 2

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Any, Any, Any]:
        value, lower, upper = super().predict_with_interval(X, coverage)
        factor = np.where(as_columns(X, ("workers",))["workers"] > self.known, 5.0, 1.0)
        return value, lower / factor, upper * factor


def test_best_allocation_whose_interval_supports_a_decision_is_chosen() -> None:
    job = small_job(objective="time")
    answer = recommend(SizingRequest(job, trials(), model=Unsure()))
    assert target_of(answer).replicas("worker") == 2
    assert answer.uncapped is not None
    assert answer.uncapped.replicas("worker") > 2
    assert any("interval cap ruled out" in reason for reason in answer.reasons)
    assert any("which may be even better" in text for text in answer.evidence.to_be_surer)


def test_intervals_that_are_all_too_wide_are_not_enough_data() -> None:
    model = Unsure()
    model.known = 0
    answer = recommend(SizingRequest(small_job(objective="time"), trials(), model=model))
    remedies = numbered(answer, "not_enough_data")
    assert "spans a factor of" in answer.reasons[0]
    assert remedies[0].startswith("Measure ")


def test_cores_that_never_varied_are_not_reduced() -> None:
    rows = [t for t in trials() if t.worker_cpu == 1.0]
    wide = BOUNDS.model_dump() | {"worker": {"replicas": [1, 4], "cpu": [0.5, 1.5], "memory": [0, "4Gi"]}}
    answer = recommend(SizingRequest(small_job(bounds=wide, objective="cost"), rows))
    assert target_of(answer).worker[0].cpu == 1.0


def test_trials_of_three_columns_size_the_counts_and_state_assumptions() -> None:
    unknown = dict.fromkeys(
        ("worker_cpu", "ps_cpu", "batch_size", "embedding_bytes", "worker_memory_bytes", "ps_memory_bytes",
         "worker_cpu_used", "ps_cpu_used", "host", "limited_by", "sync")
    )  # fmt: skip
    rows = [t.model_copy(update=unknown) for t in trials() if (t.worker_cpu, t.ps_cpu) == (1.0, 0.5)]
    rows += [t.model_copy(update={"workers": 3, "throughput": rate(3, t.ps, 1.0, 0.5)}) for t in rows if t.workers == 2]
    answer = recommend(SizingRequest(small_job(objective="time"), rows))
    target = target_of(answer)
    assert target.batch_size == 256
    assert (target.worker[0].cpu, target.ps[0].cpu) == (1.0, 0.5)
    assert answer.predicted is not None
    measured = max(t.throughput or 0 for t in rows)
    assert measured * 0.99 <= answer.predicted.throughput.value <= measured * 1.01
    assert any("do not record the cores of a worker; 1 core is assumed." in a for a in answer.evidence.assumptions)
    assert any("do not record the cores of a PS; 0.5 cores are assumed." in a for a in answer.evidence.assumptions)
    assert answer.predicted.price_per_hour == target.replicas("worker") + target.replicas("ps")
    assert any("a price of 1 per replica-hour" in reason for reason in answer.reasons)
    assert "per core-hour" not in printed(answer, small_job())
    assert "per core-hour" in printed(recommend(SizingRequest(small_job(), trials())), small_job())
    assert any("without a batch size had 256" in text for text in answer.evidence.assumptions)


def printed(answer: Recommendation, job: Job) -> str:
    console = Console(width=200, file=StringIO())
    print_recommendation(console, answer, job)
    return console.file.getvalue()


def test_unrecorded_cores_of_one_role_leave_those_of_the_other_role_open() -> None:
    rows = [
        t.model_copy(update={"worker_cpu": 4.0, "ps_cpu": None, "throughput": rate(t.workers, t.ps, 4, 1)})
        for t in trials()
    ]
    bounds = {
        "worker": {"replicas": [1, 4], "cpu": [1, 16], "memory": [0, "4Gi"]},
        "ps": {"replicas": [1, 3], "cpu": [1, 8], "memory": [0, "4Gi"]},
    }
    answer = recommend(SizingRequest(small_job(bounds=bounds), rows))
    target = target_of(answer)
    assert target.worker[0].cpu >= 4
    assert target.ps[0].cpu == 1
    assert answer.predicted is not None
    assert answer.predicted.price_per_hour == pytest.approx(allocation_price(target, Prices()))
    assert not any("per replica-hour" in reason for reason in answer.reasons)
    assumed = [text for text in answer.evidence.assumptions if "do not record the cores" in text]
    assert assumed == ["24 of 24 trials do not record the cores of a PS; 1 core is assumed."]


def test_one_more_worker_is_compared_with_equal_gpus() -> None:
    job = small_job(prices={"core_hour": 1, "gib_hour": 0, "gpu_hour": 1})
    rows = [
        t.model_copy(update={"worker_gpu": gpus, "throughput": (t.throughput or 0) * (1 + 9 * gpus)})
        for t in trials()
        for gpus in (0, 1)
    ]
    decision = select(SizingRequest(job, rows))
    assert isinstance(decision, Selection)
    grid = decision.scored.grid
    row = int(np.flatnonzero((grid.workers == 1) & (grid.ps == 1) & (grid.worker_gpu == 1))[0])
    (reason,) = _one_more_worker(decision.scored, row)
    columns = ("ps", "worker_cpu", "ps_cpu", "batch_size", "worker_gpu")
    alike = np.all([getattr(grid, name) == getattr(grid, name)[row] for name in columns], axis=0)
    (larger,) = np.flatnonzero(alike & (grid.workers == 2))
    price = decision.scored.price_per_hour
    assert reason.values["price"] == pytest.approx(price[larger] / price[row] - 1)


def test_hosts_without_a_count_have_no_link() -> None:
    rows = [t.model_copy(update={"network_bytes": 3e6}) for t in trials()]
    fast = HostKind(kind="a", count=9, cpu=16, memory=64 * GIB, network_gbps=100.0)
    none = HostKind(kind="b", count=0, cpu=16, memory=64 * GIB, network_gbps=0.05)
    alone, both = (
        recommend(SizingRequest(small_job(), rows, cluster=Cluster(hosts=h))) for h in ((fast,), (fast, none))
    )
    assert both.predicted == alone.predicted
    undeclared = fast.model_copy(update={"network_gbps": None})
    silent = recommend(SizingRequest(small_job(), rows, cluster=Cluster(hosts=(undeclared, none))))
    assert not any("share its link" in text for text in silent.evidence.assumptions)


def test_only_messages_of_the_profiler_are_said_to_widen_intervals() -> None:
    drifted = "The host's speed changed by +9 % between the first and the last trial of a series."
    noted, measured = trials(message="from the old cluster."), trials(message=drifted, series="s", throughput_se=1.0)
    assert not any("widened" in text for text in recommend(SizingRequest(small_job(), noted)).evidence.assumptions)
    assumptions = recommend(SizingRequest(small_job(), measured)).evidence.assumptions
    assert f"{drifted} Intervals are widened accordingly." in assumptions


def test_batch_size_within_bounds_can_be_chosen() -> None:
    rows = [
        t.model_copy(update={"batch_size": m, "throughput": rate(t.workers, t.ps, t.worker_cpu or 1, t.ps_cpu or 1, m)})
        for t in trials()
        for m in (128, 512)
    ]
    free = BOUNDS.model_copy(update={"batch_size": (128, 512)})
    assert (
        target_of(recommend(SizingRequest(small_job(objective="time", bounds=free.model_dump()), rows))).batch_size
        == 512
    )
    assert target_of(recommend(SizingRequest(small_job(objective="time"), rows))).batch_size == 256


def test_requests_stay_within_bounds_that_allow_the_need() -> None:
    job = small_job()
    needed_bytes = MemoryModel.fit(job, trials()).worker_request_bytes(np.array([256.0]))[0]
    tight = RoleBounds(replicas=(1, 4), cpu=(0.5, 1.0), memory=(0, math.ceil(needed_bytes) + 5))
    answer = recommend(SizingRequest(small_job(bounds=Bounds(worker=tight, ps=BOUNDS.ps).model_dump()), trials()))
    assert target_of(answer).worker[0].memory_bytes == math.ceil(needed_bytes) + 5


def test_minimum_memory_of_the_bounds_is_requested() -> None:
    worker = RoleBounds(replicas=(1, 4), cpu=(0.5, 1.0), memory=(3 * GIB, 4 * GIB))
    answer = recommend(SizingRequest(small_job(bounds=Bounds(worker=worker, ps=BOUNDS.ps).model_dump()), trials()))
    assert target_of(answer).worker[0].memory_bytes == 3 * GIB


def test_measured_ranges_are_of_the_axes_that_are_known() -> None:
    ranges = measured_ranges(trials(worker_cpu=None))
    assert ranges["workers"] == (1, 4)
    assert ranges["ps_cpu"] == (0.25, 0.5)
    assert "worker_cpu" not in ranges


def test_model_of_the_user_is_used() -> None:
    class Mine(DlroverModel):
        name = "mine"

    assert recommend(SizingRequest(small_job(), trials(), model=Mine())).evidence.model == "mine"


def test_lower_and_upper_stay_within_the_caps() -> None:
    roomy = HostKind(kind="h", count=50, cpu=64, memory=256 * GIB)
    answer = recommend(
        SizingRequest(
            small_job(objective="time"), trials(noise=0.3), cluster=Cluster(hosts=(roomy,), quota=Quota(cpu=1.2))
        )
    )
    assert target_of(answer).cores() <= 1.2
    # Two workers take at least 1 core, and a PS 0.25.
    assert answer.upper is not None
    assert answer.upper.replicas("worker") == 1
    assert answer.uncapped is not None
    assert answer.uncapped.cores() > 1.2


def test_no_alternative_is_beaten_in_throughput_and_cost() -> None:
    rows = recommend(SizingRequest(small_job(), trials(0.05, 1))).alternatives
    for a in rows:
        assert a.chosen or not any(b.throughput.value >= a.throughput.value and b.cost < a.cost for b in rows)


def test_cluster_with_slow_links_has_lower_predicted_throughput() -> None:
    rows = [t.model_copy(update={"network_bytes": 3e6}) for t in trials()]
    kinds = {gbps: HostKind(kind="a", count=9, cpu=16, memory=64 * GIB, network_gbps=gbps) for gbps in (0.05, 100.0)}
    slow, fast = (
        recommend(SizingRequest(small_job(), rows, cluster=Cluster(hosts=(kind,)))) for kind in kinds.values()
    )
    assert slow.predicted is not None
    assert fast.predicted is not None
    assert slow.predicted.throughput.value < 0.7 * fast.predicted.throughput.value
    assert any("share its link" in text for text in slow.evidence.assumptions)
    silent = recommend(SizingRequest(small_job(), trials(), cluster=Cluster(hosts=(kinds[0.05],))))
    assert any("no trial measured its network traffic" in text for text in silent.evidence.assumptions)


def test_requested_memory_has_an_oom_probability() -> None:
    predicted = recommend(SizingRequest(small_job(), trials())).predicted
    assert predicted is not None
    assert predicted.worker_oom_probability is not None
    assert 0 <= predicted.worker_oom_probability < 0.2
    assert predicted.ps_oom_probability is not None
    assert 0 <= predicted.ps_oom_probability < 0.2
