"""The GPUs of a worker as an axis: what trials tell of them, and what is recommended."""

from __future__ import annotations

from typing import Any

import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import GIB
from sizewright.recommender.sizing.predict import predict
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Cluster, Gpu, HostKind, Job, Recommendation, Sizes
from sizewright.spec.allocation import same_kind
from sizewright.spec.objective import allocation_price

A100 = {"kind": "a100", "count": [1, 8]}
COUNTS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 4), (3, 2), (4, 4)]


def job(gpu: object = A100, **change: Any) -> Job:
    command = {"run": "python train.py --batch {batch_size}", "rendezvous": "torchrun"}
    worker = {"replicas": [1, 4], "cpu": 8, "gpu": gpu}
    training = {"batch_size": 512, "samples": 10**9, "device": "cuda", "sync": "sync"}
    fields = {"command": command, "bounds": {"worker": worker}, "training": training}
    return Job.model_validate({**fields, **change})


def trial(workers: int, gpus: int | None, **columns: Any) -> Trial:
    rate = 1e5 * workers**0.9 * (gpus or 1) ** 0.8
    known = {"throughput": rate, "batch_size": 512, "worker_cpu": 8, "worker_gpu": gpus}
    return Trial.model_validate({"workers": workers, "ps": 0, **known, **columns})


def trials(**columns: Any) -> list[Trial]:
    return [trial(*counts, **columns) for counts in COUNTS]


def said(answer: Recommendation) -> str:
    return " ".join([*answer.reasons, *answer.evidence.assumptions, *(each.text for each in answer.remedies)])


def test_gpus_within_the_bounds_are_recommended_with_their_kind_and_price() -> None:
    fastest = recommend(SizingRequest(job(objective="time"), trials(gpu_kind="a100")))
    cheapest = recommend(SizingRequest(job(objective="cost", prices={"gpu_hour": 100}), trials(gpu_kind="a100")))
    assert fastest.target is not None
    assert cheapest.target is not None
    assert fastest.predicted is not None
    assert fastest.target.worker[0].gpu == Gpu(kind="a100", count=8)  # twice the measured range
    assert cheapest.target.worker[0].gpu == Gpu(kind="a100", count=1)
    assert fastest.predicted.price_per_hour == pytest.approx(allocation_price(fastest.target, job().prices))
    assert fastest.predicted.price_per_hour > 10 * fastest.target.gpus()
    counts = {gpu.count for row in fastest.alternatives for _, group in row.allocation.groups if (gpu := group.gpu)}
    assert len(counts) > 1
    assert launch_plan(job(), fastest.target, "").target.worker[0].gpu == Gpu(kind="a100", count=8)
    assert "as in the trials" not in said(fastest)


def test_bounds_limit_the_gpus_of_the_trials() -> None:
    answer = recommend(SizingRequest(job(2, objective="time"), trials()))
    assert answer.target is not None
    assert answer.target.worker[0].gpu == Gpu(count=2)


def test_trials_without_gpus_are_those_of_the_only_count_that_bounds_allow() -> None:
    rows = [trial(workers, None) for workers in (1, 2, 3, 4)]
    answer = recommend(SizingRequest(job("a100:2"), rows))
    assert answer.target is not None
    assert answer.target.worker[0].gpu == Gpu(kind="a100", count=2)


def test_trials_that_do_not_record_their_gpus_cannot_choose_a_number() -> None:
    answer = recommend(SizingRequest(job(), [trial(workers, None) for workers in (1, 2, 3, 4)]))
    assert answer.status == "not_enough_data"
    assert answer.reasons[0] == (
        "Not enough data: bounds.worker.gpu allows 1 to 8 GPUs, and no trial records those of its workers (worker_gpu)."
    )
    assert answer.remedies[0].text.startswith("Profile the job with these bounds")


def test_trials_on_gpus_of_several_kinds_are_not_mixed() -> None:
    mixed = [*trials(gpu_kind="a100"), *trials(gpu_kind="NVIDIA-H100-80GB-HBM3")]
    answer = recommend(SizingRequest(job([1, 8]), mixed))
    assert answer.status == "not_enough_data"
    assert "on GPUs of several kinds (NVIDIA-H100-80GB-HBM3, a100), whose speeds differ" in answer.reasons[0]
    assert "Name the kind of the job in its bounds" in answer.remedies[0].text
    named = recommend(SizingRequest(job(), mixed))
    assert (named.status, named.evidence.trials) == ("ok", len(COUNTS))
    assert (
        "7 trials on GPUs of another kind (NVIDIA-H100-80GB-HBM3) do not count, since bounds.worker.gpu names a100."
        in named.reasons
    )
    other = recommend(SizingRequest(job("t4:1"), mixed))
    assert other.reasons[0] == "Not enough data: no successful trial ran on GPUs of kind t4."


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("h100", "NVIDIA-H100-80GB-HBM3", True), ("A100", "a100", True), ("a100", "NVIDIA-A10", False),
     ("a100", "NVIDIA-H100-80GB-HBM3", False), ("a10", "NVIDIA-A100-SXM4-80GB", False), ("t4", "Tesla-T4", True),
     ("nvidia-l4", "NVIDIA-L40S", False)],
)  # fmt: skip
def test_kind_is_the_same_as_the_product_that_contains_it(one: str, other: str, same: bool) -> None:
    assert same_kind(one, other) == same_kind(other, one) == same


def test_gpus_of_another_kind_do_not_hold_the_job() -> None:
    def on(kind: str) -> Recommendation:
        host = HostKind(kind="g", count=4, cpu=64, memory=256 * GIB, gpu=Gpu(kind=kind, count=8))
        return recommend(SizingRequest(job(), trials(), cluster=Cluster(hosts=(host,))))

    assert on("a100").status == on("gpu").status == "ok"
    assert on("h100").status == "infeasible"


def test_batch_size_at_which_a_gpu_ran_out_of_memory_is_not_recommended() -> None:
    bounds = {"worker": {"replicas": [1, 4], "cpu": 8, "gpu": 1}, "batch_size": [256, 4096]}
    sized = job(bounds=bounds, objective="time")
    rows = [trial(w, 1, batch_size=b, throughput=1e3 * w**0.9 * b**0.7)
            for w, b in [(1, 256), (1, 1024), (2, 512), (3, 1024), (4, 2048), (4, 256)]]  # fmt: skip
    out_of_memory = trial(4, 1, batch_size=4096, throughput=None, status="oom", oom_memory="device")
    free, limited = (recommend(SizingRequest(sized, each)).target for each in (rows, [*rows, out_of_memory]))
    assert free is not None
    assert limited is not None
    assert (free.batch_size, limited.batch_size) == (4096, 2048)
    answer = recommend(SizingRequest(sized, [*rows, out_of_memory]))
    assert "the memory of a GPU ran out in 1 trial, from batch size 4096 on." in said(answer)
    of_host = out_of_memory.model_copy(update={"oom_memory": "host"})
    assert recommend(SizingRequest(sized, [*rows, of_host])).target == free
    ruled_out = [trial(4, 1, batch_size=256, throughput=None, status="oom", oom_memory="device")]
    answer = recommend(SizingRequest(sized, [*rows, *ruled_out]))
    assert answer.status == "infeasible"
    assert "bounds.batch_size" in answer.remedies[0].text


def test_cause_of_a_lack_of_memory_is_the_first_line_without_its_time() -> None:
    message = "worker-1 ended for lack of memory on its GPU, after 3.2 s.\nIts last lines:\n    something else\n"
    assert Trial(workers=1, ps=0, status="oom", message=message).cause == (
        "worker-1 ended for lack of memory on its GPU"
    )
    assert Trial(workers=1, ps=0, status="failed", message=message).cause == "something else"


def hosts(*counts_and_memory: tuple[str, int, int]) -> Cluster:
    """Return hosts with 8 GPUs each: their kind, how many of them, and the GiB of one GPU."""
    sizes = {"cpu": 64, "memory_bytes": 512 * GIB}
    return Cluster(hosts=tuple(
        HostKind(kind=f"{kind}-{gib}", count=count, gpu=Gpu(kind=kind, count=8), gpu_memory_bytes=gib * GIB, **sizes)
        for kind, count, gib in counts_and_memory
    ))  # fmt: skip


def test_described_tables_that_gpus_do_not_hold_are_not_recommended() -> None:
    tables = {"tables": {"count": 4, "rows": 100_000_000, "dim": 64, "optimizer": "sgd"}}  # 95.4 GiB
    described = job(model=tables, objective="cost")
    small = recommend(SizingRequest(described, trials(), hosts(("a100", 4, 40), ("h100", 4, 200))))
    assert small.target is not None
    assert small.target.gpus() >= 3
    assert any(
        text.startswith("The GPU memory cap ruled out") and "by the described tables, and those of cluster" in text
        for text in small.reasons
    ), small.reasons
    none = recommend(SizingRequest(described, trials(), hosts(("a100", 4, 2))))
    assert none.status == "infeasible"
    assert none.reasons[0].endswith("by the described tables, and those of cluster have at most 2.0 GiB.")
    assert "or correct model.tables" in none.remedies[0].text
    asked = predict(SizingRequest(described, trials(), hosts(("a100", 4, 40))), Sizes(workers=1, worker_gpu=1))
    assert asked.asked is not None
    assert not asked.asked.allowed
    assert any(text.startswith("It cannot be recommended: each GPU would need 95.4 GiB") for text in asked.reasons)


def test_hosts_with_too_small_gpus_hold_no_worker() -> None:
    described = job(
        model={"tables": {"count": 4, "rows": 100_000_000, "dim": 64, "optimizer": "sgd"}}, objective="time"
    )
    answer = recommend(SizingRequest(described, trials(), hosts(("a100", 1, 96), ("a100", 4, 2))))
    assert answer.target is not None
    assert answer.target.gpus() <= 8, "only one host has GPUs that are large enough"


def test_measured_memory_of_gpus_is_predicted_and_limits_the_batch() -> None:
    wide = job(bounds={"worker": {"replicas": [1, 2], "cpu": 8, "gpu": "a100:1"}, "batch_size": [256, 4096]})
    rows = [
        trial(workers, 1, batch_size=batch, throughput=1e4 * workers * batch**0.5, device_memory_bytes=batch << 24)
        for workers in (1, 2) for batch in (256, 1024, 2048)
    ]  # fmt: skip
    free = recommend(SizingRequest(wide, rows))
    assert free.target is not None
    assert free.predicted is not None
    assert free.target.batch_size == 4096
    assert free.predicted.device_memory_bytes == pytest.approx(64 * GIB, rel=1e-3)
    assert "A GPU is predicted to use up to 64.0 GiB, by 6 trials that measured it." in free.reasons
    capped = recommend(SizingRequest(wide, rows, hosts(("a100", 4, 40))))
    assert capped.target is not None
    assert capped.target.batch_size <= 2560
    assert any("by 6 trials, and those of cluster have at most 40.0 GiB" in text for text in capped.reasons)
    unmeasured = recommend(SizingRequest(wide, [row.model_copy(update={"device_memory_bytes": None}) for row in rows]))
    assert unmeasured.predicted is not None
    assert unmeasured.predicted.device_memory_bytes is None
