"""Loaders are an axis of the recommendation, and the answer names what limits a command."""

from __future__ import annotations

from typing import Any

import pytest

import sizewright as sw
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError, JobError
from sizewright.formatting import MIB
from sizewright.profiler.series.space_filling import space_filling_allocations
from sizewright.recommender.sizing.grid import make_grid
from sizewright.spec import Job, Recommendation
from tests.models.layers.test_loading import LOAD_S, measured

RUN = "python train.py --batch {batch_size} --loaders {loaders}"
POINTS = [(1, 8.0, 1), (1, 8.0, 2), (2, 8.0, 1), (1, 8.0, 6), (2, 8.0, 6), (4, 8.0, 1), (4, 8.0, 6)]


def described(run: str = RUN, loaders: Any = (1, 6), **change: Any) -> Job:
    bounds = {"worker": {"replicas": [1, 4], "cpu": 8.0, "memory": ["64Mi", "8Gi"]}, "loaders": loaders}
    training = {"batch_size": 500, "samples": 10**9, "sync": "sync"}
    return Job.model_validate({"command": {"run": run}, "training": training, "bounds": bounds} | change)


def with_memory(trial: Trial) -> Trial:
    return trial.model_copy(update={"worker_memory_bytes": (300 + 100 * (trial.loaders or 0)) * MIB})


def recommended(points: list[tuple[int, float, int]], job: Job | None = None, **change: Any) -> Recommendation:
    trials = [with_memory(measured(*point, noise=0.01)).model_copy(update=change) for point in points]
    return sw.recommend(job or described(), trials=trials)


def kinds(answer: Recommendation) -> dict[str, Any]:
    return {reason.kind: reason.values for reason in answer.reason_details}


def test_as_many_loaders_as_training_needs_are_asked_for() -> None:
    answer = recommended(POINTS)
    assert answer.target is not None, answer.reasons
    assert answer.target.loaders in (4, 5), "four deliver what a worker trains, and at equal rates both lose a little"
    assert answer.predicted is not None
    rate = answer.target.replicas("worker") * 4000.0
    assert answer.predicted.throughput.value == pytest.approx(rate, rel=0.12)


def test_loaders_at_their_bounds_are_named_as_the_bottleneck() -> None:
    answer = recommended([point for point in POINTS if point[2] <= 2], described(loaders=(1, 2)))
    assert answer.target is not None
    assert answer.target.loaders == 2
    values = kinds(answer)["bottleneck_reading"]
    assert values["loading"] == pytest.approx(2000.0 * answer.target.replicas("worker"), rel=0.1)
    assert values["cores"] == pytest.approx(2000.0 * LOAD_S, rel=0.15)
    (sentence,) = [reason for reason in answer.reasons if reason.startswith("Reading data limits the throughput")]
    assert "the loaders (2 per worker) deliver about" in sentence
    assert "More loaders are beyond bounds.loaders." in sentence


def test_memory_grows_with_the_loaders() -> None:
    answer = recommended(POINTS)
    assert answer.target is not None
    loaders = answer.target.loaders or 0
    assert answer.target.worker[0].memory_bytes >= (300 + 100 * loaders) * MIB
    few = sw.predict(described(), workers=1, loaders=1, trials=[with_memory(measured(*point)) for point in POINTS])
    assert few.asked is not None
    assert few.asked.allocation.worker[0].memory_bytes < answer.target.worker[0].memory_bytes


@pytest.mark.parametrize(("use", "limit"), [(0.95, "bottleneck_computing"), (0.3, "bottleneck_communication")])
def test_computing_and_communication_are_told_apart_by_the_use_of_cores(use: float, limit: str) -> None:
    job = described("python train.py --batch {batch_size}", None)
    bounds = job.bounds.worker.model_copy(update={"replicas": (2, 4)})
    job = job.model_copy(update={"bounds": job.bounds.model_copy(update={"worker": bounds})})
    points = [(2, 8.0, 6), (3, 8.0, 6), (4, 8.0, 6)]
    quiet = {"worker_cpu_used": 8 * use, "phase_data_s": None, "loaders": None, "loader_cpu_used": None}
    assert limit in kinds(recommended(points, job, **quiet))


def test_waiting_for_unsized_loaders_is_told() -> None:
    job = described("python train.py", None)
    job = Job.model_validate(job.model_dump(by_alias=True) | {"command": {"run": ["python", "train.py"]}})
    answer = recommended([(1, 8.0, 1), (2, 8.0, 1), (4, 8.0, 1)], job, loaders=None, loader_cpu_used=None)
    assert kinds(answer)["bottleneck_reading_unsized"]["wait"] == pytest.approx(0.75, abs=0.05)


def test_loaders_without_idle_cores_need_cores() -> None:
    job = described(loaders=(1, 8))
    worker = job.bounds.worker.model_copy(update={"cpu": (1.0, 1.0)})
    job = job.model_copy(update={"bounds": job.bounds.model_copy(update={"worker": worker})})
    busy = {"worker_cpu": 1.0, "worker_cpu_used": 0.97, "loader_cpu_used": 0.6}
    busy |= {"phase_data_s": 0.3, "phase_compute_s": 0.5}
    answer = recommended([(1, 1.0, 2), (2, 1.0, 2), (4, 1.0, 2), (1, 1.0, 8)], job, **busy)
    values = kinds(answer)["bottleneck_reading_cores"]
    assert values == {"wait": pytest.approx(0.375), "use": pytest.approx(0.97), "cores": pytest.approx(0.6)}
    assert any("0.6 of them for loaders. More cores for each worker help" in reason for reason in answer.reasons)


def test_trials_that_do_not_tell_of_waiting_are_not_used_to_size_loaders() -> None:
    answer = recommended(POINTS, phase_data_s=None, phase_compute_s=None)
    assert "loaders_unjudged" in kinds(answer)


def test_grid_and_plan_have_loaders_only_where_the_bounds_do() -> None:
    job = described(loaders=(0, 8))
    assert set(make_grid(job.bounds, 500, has_ps=False).loaders) == {0, 1, 2, 3, 4, 5, 6, 7, 8}
    assert {a.loaders for a in space_filling_allocations(job, 8.0, 40)} == {0, 1, 2, 4, 8}
    plain = described(loaders=None)
    assert set(make_grid(plain.bounds, 500, has_ps=False).loaders) == {-1.0}
    assert {a.loaders for a in space_filling_allocations(plain, 8.0, 40)} == {None}
    assert make_grid(plain.bounds, 500, has_ps=False).allocation(0).loaders is None


def test_loaders_need_a_command_that_takes_them() -> None:
    with pytest.raises(JobError, match=r"bounds\.loaders needs \{loaders\} in the command"):
        sw.recommend({"command": {"run": "python train.py"}, "bounds": {"loaders": [1, 2]}}, trials=[])
    with pytest.raises(JobError, match="a built-in model reads with its workers"):
        sw.recommend({"training": {"loaders": 2}}, trials=[])
    with pytest.raises(InputError, match=r"no bounds\.loaders"):
        sw.predict(described(loaders=None), loaders=2, trials=[measured(*point) for point in POINTS])


def test_loaders_do_not_change_what_a_job_is() -> None:
    plain = described(loaders=None)
    two = plain.model_copy(update={"training": plain.training.model_copy(update={"loaders": 2})})
    assert plain.hash == two.hash
    assert described().hash == plain.hash
