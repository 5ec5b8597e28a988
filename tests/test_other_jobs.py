from __future__ import annotations

from pathlib import Path

import pytest

import sizewright as sw
from sizewright.api import assign_job
from sizewright.datasets.store import TrialStore
from sizewright.errors import InputError
from sizewright.spec import Job, Recommendation

BARE = [sw.Trial(workers=n, ps=1, throughput=100.0 * n) for n in (1, 2)]
LOGS = {"data": {"format": "criteo", "path": "/logs/day_*.gz"}}


def store_of(path: Path, *jobs: Job, bare: bool = False) -> str:
    with TrialStore(path) as store:
        for job in jobs:
            store.history.add_job(job)
            store.add_all(assign_job(BARE, job))
        store.add_all(BARE if bare else [])
    return str(path)


def told(answer: Recommendation) -> str:
    return " ".join((*answer.reasons, *(remedy.text for remedy in answer.remedies)))


def test_trials_of_the_job_with_another_setting_are_named_with_what_differs(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"), Job(name="other").with_batch_size(64))
    answer = sw.recommend(Job(name="ctr").with_batch_size(1024), store=store)
    assert answer.status == "not_enough_data"
    assert "2 trials of ctr are in the store; that job differs in training.batch_size (512 there, 1024 here)." in told(
        answer
    )
    assert "2 trials of other" in answer.reasons[-1]
    assert answer.remedies[0].text.startswith("To use these trials, set training.batch_size as there.")
    assert [remedy.number for remedy in answer.remedies] == list(range(1, 1 + len(answer.remedies)))


def test_a_data_option_that_was_left_out_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job.model_validate(LOGS))
    assert "PATH/day_*.gz (--data)" in sw.recommend(Job(), store=store).remedies[0].text


def test_trials_of_no_job_and_of_jobs_that_nobody_described_are_told(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", bare=True)
    answer = sw.recommend(Job(), store=store)
    assert "2 trials in the store are assigned to no job." in answer.reasons
    assert "sizewright trials import FILE --job JOB" in answer.remedies[0].text
    with TrialStore(store) as opened:
        opened.add_all([trial.model_copy(update={"job": "x", "job_hash": "ab"}) for trial in BARE])
    assert "2 trials of x are in the store, but the store does not describe that job." in told(
        sw.recommend(Job(), store=store)
    )


def test_a_quite_different_job_is_called_one(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"))
    answer = sw.recommend(Job.model_validate({"command": {"run": "python x.py"}}), store=store)
    assert "2 trials of ctr are in the store, which is another job" in told(answer)
    assert "To use these trials" not in told(answer)
    with pytest.raises(InputError, match="2 trials of ctr are in the store"):
        sw.run(Job.model_validate({"command": {"run": "python x.py"}}), store=store)


def test_an_answer_of_a_prior_names_trials_of_the_same_job_alone(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"), Job(name="other").with_batch_size(64))
    answer = sw.recommend(Job(name="ctr").with_batch_size(256), store=store, prior="shipped")
    assert answer.status == "ok"
    assert "2 trials of ctr" in answer.reasons[-1]
    assert "other" not in answer.reasons[-1]
    again = sw.recommend(Job(name="third").with_batch_size(256), store=store, prior="shipped")
    assert "in the store;" not in " ".join(again.reasons)


def test_trials_that_are_given_are_not_held_against_a_store(tmp_path: Path) -> None:
    assert "store;" not in told(sw.recommend(Job(), trials=[], store=store_of(tmp_path / "s.db", Job(name="ctr"))))
