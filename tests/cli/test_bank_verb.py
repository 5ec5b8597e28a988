from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sizewright.datasets.trial_bank.files import SHIPPED, Bank, save_bank
from sizewright.models.prior.fit import SHIPPED as SHIPPED_PRIOR


@pytest.fixture
def folder(made_bank: Bank, tmp_path: Path) -> Path:
    about = {
        "host": {"cores": 2, "versions": {"ray": "2"}}, "how": {"cores": "quota"}, "failed": 0,
        "discarded": [{"reason": "Other work ran.", "trials": 3}],
        "measured_from": "2026-01-01T00:00", "measured_to": "2026-01-02T00:00",
    }  # fmt: skip
    (tmp_path / "bank").mkdir()
    save_bank(tmp_path / "bank", made_bank.trials, list(made_bank.jobs.values()), about)
    return tmp_path / "bank"


def test_bank_show_describes_the_shipped_bank(call):
    result = call("bank", "show")
    assert result.code == 0, result.err
    assert "xdeepfm" in result.out
    assert "measured again in another session" in result.out
    summary = json.loads(call("bank", "show", "-o", "json").out)
    assert summary["trials"] >= 600
    assert summary["repeat_noise"]["pairs"] >= 60


def test_prior_learned_from_a_bank_is_used_by_recommend(call, folder, tmp_path, example, made_bank):
    file = tmp_path / "prior.json"
    result = call("bank", "learn", file, "--bank", folder, "--leave-out", "rm1")
    assert result.code == 0, result.err
    assert "396 trials of 33 jobs" in result.out
    data = json.loads(call("bank", "learn", file, "--bank", folder, "--leave-out", "rm1", "-o", "json").out)
    assert (data["trials"], data["jobs"]) == (396, 33)
    answer = call("recommend", example, "--store", tmp_path / "none.db", "--prior", file, "-o", "json")
    assert answer.code == 0, answer.err
    recommendation = json.loads(answer.out)
    assert recommendation["evidence"]["trials"] == 0
    assert recommendation["target"]["worker"]


def test_recommend_with_shipped_prior_needs_no_trial(call, tmp_path, example):
    result = call("recommend", example, "--store", tmp_path / "none.db", "--prior", "shipped")
    assert result.code == 0, result.err
    assert "no trial of this job" in result.out
    assert "Predicted from" in result.out
    without_prior = call("recommend", example, "--store", tmp_path / "none.db")
    assert without_prior.code == 1
    assert "no trials at" in without_prior.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["show", "--bank", "nowhere"], "There is no bank at"),
        (["learn", "prior.json", "--leave-out", "alexnet"], "no base shape 'alexnet'"),
        (["learn", "/proc/nowhere/prior.json"], "Cannot write the prior"),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(call, args, message):
    result = call("bank", *args)
    assert result.code == 1
    assert message in result.err
    assert "Traceback" not in result.err


def test_damaged_bank_or_prior_is_refused_in_one_sentence(call, tmp_path, example):
    shutil.copytree(SHIPPED, tmp_path / "bank")
    (tmp_path / "bank" / "trials.parquet").write_bytes(b"PAR1")
    result = call("bank", "learn", tmp_path / "p.json", "--bank", tmp_path / "bank")
    assert result.code == 1
    assert "is damaged" in result.err
    (tmp_path / "prior.json").write_text(SHIPPED_PRIOR.read_text()[:2000])
    result = call("recommend", example, "--prior", tmp_path / "prior.json", "--store", tmp_path / "none.db")
    assert result.code == 1
    assert "Cannot read the prior" in result.err


def test_bank_measure_refuses_to_overwrite_a_bank(call, tmp_path):
    (tmp_path / "host.json").write_text("{}")
    result = call("bank", "measure", tmp_path)
    assert result.code == 1
    assert "--resume" in result.err
