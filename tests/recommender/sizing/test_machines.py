"""The choice of hosts: their kind, on demand or spot, by expected time and cost."""

from __future__ import annotations

import math
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import sizewright as sw
from sizewright.cli.tables import print_prediction, print_recommendation
from sizewright.models.forms.dlrover import DlroverModel
from sizewright.recommender.machines.interruptions import Checkpoints
from sizewright.recommender.sizing.predict import predict
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import Selection
from sizewright.recommender.sizing.select import recommend, select
from sizewright.spec import Cluster, HostKind, Job, Machines, Recommendation, Sizes
from sizewright.spec.units import parse_seconds
from tests.helpers.synthetic_trials import small_job, trials

SAMPLES = 2 * 10**9  # about 11 hours on the largest allocation
SMALL = {"kind": "small", "count": 10, "cpu": 2, "memory": "8Gi", "price_hour": 0.1}
BIG = {"kind": "big", "count": 4, "cpu": 16, "memory": "64Gi", "price_hour": 0.7}
SPOT = {"spot_price_hour": 0.2, "interruptions_hour": 0.05}


def job(checkpoint: Any = "30m", samples: int | None = SAMPLES, **change: Any) -> Job:
    training = {"batch_size": 256, "samples": samples, "checkpoint": checkpoint}
    return small_job(training=training, **({"objective": "cost"} | change))


def request(*hosts: dict[str, Any], job_: Job | None = None, **more: Any) -> SizingRequest:
    cluster = Cluster(hosts=tuple(HostKind(**host) for host in hosts))
    rows = trials(noise=0.03, **({"embedding_bytes": None} if job_ and job_.command else {}))
    return SizingRequest(job_ or job(), rows, cluster=cluster, model=DlroverModel(), **more)


def chosen(answer: Recommendation) -> Machines:
    assert answer.status == "ok", answer.reasons
    machines = answer.chosen_machines
    assert machines is not None
    assert answer.machines[0] == machines
    assert sum(each.chosen for each in answer.machines) == 1
    assert machines.allocation == answer.target
    return machines


def said(answer: Recommendation, part: str) -> str:
    (text,) = [text for text in (*answer.reasons, *answer.evidence.assumptions) if part in text]
    return text


@pytest.mark.parametrize(
    ("spot_price", "spot"),
    [(0.2, True), (0.66, True), (0.7, False), (0.9, False)],
    ids=["cheap", "near", "same", "dear"],
)
def test_spot_hosts_are_chosen_where_they_cost_less(spot_price: float, spot: bool) -> None:
    answer = recommend(request(BIG | SPOT | {"spot_price_hour": spot_price}))
    assert chosen(answer).spot is spot
    assert {each.spot for each in answer.machines} == {True, False}
    costs = [each.cost.value for each in answer.machines if each.cost]
    assert costs == sorted(costs)


def test_cost_is_that_of_whole_hosts_for_the_expected_time() -> None:
    answer = recommend(request(BIG | SPOT, SMALL))
    for machines in answer.machines:
        each = machines.allocation
        assert machines.hosts >= max(each.cores() / (16 if machines.kind == "big" else 2), 1)
        assert machines.cost is not None
        assert machines.completion_time_s is not None
        hours = machines.completion_time_s.value / 3600
        assert machines.cost.value == pytest.approx(machines.hosts * machines.price_hour * hours)
        assert machines.cost.lower < machines.cost.value < machines.cost.upper
    best, predicted = chosen(answer), answer.predicted
    assert predicted is not None
    assert (best.kind, best.spot) == ("big", True)
    assert (predicted.completion_time_s, predicted.cost) == (best.completion_time_s, best.cost)
    assert predicted.price_per_hour == pytest.approx(best.price_per_hour)
    work_s = np.array([SAMPLES / predicted.throughput.value])
    expected_s = Checkpoints(1800.0, 63.0).expected_time_s(work_s, best.hosts * 0.05 / 3600)[0]
    assert expected_s > work_s[0]
    assert best.completion_time_s is not None
    assert best.completion_time_s.value == pytest.approx(expected_s)


def test_target_has_the_lowest_objective_over_all_offers() -> None:
    for objective in ("cost", "balanced", "time"):
        selection = select(request(BIG | SPOT, SMALL | SPOT, job_=job(objective=objective)))
        assert isinstance(selection, Selection)
        assert len(selection.options) == 4
        best = selection.scored.objective[selection.chosen]
        assert all(best <= each.scored.objective[each.allowed].min() * (1 + 1e-6) for each in selection.options)


def test_cheapest_hosts_are_chosen_among_equally_fast_ones() -> None:
    dear = BIG | {"kind": "dear", "price_hour": 0.9}
    assert chosen(recommend(request(dear, BIG, job_=job(objective="time")))).kind == "big"


def test_spot_hosts_that_are_too_slow_for_the_deadline_are_not_chosen() -> None:
    on_demand = chosen(recommend(request(BIG, job_=job(objective="time"))))
    assert on_demand.completion_time_s is not None
    deadline_s = 1.3 * on_demand.completion_time_s.value
    hosts = BIG | SPOT | {"interruptions_hour": 0.4}
    rare = recommend(request(hosts, job_=job("30m", objective="deadline", deadline=deadline_s)))
    often = recommend(request(hosts, job_=job("4h", objective="deadline", deadline=deadline_s)))
    assert chosen(rare).spot
    assert not chosen(often).spot
    for answer in (rare, often):
        predicted = answer.predicted
        assert predicted is not None
        assert predicted.deadline_probability == chosen(answer).deadline_probability
        assert (predicted.deadline_probability or 0) >= 0.9
        assert all((each.deadline_probability or 0) >= 0.899 for each in answer.machines)
    cheap = recommend(request(hosts, job_=job("4h", deadline=deadline_s)))
    assert chosen(cheap).spot, "the deadline is told, but only its objective keeps it"
    assert (chosen(cheap).deadline_probability or 1) < 0.9


def test_deadline_of_the_remedy_can_be_met_on_spot_hosts() -> None:
    hosts = BIG | SPOT | {"interruptions_hour": 0.4}
    late = recommend(request(hosts, job_=job("2h", objective="deadline", deadline="8h"), spot=True))
    assert late.status == "infeasible"
    deadline = late.remedies[0].text.split("deadline to ")[1].split()[0]
    kept = recommend(request(hosts, job_=job("2h", objective="deadline", deadline=deadline), spot=True))
    assert chosen(kept).spot
    early = 0.9 * parse_seconds(deadline)
    assert recommend(request(hosts, job_=job("2h", objective="deadline", deadline=early), spot=True)).status != "ok"


def test_only_hosts_that_hold_the_replicas_are_chosen() -> None:
    tiny = SMALL | {"kind": "tiny", "cpu": 0.5, "price_hour": 0.001}
    few = SMALL | {"kind": "few", "count": 1, "price_hour": 0.001}
    answer = recommend(request(tiny, few, BIG))
    assert [each.kind for each in answer.machines if each.cost] == ["few", "tiny", "big"] or chosen(answer)
    assert all(each.hosts <= 1 for each in answer.machines if each.kind == "few")
    none = recommend(request(tiny | {"cpu": 0.2}))
    assert none.status == "infeasible"
    assert "no host of cluster (tiny) has more than 0.2 cores" in none.reasons[0]


def test_spot_is_not_used_where_nothing_is_saved() -> None:
    answer = recommend(request(BIG | SPOT, job_=job(checkpoint=None)))
    assert [each.spot for each in answer.machines] == [False]
    assert "small is not checkpointed" in said(answer, "Spot hosts are not used")


def test_reason_compares_spot_with_on_demand() -> None:
    answer = recommend(request(BIG | SPOT, job_=job(deadline="30h")))
    text = said(answer, "The job costs")
    assert "on 1 spot host of big, done within 1.2 d with a probability of > 99 %; " in text
    assert text.endswith(" on 1 host of big on demand.")
    (reason,) = [reason for reason in answer.reason_details if reason.kind == "machines"]
    assert reason.values["cost"] < reason.values["other_cost"]  # type: ignore[operator]
    assert "Whole hosts are paid" in said(answer, "Whole hosts")
    assert "on a new host after 1.1 min (training.checkpoint.restart)" in said(answer, "taken away at random")


def test_hosts_without_a_price_beside_others_are_told() -> None:
    plain = {"kind": "plain", "cpu": 8, "memory": "16Gi"}
    answer = recommend(request(BIG, plain))
    assert "OpenCost's prices of cores, memory and GPUs are used for plain" in said(answer, "OpenCost")
    unpriced = recommend(request(plain))
    assert unpriced.machines == ()
    assert unpriced.chosen_machines is None
    assert not any("Whole hosts" in text for text in unpriced.evidence.assumptions)


def test_pauses_of_checkpoints_count_on_all_hosts() -> None:
    def hours(checkpoint: Any, **more: Any) -> float:
        predicted = recommend(request(BIG, job_=job(checkpoint), **more)).predicted
        assert predicted is not None
        assert predicted.completion_time_s is not None
        return predicted.completion_time_s.value / 3600

    paused = hours({"every": "30m", "pause": "3m"})
    assert paused == pytest.approx(hours("30m") / 0.9)
    alone = recommend(
        SizingRequest(job({"every": "30m", "pause": "3m"}), trials(noise=0.03), model=DlroverModel())
    ).predicted
    assert alone is not None
    assert alone.completion_time_s is not None
    assert alone.completion_time_s.value == pytest.approx(SAMPLES / alone.throughput.value / 0.9)


def test_spot_hosts_are_compared_by_the_hour_where_samples_are_unknown() -> None:
    command = {"run": "python train.py", "rendezvous": "tf_config"}
    bounds = job().bounds
    unknown = Job(command=command, bounds=bounds, training={"batch_size": 256, "checkpoint": "30m"}, objective="cost")
    answer = recommend(request(BIG | SPOT, job_=unknown))
    best = chosen(answer)
    assert best.spot
    assert best.cost is best.completion_time_s is best.deadline_probability is None
    assert "An hour on 1 spot host of big costs 0.200; 0.700 on 1 host of big on demand." in answer.reasons
    slow = recommend(request(BIG | SPOT | {"interruptions_hour": 10.0}, job_=unknown))
    assert not chosen(slow).spot


def test_rarer_interruptions_and_shorter_intervals_never_cost_more() -> None:
    def cost(checkpoint: str, interruptions: float) -> float:
        host = BIG | SPOT | {"interruptions_hour": interruptions}
        estimate = chosen(recommend(request(host, job_=job(checkpoint), spot=True))).cost
        assert estimate is not None
        return estimate.value

    assert cost("30m", 0.0) < cost("30m", 0.1) < cost("1h", 0.1) < cost("1h", 0.5)


def test_plan_and_tables_name_the_hosts() -> None:
    sized = request(BIG | SPOT, SMALL, job_=job(deadline="30h"))
    answer = recommend(sized)
    plan = sw.plan(sized.job, answer)
    assert plan.machines == answer.chosen_machines
    assert sw.Plan.model_validate_json(plan.model_dump_json()) == plan
    assert Recommendation.model_validate_json(answer.model_dump_json()) == answer
    console = Console(file=StringIO(), width=160)
    print_recommendation(console, answer, sized.job)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "On which hosts" in text
    assert "within 1.2 d" in text
    assert "Cost is that of 1 spot host of big, at 0.200 an hour each." in text


def test_prediction_is_on_the_hosts_that_are_best_for_it() -> None:
    sized = request(SMALL, BIG | SPOT)
    asked = predict(sized, Sizes(workers=4, worker_cpu=1.0)).asked
    assert asked is not None
    assert asked.machines is not None
    assert (asked.machines.kind, asked.machines.spot) == ("big", True)
    assert asked.predicted.cost == asked.machines.cost
    huge = predict(sized, Sizes(worker_memory="1Ti"))
    assert huge.asked is not None
    assert huge.asked.machines is huge.asked.predicted.cost is huge.asked.predicted.price_per_hour is None
    assert not huge.asked.allowed
    console = Console(file=StringIO(), width=200)
    print_prediction(console, huge)
    assert math.isfinite(len(console.file.getvalue()))  # type: ignore[attr-defined]
    assert "spot host of big" in console.file.getvalue()  # type: ignore[attr-defined]
