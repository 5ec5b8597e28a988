from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sizewright.datasets.trial_bank.files import Bank, load_bank, save_bank
from sizewright.datasets.trial_bank.noise import median_speed_factors, repeat_noise
from sizewright.datasets.trial_bank.shapes import BASES, HELD_OUT, bank_jobs
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError


def test_bank_jobs_vary_in_every_relevant_key() -> None:
    jobs = bank_jobs()
    assert len({b.job.hash for b in jobs}) == len({b.job.name for b in jobs}) == len(jobs) >= 50
    assert len({b.base for b in jobs}) == len(BASES) >= 15
    assert {b.job.model.family for b in jobs} == {"dlrm", "wide_deep", "dcn", "xdeepfm"}
    for feature in (
        {b.job.training.batch_size for b in jobs},
        {b.table_scale for b in jobs},
        {b.job.data.zipf for b in jobs},
    ):
        assert len(feature) == 3
    assert {b.job.training.sync for b in jobs} == {"async", "sync"}
    assert len(HELD_OUT) * 5 >= len(BASES)
    assert set(HELD_OUT) <= {base.name for base in BASES}


def test_variations_of_the_bank_jobs_are_not_correlated() -> None:
    jobs = bank_jobs()
    pairs = Counter((b.job.training.batch_size, b.table_scale) for b in jobs)
    modes = Counter((b.job.training.batch_size, b.job.training.sync) for b in jobs)
    assert len(pairs) == 9
    assert len(modes) == 6


@pytest.fixture
def saved(made_bank: Bank, tmp_path: Path) -> Path:
    save_bank(tmp_path, made_bank.trials, list(made_bank.jobs.values()), made_bank.card)
    return tmp_path


def test_a_bank_is_the_same_after_it_was_written(made_bank: Bank, saved: Path) -> None:
    reloaded = load_bank(saved)
    assert reloaded.trials == made_bank.trials
    assert reloaded.jobs == made_bank.jobs
    assert reloaded.card["trials"] == len(made_bank.trials)


def test_a_damaged_table_is_refused(saved: Path) -> None:
    path = saved / "trials.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreError, match="is damaged"):
        load_bank(saved)
    path.unlink()
    with pytest.raises(StoreError, match="a card but no"):
        load_bank(saved)


def changed(card: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {name: value for name, value in {**card, **more}.items() if value is not ...}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"schema_version": 0}, "trials of version 0"),
        ({"schema_version": ...}, "trials of version None"),
        ({"jobs": []}, "is invalid: jobs "),
        ({"sha256": ...}, "is invalid: sha256 "),
        ({"host": ...}, "is invalid: host "),
        ({"discarded": 3}, "is invalid: discarded "),
        ({"trials": 3}, "another number of trials"),
        ({"jobs": {}}, "jobs it does not describe"),
    ],
)
def test_card_that_contradicts_its_trials_is_refused(saved: Path, more: dict[str, Any], message: str) -> None:
    path = saved / "card.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), **more)))
    with pytest.raises(StoreError, match=message):
        load_bank(saved)


@pytest.mark.parametrize(
    "card_job",
    [
        {"base": "rm1"},
        {"base": "rm1", "table_scale": 1.0, "job": {"name": "x"}},
        {"base": "rm1", "table_scale": 0.0, "job": {}},
        {"base": None, "table_scale": 1.0, "job": {}},
        3,
    ],
)
def test_invalid_job_of_a_card_is_refused(saved: Path, card_job: Any) -> None:
    path = saved / "card.json"
    card = json.loads(path.read_text())
    card["jobs"][next(iter(card["jobs"]))] = card_job
    path.write_text(json.dumps(card))
    with pytest.raises(StoreError, match=r"is invalid: jobs|describes another job"):
        load_bank(saved)


def test_folder_without_a_valid_card_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"card\.json is missing"):
        load_bank(tmp_path)
    (tmp_path / "card.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        load_bank(tmp_path)


def trial(series: str, throughput: float, speed: float | None, job: str = "a", **more: Any) -> Trial:
    about = {"workers": 1, "ps": 1, "throughput": throughput, "job_hash": job, "series": series, "host_speed": speed}
    return Trial.model_validate(about | more)


def test_noise_is_estimated_from_repeats_in_other_sessions() -> None:
    pairs = [(100.0, 110.0), (100.0, 90.0)] * 8
    trials = [trial(f"s{i}-{k}", rate, None, f"job-{i}") for i, pair in enumerate(pairs) for k, rate in enumerate(pair)]
    noise = repeat_noise(trials)
    assert noise.pairs == 16
    assert noise.raw == pytest.approx(0.0711, rel=0.01)  # of one trial: 0.1 divided by the square root of two
    assert noise.exponent == 0
    assert noise.at_usual_speed == noise.raw
    poisoned = [*trials, trial("s-1", 100.0, None, "job-x"), trial("s-2", 100_000.0, None, "job-x")]
    assert repeat_noise(poisoned) == noise
    assert repeat_noise(trials[:1]).pairs == 0
    repeats = [trial("s", 100, None), trial("s", 120, None)]
    assert repeat_noise(repeats).pairs == 0


def test_host_speed_is_corrected_where_it_explains_repeats() -> None:
    trials = []
    for i in range(12):
        slow = 0.8 if i % 2 else 0.9
        trials += [trial(f"first-{i}", 100, 1.0, f"job-{i}"), trial(f"again-{i}", 100 * slow**1.2, slow, f"job-{i}")]
    noise = repeat_noise(trials)
    assert noise.exponent == pytest.approx(1.2)
    assert noise.at_usual_speed == pytest.approx(0, abs=1e-9)
    factors = median_speed_factors(trials, noise.exponent)
    even = [t.throughput * factor for t, factor in zip(trials, factors, strict=True) if t.throughput]
    assert max(even) == pytest.approx(min(even))


def test_host_speed_unrelated_to_repeats_is_ignored() -> None:
    rates = [100, 120, 90, 130, 80, 110, 95, 105, 125, 85, 100, 115]
    trials = []
    for i, rate in enumerate(rates):
        trials += [trial(f"f{i}", 100, 1.0, f"j{i}"), trial(f"a{i}", rate, 0.9 + 0.02 * (i % 3), f"j{i}")]
    assert repeat_noise(trials).exponent == 0
