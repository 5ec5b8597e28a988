from __future__ import annotations

from pathlib import Path

import pytest

import sizewright as sw
from sizewright.api import assign_job
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import InputError, RegistryError
from sizewright.retraining import champion
from sizewright.spec import Job, PredictionAnswer, Recommendation
from sizewright.spec.reason import numbered

BARE = [sw.Trial(workers=n, ps=1, throughput=100.0 * n) for n in (1, 2)]
LOGS = {"data": {"format": "criteo", "path": "/logs/day_*.gz"}}


def store_of(path: Path, *jobs: Job, bare: bool = False) -> str:
    with TrialStore(path) as store:
        for job in jobs:
            store.history.add_job(job)
            store.add_all(assign_job(BARE, job))
        store.add_all(BARE if bare else [])
    return str(path)


def text_of(answer: Recommendation | PredictionAnswer) -> str:
    return " ".join((*answer.reasons, *(remedy.text for remedy in answer.remedies)))


def test_reason_names_the_keys_in_which_the_stored_job_differs(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"), Job(name="other").with_batch_size(64))
    answer = sw.recommend(Job(name="ctr").with_batch_size(1024), store=store)
    assert answer.status == "not_enough_data"
    differs = "The store holds 2 trials of ctr, which differs in training.batch_size (512 there, 1024 here)."
    assert differs in text_of(answer)
    assert "2 trials of other" in answer.reasons[-1]
    assert answer.remedies[0].text.startswith("To use these trials, set training.batch_size to the stored values.")
    assert [remedy.number for remedy in answer.remedies] == list(range(1, 1 + len(answer.remedies)))


def test_remedy_names_the_missing_data_option(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job.model_validate(LOGS))
    assert "--data PATH/day_*.gz." in sw.recommend(Job(), store=store).remedies[0].text


def test_unassigned_trials_and_undescribed_jobs_are_reported(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", bare=True)
    answer = sw.recommend(Job(), store=store)
    assert "The store holds 2 trials that are assigned to no job." in answer.reasons
    assert "sizewright trials import FILE --job JOB" in answer.remedies[0].text
    with TrialStore(store) as opened:
        opened.add_all([trial.model_copy(update={"job": "x", "job_hash": "ab"}) for trial in BARE])
    answer = sw.recommend(Job(), store=store)
    assert "The store holds 2 trials of x, but no description of that job." in text_of(answer)


def test_job_with_many_differences_is_called_another_job(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"))
    answer = sw.recommend(Job.model_validate({"command": {"run": "python x.py"}}), store=store)
    assert "The store holds 2 trials of ctr, which is another job" in text_of(answer)
    assert "To use these trials" not in text_of(answer)
    with pytest.raises(InputError, match="The store holds 2 trials of ctr"):
        sw.run(Job.model_validate({"command": {"run": "python x.py"}}), store=store)


def test_answer_with_a_prior_mentions_only_jobs_of_the_same_name(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"), Job(name="other").with_batch_size(64))
    answer = sw.recommend(Job(name="ctr").with_batch_size(256), store=store, prior="shipped")
    assert answer.status == "ok"
    assert "2 trials of ctr" in answer.reasons[-1]
    assert "other" not in answer.reasons[-1]
    renamed = sw.recommend(Job(name="third").with_batch_size(256), store=store, prior="shipped")
    assert "The store holds" not in " ".join(renamed.reasons)


def test_passed_trials_are_not_compared_with_the_store(tmp_path: Path) -> None:
    assert "The store holds" not in text_of(
        sw.recommend(Job(), trials=[], store=store_of(tmp_path / "s.db", Job(name="ctr")))
    )


def test_reason_has_the_differing_keys_as_values(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"))
    reason = sw.recommend(Job(name="ctr").with_batch_size(1024), store=store).reason_details[-1]
    assert reason.kind == "similar_job_in_store"
    assert (reason.values["job"], reason.values["trials"], reason.values["different_keys"]) == ("ctr", 2, 1)
    assert list(numbered(reason.values, "key")) == [{"name": "training.batch_size", "stored": 512, "asked": 1024}]


def test_jobs_beyond_the_shown_ones_are_counted(tmp_path: Path) -> None:
    jobs = [Job(name=f"job-{size}").with_batch_size(size) for size in (64, 128, 256)]
    answer = sw.recommend(Job(), store=store_of(tmp_path / "s.db", *jobs))
    assert answer.reasons[-1] == "The store also holds trials of 1 other job."


@pytest.mark.parametrize("prior", [None, "shipped"])
def test_prediction_names_the_same_other_jobs_as_the_recommendation(tmp_path: Path, prior: str | None) -> None:
    store = store_of(tmp_path / "s.db", Job(name="ctr"), Job(name="other").with_batch_size(64))
    job = Job(name="ctr").with_batch_size(256)
    recommended, predicted = (ask(job, store=store, prior=prior) for ask in (sw.recommend, sw.predict))
    notes = [reason for reason in recommended.reason_details if reason.kind.endswith("_in_store")]
    assert notes
    assert [reason for reason in predicted.reason_details if reason.kind.endswith("_in_store")] == notes
    assert predicted.remedies == recommended.remedies


def test_prediction_says_that_its_trials_are_of_another_job() -> None:
    trials = assign_job([trial.model_copy(update={"workers": n}) for n in range(1, 9) for trial in BARE], Job(name="x"))
    job = Job(name="ctr").with_batch_size(256)
    (note,) = (text for text in sw.recommend(job, trials=trials, prior="shipped").reasons if "another job" in text)
    assert note in sw.predict(job, trials=trials, prior="shipped", workers=2).reasons


def test_prediction_says_that_the_registry_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uri: str) -> None:
        raise RegistryError("The model registry cannot be used: gone.")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(champion, "Registry", fail)
    store = store_of(tmp_path / "s.db")
    for ask in (sw.recommend, sw.predict):
        answer = ask(Job(), store=store, tracking_uri="http://gone")
        assert answer.status == "ok"
        assert answer.reasons[-1].startswith("The model registry cannot be used: gone.")
        assert answer.reason_details[-1].kind == "registry_failed"
