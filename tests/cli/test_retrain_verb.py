"""Retraining from the command line, against a separate MLflow database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.retraining.registry import FOLDER, TWIN, Registry


@pytest.fixture
def options(tmp_path: Path, made_bank: Bank, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the options that name a store with some base shapes, and a registry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with TrialStore(tmp_path / "s.db") as store:
        for key, job in made_bank.jobs.items():
            if job.base in ("rm1", "rm3", "din", "ncf", "wide-and-deep"):
                store.history.add_job(job.job)
                for trial in made_bank.trials:
                    if trial.job_hash == key:
                        store.add(trial)
    return ["--store", str(tmp_path / "s.db"), "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"]


def test_version_is_retrained_promoted_rolled_back_compared_and_used(call, options, tmp_path, example):
    first = call("retrain", *options, "--bank", "none", "-o", "json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["promoted"]
    unchanged = call("retrain", *options, "--bank", "none")
    assert "Nothing was registered." in unchanged.out
    with TrialStore(tmp_path / "s.db") as store:
        store.add(store.trials()[0].model_copy(update={"series": "another"}))
    second = call("retrain", *options, "--bank", "none", "--margin", "0.5")
    assert second.code == 0, second.err
    assert "Challenger: version 2" in second.out
    uri = options[2:]
    listed = json.loads(call("models", "list", *uri, "-o", "json").out)
    assert [(row["version"], row["aliases"]) for row in listed] == [(2, ["challenger"]), (1, ["champion"])]
    assert "champion" in call("models", "list", *uri).out
    details = call("models", "show", "challenger", *uri)
    assert "reason: " in details.out
    preview = json.loads(call("models", "promote", "2", *uri, "--dry-run", "-o", "json").out)
    assert preview == {"champion": 2, "before": 1, "dry_run": True}
    assert "version 2 is the champion now" in call("models", "promote", "2", *uri).out
    assert "version 1 would be the champion again" in call("models", "rollback", *uri, "--dry-run").out
    assert "version: 2" in call("models", "show", "champion", *uri).out
    path = _prior_of(1, tmp_path)
    text = path.read_text()
    path.write_text(text.replace("trials", "Trials"))
    refused = call("models", "rollback", *uri)
    assert refused.code == 1
    assert "was changed after it was registered" in refused.err
    path.write_text(text)
    assert "version 1 is the champion again" in call("models", "rollback", *uri).out
    repeated = call("retrain", *options, "--bank", "none")  # the latest version was champion until it was rolled back
    assert "Nothing new: version 2" in repeated.out
    compared = call("models", "compare", "1", "2", *uri)
    assert compared.code == 0, compared.err
    assert "dlrm" in compared.out
    store = ["--store", str(tmp_path / "none.db")]
    answer = call("recommend", example, *store, *uri, "-o", "json")
    recommendation = json.loads(answer.out)
    if recommendation["status"] == "ok":
        assert recommendation["evidence"]["prior"] == "sizewright-prior version 1"
    else:
        assert "unlike" in recommendation["reasons"][0]


def _prior_of(number, folder):
    """Return the file with the prior of a version."""
    registry = Registry(f"sqlite:///{folder}/mlflow.db")
    run = registry.client.get_run(registry.version(str(number)).run_id)
    return Path(run.info.artifact_uri.removeprefix("file://"), FOLDER, TWIN)


def test_invalid_arguments_are_refused_in_one_sentence_each(call, options, tmp_path):
    uri = options[2:]
    unreachable = ["--tracking-uri", "http://127.0.0.1:9"]
    for wrong in (
        ("retrain", "--store", tmp_path / "none.db", *uri),
        ("retrain", *options[:2], *unreachable, "--bank", "none"),
        ("retrain", *options, "--bank", tmp_path),
        ("retrain", *options[:2], "--tracking-uri", f"sqlite:///{options[1]}"),
        ("models", "list", *unreachable),
        ("models", "show", "7", *uri),
        ("models", "promote", "7", *uri),
        ("models", "rollback", *uri),
        ("models", "compare", "7", "8", *uri),
        ("models", "show", "champion", "--tracking-uri", "nonsense://x"),
        ("models", "show", "champion", "--tracking-uri", "sqlite://"),
        ("models", "show", "champion", "--tracking-uri", f"sqlite:///{tmp_path}"),
        ("retrain", "--store", "sqlite://", *uri),
        ("history", "prometheus", "http://[::1"),
        ("history", "prometheus", "http://127.0.0.1:9", "--since", "1e9d"),
    ):
        result = call(*wrong)
        assert result.code in (1, 4), wrong
        errors = [line for line in result.err.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1, result.err
        assert "Traceback" not in result.err


def test_if_drifted_option_without_drift_retrains_nothing(call, options):
    result = call("retrain", *options[:2], "--if-drifted")
    assert result.code == 0, result.err
    assert "No retraining." in result.out


def test_recommendation_without_registry_says_that_it_uses_the_shipped_prior(call, options, example, tmp_path):
    answer = call("recommend", example, "--store", tmp_path / "none.db", "--tracking-uri", "http://127.0.0.1:9")
    assert answer.code == 0, answer.err
    assert "cannot be used" in answer.out
    assert "the shipped prior is used" in " ".join(answer.out.split())
