from __future__ import annotations

from typing import Any

import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.formatting import MIB
from sizewright.recommender.sizing.evaluate_grid import with_defaults
from sizewright.recommender.sizing.predict import predict
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Cluster, HostKind, Job, PredictionAnswer, Quota, Sizes
from tests.helpers.synthetic_trials import rate, small_job, trials


def asked(sizes: dict[str, Any], **change: Any) -> PredictionAnswer:
    request = SizingRequest(**({"job": small_job(), "trials": trials(noise=0.01)} | change))
    return predict(request, Sizes(**sizes))


def test_sizes_that_are_not_given_are_those_of_the_recommended_allocation() -> None:
    answer = asked({"workers": 1})
    target = recommend(SizingRequest(small_job(), trials(noise=0.01))).target
    assert answer.asked
    assert answer.recommended
    assert target
    assert answer.recommended.allocation == target
    assert answer.asked.allocation.replicas("worker") == 1
    assert answer.asked.allocation.ps[0].cpu == target.ps[0].cpu
    assert answer.asked.allocation.batch_size == target.batch_size
    assert answer.asked.predicted.throughput.value < answer.recommended.predicted.throughput.value


def test_recommended_allocation_is_predicted_as_recommend_predicts_it() -> None:
    recommendation = recommend(SizingRequest(small_job(), trials(noise=0.01)))
    answer = asked({})
    assert answer.recommended
    assert answer.recommended.predicted == recommendation.predicted
    assert answer.asked
    assert answer.asked.allocation == answer.recommended.allocation
    assert answer.asked.predicted.throughput.value == pytest.approx(answer.recommended.predicted.throughput.value)
    assert answer.asked.predicted.throughput.upper == pytest.approx(answer.recommended.predicted.throughput.upper)


def test_measured_allocation_shows_its_trials() -> None:
    again = [Trial(job_hash="x", workers=2, ps=1, worker_cpu=1, ps_cpu=0.5, batch_size=256, throughput=rate)
             for rate in (900.0, 1000.0, 1200.0)]  # fmt: skip
    others = [trial for trial in trials() if (trial.workers, trial.ps) != (2, 1)]
    sizes = {"workers": 2, "ps": 1, "worker_cpu": 1, "ps_cpu": 0.5, "batch_size": 256}
    answer = asked(sizes, trials=[*others, *again])
    assert answer.asked
    assert answer.asked.measured
    assert answer.asked.measured.trials == 3
    measured = answer.asked.measured.throughput
    assert (measured.lower, measured.value, measured.upper) == (900, 1000, 1200)
    assert asked(sizes | {"workers": 3}).asked.measured is None  # type: ignore[union-attr]


def test_prediction_agrees_with_the_form_that_trials_follow() -> None:
    answer = asked({"workers": 3, "ps": 2, "worker_cpu": 0.7, "ps_cpu": 0.3, "batch_size": 256})
    assert answer.asked
    assert answer.asked.predicted.throughput.value == pytest.approx(rate(3, 2, 0.7, 0.3), rel=0.1)


def test_allocation_that_may_not_be_chosen_is_predicted_and_says_why() -> None:
    answer = asked({"workers": 60})
    assert answer.asked
    assert not answer.asked.allowed
    assert answer.asked.extrapolated
    refusal = "It cannot be recommended: trials (or the prior) cover workers"
    assert any(text.startswith(refusal) for text in answer.reasons)
    assert len(answer.reasons) == len(answer.reason_details)


def test_little_memory_has_a_high_probability_of_running_out() -> None:
    plenty, little = asked({"worker_memory": "4Gi"}), asked({"worker_memory": 250 * MIB})
    assert plenty.asked
    assert little.asked
    assert little.asked.allocation.worker[0].memory_bytes == 250 * MIB
    assert plenty.asked.predicted.worker_oom_probability < 0.01  # type: ignore[operator]
    assert little.asked.predicted.worker_oom_probability > 0.9  # type: ignore[operator]
    assert any("A worker runs out of the memory asked for" in text for text in little.reasons)
    assert little.asked.predicted.price_per_hour < plenty.asked.predicted.price_per_hour  # type: ignore[operator]


def test_without_data_there_is_an_answer_with_remedies() -> None:
    answer = asked({"workers": 2}, trials=[])
    assert answer.status == "not_enough_data"
    assert answer.asked is None
    assert answer.remedies


def test_sizes_must_be_complete_if_nothing_can_be_recommended() -> None:
    host = HostKind(kind="h", count=4, cpu=8, memory="64Gi")
    infeasible = {"cluster": Cluster(name="c", hosts=[host], quota=Quota(cpu=0.1))}
    with pytest.raises(InputError, match=r"Nothing can be recommended .*worker_cpu"):
        asked({"workers": 2, "ps": 1}, **infeasible)
    answer = asked({"workers": 2, "ps": 1, "worker_cpu": 1, "ps_cpu": 0.5}, **infeasible)
    assert answer.asked
    assert answer.recommended is None
    assert any(text.startswith("Infeasible") for text in answer.reasons)


def test_job_without_ps_takes_no_ps() -> None:
    job = Job.model_validate(
        {"name": "bps", "command": {"run": "python t.py", "rendezvous": "torchrun", "progress": "json"},
         "training": {"batch_size": 32, "samples": 10_000_000, "sync": "sync"},
         "bounds": {"worker": {"replicas": [1, 16], "cpu": 4, "memory": "4Gi"}}}
    )  # fmt: skip
    rows = [
        Trial(job_hash="x", workers=w, ps=0, worker_cpu=4, batch_size=32, throughput=310.0 * w**0.9)
        for w in (1, 2, 4, 8, 16)
    ]
    assert asked({"workers": 3}, job=job, trials=rows).asked
    with pytest.raises(InputError, match="has no PS"):
        asked({"workers": 3, "ps": 1}, job=job, trials=rows)


@pytest.mark.parametrize(
    "sizes", [{"workers": 0}, {"ps": 0}, {"worker_cpu": 0}, {"ps_cpu": -1}, {"batch_size": 0}, {"worker_memory": "x"}]
)
def test_impossible_sizes_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Sizes(**sizes)


def shared_job(total: int = 768) -> Job:
    return small_job(training={"global_batch_size": total, "samples": 10_000_000})


def test_every_allocation_of_a_recommendation_has_the_global_batch() -> None:
    answer = recommend(SizingRequest(shared_job(), trials(noise=0.01)))
    assert answer.status == "ok"
    allocations = [answer.target, answer.lower, answer.upper, answer.uncapped]
    allocations += [alternative.allocation for alternative in answer.alternatives]
    for allocation in allocations:
        assert allocation
        assert allocation.replicas("worker") * allocation.batch_size == 768


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 768), (3, 256), (4, 192)])
def test_batch_per_worker_follows_from_the_global_batch(workers: int, batch_size: int) -> None:
    answer = asked({"workers": workers}, job=shared_job())
    assert answer.asked
    assert answer.asked.allocation.batch_size == batch_size


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"workers": 5}, "5 workers cannot share training.global_batch_size 768 evenly. .* these can: 1, 2, 3, 4"),
        ({"workers": 2, "batch_size": 384}, "a batch size per worker was given. Leave it out"),
    ],
)
def test_sizes_that_do_not_fit_the_global_batch_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        asked(sizes, job=shared_job())


def test_trials_without_a_batch_size_have_their_share_of_the_global_batch() -> None:
    without = [trial.model_copy(update={"batch_size": None}) for trial in trials()]
    completed = [with_defaults(shared_job(), trial) for trial in without]
    assert all(trial.workers * (trial.batch_size or 0) == 768 for trial in completed)
    assert any(
        "768 over all workers" in text for text in asked({}, job=shared_job(), trials=without).evidence.assumptions
    )
