"""What an answer says of predictions, measurements and GPUs is only what happened."""

from __future__ import annotations

from typing import Any

import pytest

import sizewright as sw
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import JobError
from sizewright.formatting import GIB, MIB, format_bytes
from sizewright.models.memory.memory_model import table_bytes
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import (
    Bounds,
    Cluster,
    Command,
    Gpu,
    HostKind,
    Job,
    Model,
    Prices,
    Quota,
    Recommendation,
    RoleBounds,
    Tables,
    Training,
)
from sizewright.spec.objective import allocation_price
from tests.helpers.synthetic_trials import rate, small_job, trials

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 8), cpu=(2, 2)), ps=RoleBounds(replicas=(1, 2), cpu=(2, 2)))
COUNTS = [(1, 1), (2, 1), (4, 1), (4, 2), (1, 2)]


def own_code(**change: Any) -> Job:
    command = Command(run=("python", "train.py"), rendezvous="tf_config")
    return Job(command=command, bounds=BOUNDS, **change)


def rows(**columns: Any) -> list[Trial]:
    return [
        Trial(workers=w, ps=p, worker_cpu=2, ps_cpu=2, batch_size=512, throughput=rate(w, p, 2, 2), **columns)
        for w, p in COUNTS
    ]


def said(answer: Recommendation, part: str) -> str:
    sentences = [text for text in (*answer.reasons, *answer.evidence.assumptions) if part in text]
    assert len(sentences) == 1, (answer.reasons, answer.evidence.assumptions)
    return sentences[0]


def test_unknown_memory_is_not_requested() -> None:
    answer = recommend(SizingRequest(own_code(), rows()))
    assert answer.predicted is not None
    assert answer.target is not None
    assert answer.predicted.worker_memory_bytes is answer.predicted.ps_memory_bytes is None
    assert answer.predicted.worker_oom_probability is None
    assert {group.memory_bytes for _, group in answer.target.groups} == {0}
    assert "no limit per worker (its need is unknown" in said(answer, "Memory requested")
    assert answer.target.worker[0].describe_memory() == "no limit"
    assert not any("predicted peak" in reason for reason in answer.reasons)


def test_unknown_memory_gets_the_maximum_of_the_bounds() -> None:
    worker = BOUNDS.worker.model_copy(update={"memory_bytes": (GIB, 4 * GIB)})
    answer = recommend(
        SizingRequest(own_code().model_copy(update={"bounds": BOUNDS.model_copy(update={"worker": worker})}), rows())
    )
    assert answer.target is not None
    assert [group.memory_bytes for _, group in answer.target.groups] == [4 * GIB, 0]
    assert "4.0 GiB per worker (its need is unknown: the maximum of the bounds)" in said(answer, "Memory requested")


def test_stated_memory_margin_is_the_requested_one() -> None:
    answer = recommend(
        SizingRequest(own_code(), rows(worker_memory_bytes=700 * MIB, ps_memory_bytes=300 * MIB, duration_s=5.0))
    )
    assert answer.predicted is not None
    assert answer.target is not None
    assert answer.predicted.worker_memory_bytes == pytest.approx(700 * MIB, rel=0.01)
    assert answer.target.worker[0].memory_bytes == 832 * MIB  # 805 MiB in whole steps of 64
    amount = "832.0 MiB per worker (predicted peak 700.0 MiB + a margin of 15 %, in steps of 64.0 MiB)"
    assert amount in said(answer, "Memory requested")
    assert "trials of at most 5.0 s" in said(answer, "a longer run may need more")
    growing = recommend(
        SizingRequest(own_code(), rows(worker_memory_bytes=700 * MIB, watched_s=9.0, worker_memory_growth=float(MIB)))
    )
    assert "The memory of a worker still grew by 3.5 GiB per hour when trials ended. This growth is not" in said(
        growing, "still grew"
    )
    known = own_code(training=Training(samples=10**7))
    answer = recommend(
        SizingRequest(known, rows(worker_memory_bytes=700 * MIB, watched_s=9.0, worker_memory_growth=float(MIB)))
    )
    assert answer.predicted is not None
    needed = 700 * MIB + MIB * 10**7 / answer.predicted.throughput.value
    assert f"it would need {format_bytes(needed)} after the" in said(answer, "still grew")
    assert "raise the minimum of bounds.worker.memory" in said(answer, "still grew")
    assert "trials of at most 9.0 s" in said(growing, "a longer run may need more")


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        ((GIB, 4 * GIB), "1.0 GiB per worker (the minimum of the bounds; predicted peak 700.0 MiB)"),
        ((0, 820 * MIB), "820.0 MiB per worker (predicted peak 700.0 MiB + a margin of 15 %, up to the maximum of"),
    ],
)
def test_bounds_that_decide_the_memory_are_named(memory: tuple[int, int], why: str) -> None:
    worker = BOUNDS.worker.model_copy(update={"memory_bytes": memory})
    job = own_code().model_copy(update={"bounds": BOUNDS.model_copy(update={"worker": worker})})
    answer = recommend(SizingRequest(job, rows(worker_memory_bytes=700 * MIB)))
    assert why in said(answer, "Memory requested")


def test_measured_total_that_decides_the_memory_is_named() -> None:
    one_ps = BOUNDS.model_copy(update={"ps": RoleBounds(replicas=(1, 1), cpu=(2, 2))})
    job = own_code().model_copy(update={"bounds": one_ps})
    answer = recommend(SizingRequest(job, rows(ps_memory_bytes=300 * MIB)))
    why = "640.0 MiB per PS (its share of the largest measured total of all PS; predicted peak 300.0 MiB)"
    assert why in said(answer, "Memory requested")


def test_memory_that_was_measured_for_one_role_is_assumed_for_the_other() -> None:
    of_workers = recommend(SizingRequest(small_job(), trials(ps_memory_bytes=None)))
    of_ps = recommend(SizingRequest(small_job(), trials(worker_memory_bytes=None)))
    neither = recommend(SizingRequest(small_job(), trials(worker_memory_bytes=None, ps_memory_bytes=None)))
    both = recommend(SizingRequest(small_job(), trials()))
    assert "The memory of PS is calculated" in said(of_workers, "is calculated from the job file")
    assert "The memory of workers is calculated" in said(of_ps, "is calculated from the job file")
    assert "The memory of workers and PS is calculated" in said(neither, "is calculated from the job file")
    assert not any("is calculated" in text for text in both.evidence.assumptions)


@pytest.mark.parametrize("count", [1, 2])
def test_gpus_of_trials_are_in_plan_price_and_answer(count: int) -> None:
    job = own_code(prices=Prices(gpu_hour=7.0))
    answer = recommend(SizingRequest(job, rows(worker_gpu=count)))
    target, predicted = answer.target, answer.predicted
    assert target is not None
    assert predicted is not None
    assert target.worker[0].gpu == Gpu(count=count)
    assert predicted.price_per_hour == pytest.approx(allocation_price(target, job.prices))
    assert predicted.price_per_hour > 7.0 * count * target.replicas("worker")
    assert launch_plan(job, target, "").target == target
    assert f"Every worker gets {count} GPU" in said(answer, "GPU")


def test_trials_with_and_without_gpus_give_a_choice_of_both() -> None:
    with_gpus = [t.model_copy(update={"throughput": (t.throughput or 0) * 4}) for t in rows(worker_gpu=1)]
    answer = recommend(SizingRequest(own_code(prices=Prices(gpu_hour=1.0)), [*rows(worker_gpu=0), *with_gpus]))
    assert answer.target is not None
    assert answer.target.worker[0].gpu == Gpu(count=1)
    free = recommend(
        SizingRequest(own_code(prices=Prices(gpu_hour=1e5), objective="cost"), [*rows(worker_gpu=0), *with_gpus])
    )
    assert free.target is not None
    assert free.target.worker[0].gpu is None


def test_gpus_must_fit_the_hosts_and_the_quota() -> None:
    def limited(gpus: int, quota: int | None = None) -> Recommendation:
        host = HostKind(kind="g", count=2, cpu=64, memory=256 * GIB, gpu=Gpu(kind="a100", count=gpus))
        cluster = Cluster(hosts=(host,), quota=Quota(gpu=quota))
        return recommend(SizingRequest(own_code(objective="time"), rows(worker_gpu=2), cluster=cluster))

    largest = limited(8).target
    limited_by_quota = limited(8, quota=4).target
    assert largest is not None
    assert limited_by_quota is not None
    assert largest.gpus() <= 16
    assert limited_by_quota.gpus() == 4
    too_small = limited(1)
    assert too_small.status == "infeasible"
    assert "no host of cluster has more than 1 GPU, and one replica asks for 2 GPUs" in too_small.reasons[0]
    assert "GPU" in limited(8, quota=1).reasons[0]


def test_missing_gpus_in_trials_are_stated() -> None:
    answer = recommend(SizingRequest(own_code(training={"device": "cuda"}), rows()))
    assert "No trial records the GPUs" in said(answer, "GPU")


@pytest.mark.parametrize("objective", ["balanced", "cost", "time"])
def test_time_and_cost_are_unknown_without_number_of_samples(objective: str) -> None:
    unknown = recommend(SizingRequest(own_code(objective=objective), rows()))
    known = recommend(SizingRequest(own_code(objective=objective, training={"samples": 10**7}), rows()))
    for answer, expected in ((unknown, False), (known, True)):
        assert answer.predicted is not None
        values = [answer.predicted.completion_time_s, answer.predicted.cost]
        values += [value for row in answer.alternatives for value in (row.completion_time_s, row.cost)]
        assert all((value is not None) is expected for value in values)
        assert any("training.samples" in text for text in answer.evidence.assumptions) is not expected
        assert ("time per 1M samples" in " ".join(str(answer).split())) is not expected
        assert "45,840,617" not in str(answer)
    assert unknown.target == known.target
    assert unknown.predicted is not None
    assert known.predicted is not None
    assert known.predicted.cost is not None
    assert known.predicted.completion_time_s is not None
    hours = known.predicted.completion_time_s.value / 3600
    assert known.predicted.cost.value == pytest.approx(hours * (unknown.predicted.price_per_hour or 0))


def test_assumed_number_of_samples_is_stated() -> None:
    described = small_job()
    silent = described.model_copy(update={"training": described.training.model_copy(update={"samples": None})})
    for job, expected in ((described, False), (silent, True)):
        assumed = [
            text
            for text in recommend(SizingRequest(job, trials())).evidence.assumptions
            if "45,840,617, are assumed" in text
        ]
        assert bool(assumed) is expected


def test_a_deadline_needs_the_samples_of_a_command() -> None:
    with pytest.raises(JobError, match=r"objective deadline needs `training\.samples`"):
        sw.load_job({"command": {"run": "x"}, "objective": "deadline", "deadline": "4h"})


def test_extrapolated_target_is_always_stated() -> None:
    far = Bounds(worker=RoleBounds(replicas=(12, 16), cpu=(0.5, 1)), ps=RoleBounds(replicas=(1, 3), cpu=(0.25, 0.5)))
    answer = recommend(SizingRequest(small_job(bounds=far), trials(), extrapolate=True))
    assert answer.evidence.extrapolated
    assert "workers: 12 (trials or the prior cover 1 to 4)" in said(answer, "The target is extrapolated")
    near = recommend(SizingRequest(small_job(), trials()))
    assert not near.evidence.extrapolated
    assert not any("extrapolated" in reason for reason in near.reasons)


def test_trials_that_contradict_each_other_are_named() -> None:
    first, second, *others = rows()
    clash = [first, first.model_copy(update={"throughput": 10 * (first.throughput or 0)})]
    clash += [second, second.model_copy(update={"throughput": 100 * (second.throughput or 0)})]
    answer = recommend(SizingRequest(own_code(), [*clash, others[0]]))
    assert answer.status == "not_enough_data"
    assert "contradict each other" in answer.reasons[0]
    assert "workers 2" in answer.reasons[0]
    assert f"{first.throughput:,.0f}" in answer.reasons[0]


def test_number_of_missing_allocations_is_stated_once() -> None:
    few = recommend(SizingRequest(own_code(), rows()[:2]))
    assert few.status == "not_enough_data"
    assert any(
        "At least 1 more distinct allocation is needed; existing trials are kept." in r.text for r in few.remedies
    )
    assert not any("--fresh" in remedy.text for remedy in few.remedies)
    assert recommend(SizingRequest(own_code(), rows()[:3])).status == "ok"


def test_tables_that_no_host_can_hold_are_sized_from_trials_at_several_scales() -> None:
    large = Model(tables=Tables(count=10, rows=10**8, dim=32))
    bounds = Bounds(worker=BOUNDS.worker, ps=RoleBounds(replicas=(1, 2), cpu=(2, 2), memory=(0, "4Ti")))
    job = Job(model=large, bounds=bounds)
    scales = [t.model_copy(update={"table_scale": 1 / (64 * 4 ** (i % 3))}) for i, t in enumerate(rows())]
    answer = recommend(SizingRequest(job, scales))
    assert answer.target is not None, answer.reasons
    assert answer.target.memory_bytes("ps") > table_bytes(job)
    assert "size of the tables: 238.4 GiB (trials or the prior cover 238.4 MiB to 3.7 GiB)" in said(
        answer, "is extrapolated"
    )
    one_scale = [t.model_copy(update={"table_scale": 1 / 64}) for t in rows()]
    assert recommend(SizingRequest(job, one_scale)).status == "not_enough_data"


def test_unused_deadline_is_stated() -> None:
    answer = recommend(SizingRequest(small_job(objective="cost", deadline=60), trials()))
    assert "The deadline of 1.0 min is not used" in said(answer, "deadline")


def test_lower_and_upper_equal_the_target_without_prices() -> None:
    answer = recommend(SizingRequest(small_job(prices={"core_hour": 0, "gib_hour": 0, "gpu_hour": 0}), trials()))
    assert answer.lower == answer.target == answer.upper
