"""Retraining against a separate MLflow database; `test_mlflow_server.py` starts a server."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import InputError, NotEnoughDataError, RegistryError, StoreError, UnusableVersionError
from sizewright.models.prior.fit import VERSION
from sizewright.retraining import champion
from sizewright.retraining import registry as registries
from sizewright.retraining.champion import champion_prior
from sizewright.retraining.compare import compare_versions
from sizewright.retraining.gate import GateLimits
from sizewright.retraining.lessons import gather
from sizewright.retraining.registry import PRIOR, TWIN, Registry, Version
from sizewright.retraining.retrain import ONE_AT_A_TIME, Retraining, retrain
from sizewright.spec import Job, Training
from sizewright.spec.wording import sentence, sentences
from tests.helpers.finished_jobs import run_of

OWN_JOB = Job(name="own", training=Training(batch_size=1024))


@pytest.fixture(scope="module")
def first(filled: TrialStore, registry: Registry) -> Retraining:
    """Run the first retraining; there is no other version, so it becomes the champion."""
    return retrain(filled, registry, None)


def test_retraining_is_logged_and_registered(first: Retraining, filled: TrialStore, registry: Registry) -> None:
    assert first.promoted
    lessons = gather(filled, None)
    assert first.trials == len(lessons.trials)
    assert first.data_sha256 == lessons.digest
    run = registry.client.get_run(str(first.run_id))
    assert run.info.status == "FINISHED"
    assert run.data.params["data_sha256"] == lessons.digest
    assert 0 < run.data.metrics["base_out_mdape"] < 0.3
    assert {"family_out_mdape", "held_out_coverage", "held_out_mdape_dlrm"} <= set(run.data.metrics)
    figures = {Path(f.path).stem for f in registry.client.list_artifacts(str(first.run_id), "figures")}
    assert figures == {"predicted_against_measured", "error_by_family", "interval_coverage", "regret"}
    (version,) = [v for v in registry.versions() if v.number == first.version]
    assert version.tags["data_sha256"] == lessons.digest
    assert version.tags["reason"] == first.reason
    assert first.reason == sentences(first.details)


def test_the_model_is_served_with_signature_and_example(first: Retraining, registry: Registry) -> None:
    import mlflow.artifacts
    import mlflow.pyfunc
    from mlflow.models import Model

    path = mlflow.artifacts.download_artifacts(run_id=first.run_id, artifact_path="model", tracking_uri=registry.uri)
    served = Model.load(path)
    assert {"job", "workers", "worker_cpu"} <= set(served.signature.inputs.input_names())
    inputs = served.load_input_example(path)
    assert served.flavors["sklearn"]["serialization_format"] == "skops"
    answer = mlflow.pyfunc.load_model(path).predict(inputs)
    version = registry.version(str(first.version))
    job = Job.model_validate_json(inputs["job"][0])
    curve = registry.load(version).curve(job)
    assert answer == pytest.approx(np.exp(curve.log_rates(inputs.drop(columns="job"))))


@pytest.mark.long
def test_version_that_is_not_better_stays_challenger(
    first: Retraining, filled: TrialStore, registry: Registry, parts: tuple[Bank, Bank], monkeypatch: Any
) -> None:
    champion_before = registry.champion()
    assert champion_before is not None
    assert champion_before.number == first.version
    repeated = retrain(filled, registry, None)
    assert "version 1 has learned from the same" in repeated.reason
    assert registry.versions() == [champion_before]
    filled.add(filled.trials()[0].model_copy(update={"series": "another"}))
    second = retrain(filled, registry, None, limits=GateLimits(margin=0.5))
    assert not second.promoted
    assert "has learned from the same" in retrain(filled, registry, None, limits=GateLimits(margin=0.5)).reason
    third = retrain(filled, registry, None, limits=GateLimits(margin=0.4))
    assert "median error" in third.reason
    assert (third.promoted, third.version) == (False, second.version)
    challenger = registry.version("challenger")
    assert challenger.number == second.version
    assert "error" in challenger.tags["reason"]
    assert registry.champion() == champion_before

    registry.promote(challenger)
    new_champion = registry.champion()
    assert new_champion is not None
    assert new_champion.number == second.version
    assert registry.rollback().number == champion_before.number
    assert registry.version("champion").number == champion_before.number
    rows = compare_versions(registry, registry.versions(), gather(None, parts[0]))
    assert {row["version"] for row in rows} == {v.number for v in registry.versions()}

    # The registry vanishes between the two steps of a promotion.
    def fail(*_: object) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(registry.client, "set_registered_model_alias", fail)
    with pytest.raises(RegistryError, match="cannot be used: gone"):
        registry.promote(registry.version(str(second.version)))
    monkeypatch.undo()
    assert registry.version("champion").number == champion_before.number


def test_recommendations_use_the_champion_and_the_last_good_one_without_a_registry(
    first: Retraining, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    served_version = registry.champion()
    assert served_version is not None
    prior, why_not_champion = champion_prior(registry.uri)
    assert why_not_champion is None
    assert prior.source == f"sizewright-prior version {served_version.number}"
    assert prior.to_json() == registry.load(served_version).to_json()

    def fail(uri: str) -> Registry:
        raise RegistryError("The model registry cannot be used: gone.")

    monkeypatch.setattr(champion, "Registry", fail)
    cached, why_not_champion = champion_prior(registry.uri)
    assert cached.to_json() == prior.to_json()
    assert why_not_champion
    assert f"The last known champion is used: {prior.source}." in sentence(why_not_champion)
    fallback, why_not_champion = champion_prior("http://another")
    assert fallback.source == "the shipped prior"
    assert why_not_champion
    assert "the shipped prior is used" in sentence(why_not_champion)


def test_version_that_was_changed_after_registration_is_refused(
    first: Retraining, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    champion = registry.champion()
    assert champion is not None
    path = _artifact(registry, champion, PRIOR)
    text = path.read_text()
    path.write_text(text.replace('"trials": ', '"trials": 1'))
    try:
        with pytest.raises(UnusableVersionError, match="was changed after it was registered"):
            registry.load(champion)
        path.write_bytes(b"\xff\xfe no text")
        with pytest.raises(UnusableVersionError, match="was changed after it was registered"):
            registry.load(champion)
        path.unlink()
        with pytest.raises(UnusableVersionError, match=r"lacks prior\.json"):
            registry.load(champion)
        path.write_text(text.replace('"trials": ', '"trials": 1'))
        prior, why_not_champion = champion_prior(registry.uri)
        assert prior.source == "the shipped prior"
        assert why_not_champion
        assert "was changed" in sentence(why_not_champion)
    finally:
        path.write_text(text)
    assert registry.load(champion)


@pytest.mark.long
def test_a_version_that_is_too_large_is_refused(
    first: Retraining, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sizewright.retraining.registry._MAX_BYTES", 100)
    with pytest.raises(UnusableVersionError, match=r"prior.json has .* at most .* are allowed"):
        registry.check(registry.versions()[0])


def test_incompatible_champion_is_not_compared_and_dry_run_writes_nothing(
    first: Retraining, filled: TrialStore, registry: Registry
) -> None:
    champion = registry.champion()
    assert champion is not None
    path = _artifact(registry, champion, TWIN)
    text = path.read_text()
    old = text.replace(f'"version": {VERSION}', f'"version": {VERSION - 1}')
    path.write_text(old)
    registry.tag(champion, f"sha256.{TWIN}", registries.digest(old))
    try:
        with pytest.raises(UnusableVersionError, match=f"not a prior of version {VERSION}"):
            registry.load(registry.version("champion"), TWIN)
        versions_before = registry.versions()
        result = retrain(filled, registry, None, dry_run=True)
        assert f"the champion cannot be used: {champion.source}" in result.reason
        assert "held-out jobs" in result.reason
        assert (result.version, result.run_id, result.promoted) == (None, None, False)
        assert registry.versions() == versions_before
    finally:
        path.write_text(text)
        registry.tag(champion, f"sha256.{TWIN}", registries.digest(text))


def _artifact(registry: Registry, version: Version, name: str) -> Path:
    folder = registry.client.get_run(version.run_id).info.artifact_uri.removeprefix("file://")
    return Path(folder, registries.FOLDER, name)


def test_second_retraining_at_the_same_time_is_refused(
    filled: TrialStore, registry: Registry, parts: tuple[Bank, Bank]
) -> None:
    with (
        filled.exclusively(ONE_AT_A_TIME),
        pytest.raises(StoreError, match=r"Another retraining uses .* \(process \d+ on"),
    ):
        retrain(filled, registry, parts[0])
    with filled.exclusively(ONE_AT_A_TIME):
        pass


def test_dead_retraining_does_not_lock_the_store(filled: TrialStore, tmp_path: Path) -> None:
    with sqlite3.connect(filled.name) as connection:
        # the process number belongs to this process now, but its start time differs
        dead = f"{platform.node()[:36]} {os.getpid()} 1000"
        connection.execute("INSERT INTO sizewright_meta VALUES (?, ?)", (ONE_AT_A_TIME, dead))
    with filled.exclusively(ONE_AT_A_TIME):
        pass


def test_empty_store_is_refused(store: TrialStore, parts: tuple[Bank, Bank]) -> None:
    with pytest.raises(NotEnoughDataError, match="holds nothing to learn from"):
        retrain(store, None, parts[0])


def test_damaged_run_is_named_and_the_lock_released(store: TrialStore, parts: tuple[Bank, Bank]) -> None:
    store.history.add([run_of(OWN_JOB)])
    with sqlite3.connect(store.name) as connection:
        connection.execute("UPDATE finished_jobs SET record = '{}'")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"Run run-0 in .* is not a valid finished job"):
            retrain(store, None, parts[0])


def test_deleted_experiment_is_refused_before_learning(filled: TrialStore, tmp_path: Path) -> None:
    registry = Registry(f"sqlite:///{tmp_path}/m.db")
    registry.client.delete_experiment(registry.client.create_experiment("sizewright"))
    messages: list[str] = []
    with pytest.raises(RegistryError, match=r"'sizewright' at .* was deleted") as caught:
        retrain(filled, registry, None, progress=messages.append)
    assert "mlflow experiments restore -x" in str(caught.value)
    assert messages == []


def test_store_is_refused_as_mlflow_database(store: TrialStore) -> None:
    tables = sqlite3.connect(store.name).execute("SELECT count(*) FROM sqlite_master").fetchone()
    with pytest.raises(InputError, match="a database of its own"):
        Registry(f"sqlite:///{store.name}")
    assert sqlite3.connect(store.name).execute("SELECT count(*) FROM sqlite_master").fetchone() == tables


def test_reading_a_missing_registry_creates_no_database(tmp_path: Path) -> None:
    assert Registry(f"sqlite:///{tmp_path}/m.db").champion() is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="mkdir -p"):
        Registry(f"sqlite:///{tmp_path}/no/m.db")


@pytest.mark.long
def test_slow_own_job_gets_a_champion_that_predicts_it(
    first: Retraining, filled: TrialStore, parts: tuple[Bank, Bank], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own trials are among those of the gate, and affect no other job."""
    registry = Registry(f"sqlite:///{tmp_path}/m.db")
    retrain(filled, registry, None)
    prior_before = registry.load(registry.version("champion"))
    store = TrialStore(tmp_path / "s.db")
    for job in (OWN_JOB, *(b.job for part in parts for b in part.jobs.values())):
        store.history.add_job(job)
    trials = filled.trials()
    curve = prior_before.curve(OWN_JOB)
    slow = [
        t.model_copy(update={"job_hash": OWN_JOB.hash, "series": f"own-{i % 5}"}) for i, t in enumerate(trials[:60])
    ]
    slow = [
        t.model_copy(update={"batch_size": 1024, "table_scale": 1.0, "worker_cpu_used": None, "ps_cpu_used": None})
        for t in slow
    ]
    for trial, rate in zip(slow, 0.4 * np.exp(curve.log_rates(slow)), strict=True):
        store.add(trial.model_copy(update={"throughput": float(rate)}))
    for trial in trials:
        store.add(trial)

    # The registry vanishes before the promotion: the next run promotes the learned prior.
    def fail(*_: object) -> None:
        raise RegistryError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(registry, "promote", fail)
        with pytest.raises(RegistryError, match="gone"):
            retrain(store, registry, None)
    assert registry.version("champion").number == 1
    result = retrain(store, registry, None)
    assert result.promoted, result.reason
    assert [version.number for version in registry.versions()] == [2, 1]
    curve_after = registry.load(registry.version("champion")).curve(OWN_JOB)
    right = 0.4 * np.exp(curve.log_rates(slow))
    assert np.median(np.abs(np.exp(curve_after.log_rates(slow)) / right - 1)) < 0.1


def test_unknown_versions_are_refused(first: Retraining, registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no version '99' .* Known: "):
        registry.version("99")
    empty = Registry(f"sqlite:///{tmp_path}/m.db")
    assert empty.versions() == []
    assert empty.champion() is None
    with pytest.raises(InputError, match="sizewright retrain"):
        empty.version("1")
    with pytest.raises(InputError, match="no champion yet"):
        empty.rollback()


def test_unreachable_server_is_an_error() -> None:
    with pytest.raises(RegistryError, match="cannot be used"):
        Registry("http://127.0.0.1:9").versions()
    with pytest.raises(RegistryError, match="cannot be used"):
        Registry("nonsense://x").versions()
    with pytest.raises(RegistryError, match=r"cannot be used: .*refused"):
        Registry("postgresql+psycopg://127.0.0.1:9/mlflow").versions()
