from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sizewright as sw
from sizewright import api
from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import InputError, JobError, StoreError
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Outcome
from sizewright.training.session import Session


@pytest.fixture
def trials(store: str) -> list[sw.Trial]:
    with TrialStore(store, create=False) as opened:
        return opened.trials()


def test_the_public_names_are_sorted_complete_and_loadable() -> None:
    assert list(sw.__all__) == sorted(sw.__all__)
    assert set(sw.__all__) == {
        "Allocation", "Cluster", "Job", "MemoryReport", "Outcome", "Plan", "Recommendation", "SizewrightError",
        "Trial", "allocate", "apply", "calibrate_torchrec", "compare_priors", "doctor", "drift", "learn_prior",
        "load_job", "load_prior", "log_samples", "measure_bank", "memory", "open_store", "place_tables", "plan",
        "predict", "profile", "recommend", "report", "retrain", "run", "run_queue", "simulate", "skypilot", "tune",
    }  # fmt: skip
    assert dir(sw) == sw.__all__
    for name in sw.__all__:
        assert getattr(sw, name).__doc__


def test_names_of_the_api_are_loadable() -> None:
    assert set(api.__all__) == {name for names in api._NAMES.values() for name in names}
    for name in api.__all__:
        assert getattr(api, name) is not None


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'recomend'"):
        sw.recomend  # noqa: B018


def test_trials_and_a_store_give_the_same_answer(example: Path, store: str, trials: list[sw.Trial]) -> None:
    from_trials = sw.recommend(example, trials=trials)
    assert from_trials.status == "ok"
    assert sw.recommend(str(example), store=store) == from_trials
    assert sw.recommend(sw.load_job(example), store=f"sqlite:///{store}") == from_trials
    with sw.open_store(store) as opened:
        assert sw.recommend(example, store=opened) == from_trials
        assert opened.count() == len(trials)  # a borrowed store stays open


def test_the_store_is_also_found_by_its_variable(
    example: Path, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(api.STORE_VARIABLE, raising=False)
    with pytest.raises(StoreError, match=r"no trials at .*sizewright profile"):
        sw.recommend(example)
    monkeypatch.setenv(api.STORE_VARIABLE, store)
    assert sw.recommend(example).status == "ok"


def test_only_trials_of_the_same_job_count(example: Path, store: str) -> None:
    other_job = sw.load_job(example).with_batch_size(64)
    assert api.job_hash(other_job) != api.job_hash(example)
    assert sw.recommend(other_job, store=store).status == "not_enough_data"
    renamed = sw.load_job(example).model_copy(update={"name": "another-name"})
    assert sw.recommend(renamed, store=store).status == "ok"


def test_trials_are_assigned_to_a_job_and_keep_what_they_know(example: Path) -> None:
    job = sw.load_job(example)
    bare = sw.Trial(workers=1, ps=1, throughput=1.0)
    knows = sw.Trial(workers=1, ps=1, throughput=1.0, batch_size=7, sync="sync")
    first, second = api.assign_job([bare, knows], job)
    assert (first.job, first.job_hash) == (job.name, job.hash)
    assert (first.batch_size, first.sync) == (job.training.batch_size, job.training.sync)
    assert (second.batch_size, second.sync) == (7, "sync")


def test_a_cluster_may_be_a_file_or_a_record(example: Path, trials: list[sw.Trial], tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("hosts: [{kind: h, count: 4, cpu: 8, memory: 32Gi}]\nquota: {cpu: 1}\n")
    capped = sw.recommend(example, trials=trials, cluster=path)
    assert capped == sw.recommend(example, trials=trials, cluster=sw.Cluster.load(path))
    assert capped.target is not None
    assert capped.target.cores() <= 1
    assert capped.uncapped is not None
    assert capped.uncapped.cores() > 1


def test_the_plan_launches_the_target(example: Path, trials: list[sw.Trial]) -> None:
    answer = sw.recommend(example, trials=trials)
    plan = sw.plan(example, answer)
    assert (plan.kind, plan.target, plan.job) == ("launch", answer.target, sw.load_job(example))
    assert plan.reason.startswith(answer.reasons[0])
    assert sw.Plan.model_validate_json(plan.model_dump_json()) == plan


def test_plan_adjusts_the_running_allocation(example: Path, trials: list[sw.Trial]) -> None:
    answer, now = sw.recommend(example, trials=trials), sw.Allocation.of(1, 1, 0.5, 0.5, 512)
    plan = sw.plan(example, answer, current=now)
    assert (plan.kind, plan.current, plan.target) == ("adjust", now, answer.target)


def no_data(example: Path, trials: list[sw.Trial]) -> sw.Recommendation:
    return sw.recommend(example, trials=[])


def too_late(example: Path, trials: list[sw.Trial]) -> sw.Recommendation:
    return sw.recommend(
        sw.load_job(example).model_copy(update={"objective": "deadline", "deadline": 1.0}), trials=trials
    )


@pytest.mark.parametrize("ask", [no_data, too_late])
def test_without_a_target_there_is_no_plan(
    ask: Callable[..., sw.Recommendation], example: Path, trials: list[sw.Trial]
) -> None:
    answer = ask(example, trials)
    assert answer.target is None
    with pytest.raises(InputError, match=f"is '{answer.status}' and has no target to launch"):
        sw.plan(example, answer)


def test_memory_of_known_tables(example: Path) -> None:
    job = sw.load_job(example)
    report = sw.memory(job)
    assert [t.rows for t in report.tables] == list(job.model.tables.sizes())
    assert report.least_ps is not None


def test_tables_to_be_counted_are_counted_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    ids = [[f"{i % (table + 1):08x}" for table in range(26)] for i in range(300)]
    log.write_text("".join("\t".join(["1", *["2"] * 13, *row]) + "\n" for row in ids))
    job = sw.Job.model_validate(
        {"model": {"tables": {"rows": "from-data"}}, "data": {"format": "criteo", "path": str(log)}}
    )
    report = sw.memory(job)
    assert all(t.rows_lower <= t.rows <= t.rows_upper for t in report.tables)
    assert [t.rows for t in report.tables] == sorted(t.rows for t in report.tables)
    assert report.tables[25].rows >= 26 > report.tables[0].rows
    assert sw.recommend(job, trials=[]).status == "not_enough_data"


def test_growing_tables_widen_the_memory_interval(tmp_path: Path) -> None:
    """New rows of one table appear only early in the log, those of the other all the time."""
    log = tmp_path / "clicks.tsv"
    rng = random.Random(0)
    log.write_text("".join(f"0\t1\t{rng.randrange(300):x}\t{i:x}\n" for i in range(4000)))
    description: dict[str, Any] = {
        "model": {"dense_features": 1, "tables": {"count": 2, "rows": "from-data"}},
        "data": {"format": "criteo", "path": str(log)},
    }
    report = sw.memory(sw.Job.model_validate(description | {"training": {"samples": 40_000}}))
    still, growing = report.tables
    assert still.rows_upper < 1.2 * 300
    assert growing.rows_upper > 30_000
    assert all(option.oom_probability is not None for option in report.servers)
    exact = sw.memory(sw.Job.model_validate(description | {"training": {"samples": 4000}}))
    assert all(option.oom_probability is None for option in exact.servers)


@pytest.mark.parametrize("ask", [sw.recommend, sw.memory, sw.load_job, sw.profile])
def test_missing_job_file_is_refused(ask: Callable[[Any], Any], tmp_path: Path) -> None:
    with pytest.raises(JobError, match="No job file at"):
        ask(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "train",
    [
        sw.profile,
        sw.run,
        lambda job: sw.run(launch_plan(sw.load_job(job), Allocation.of(1, 1, 1, 1, 512))),
        lambda job: Session(sw.load_job(job)),
    ],
)
@pytest.mark.parametrize(
    ("tables", "value"),
    [
        ({"dtype": "float16"}, "model.tables.dtype float16"),
        ({"optimizer": "lamb"}, "model.tables.optimizer lamb"),
        ({"pooling": 2.5}, "model.tables.pooling 2.5"),
    ],
)
def test_engine_refuses_tables_that_it_cannot_train(
    train: Callable[[Any], Any], tables: dict[str, object], value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobError, match=f"job has {value}, but the built-in engine only trains float32 tables"):
        train({"model": {"tables": tables}})
    assert not list(tmp_path.iterdir()), "no store was made"


def test_prior_predicts_no_tables_that_it_has_not_seen() -> None:
    answer = sw.recommend({"model": {"tables": {"dtype": "int8"}}}, trials=[], prior="shipped")
    assert answer.status == "not_enough_data"
    assert any("it has model.tables.dtype int8" in reason for reason in answer.reasons)


def test_runs_of_similar_jobs_in_the_store_are_used_with_a_prior(example: Path, tmp_path: Path) -> None:
    job = sw.load_job(example)
    alike = job.model_copy(update={"name": "alike"}).with_batch_size(2 * job.training.batch_size)
    place = {"workers": 2.0, "ps": 1.0, "worker_cpu": 0.5, "ps_cpu": 0.3}
    samples = round(300 * float(np.exp(sw.load_prior().curve(alike).log_rates([place])[0])))
    stretch = Segment(
        at_s=0, duration_s=600, samples=samples, allocation=Allocation.of(2, 1, 0.5, 0.3, alike.training.batch_size)
    )
    run = FinishedJob(id="1", name="alike", job=alike, stretches=(stretch,), outcome=Outcome(status="finished"))
    with TrialStore(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        store.history.add([run])
        answer, plain = sw.recommend(job, store=store, prior="shipped"), sw.recommend(job, trials=[], prior="shipped")
        assert sw.recommend(job, store=store).status == "not_enough_data"
    assert [each.name for each in answer.evidence.similar] == ["alike"]
    assert json.loads(answer.to_json())["evidence"]["similar"][0]["weight"] == 1.0
    assert answer.predicted is not None
    assert plain.predicted is not None
    assert answer.predicted.throughput.value < 0.9 * plain.predicted.throughput.value
