"""The shipped bank and prior: coverage, size, and that the prior is fitted to the bank."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import SHIPPED, Bank, load_bank
from sizewright.datasets.trial_bank.noise import repeat_noise
from sizewright.datasets.trial_bank.shapes import bank_jobs
from sizewright.models.prior import LearnedPrior
from sizewright.models.prior.fit import SHIPPED as SHIPPED_PRIOR
from sizewright.spec import Job


@pytest.fixture(scope="module")
def bank() -> Bank:
    return load_bank()


def test_shipped_bank_covers_the_bank_jobs(bank: Bank) -> None:
    assert len(bank.trials) >= 600
    samples = {each.job.samples for each in bank.jobs.values()}  # stated in its files, which are older than the default
    assert samples == {45_840_617}
    promised = {b.job.hash: b._replace(job=b.job.with_samples(*samples)) for b in bank_jobs()}
    assert bank.jobs == promised
    per_job = {key: {(t.workers, t.ps) for t in bank.trials if t.job_hash == key and t.usable} for key in bank.jobs}
    assert all(len(places) >= 12 for places in per_job.values())
    assert repeat_noise(bank.trials).pairs >= 60


def test_every_trial_was_limited_to_its_cores_and_has_phases(bank: Bank) -> None:
    good = [t for t in bank.trials if t.usable]
    assert {t.limited_by for t in good} == {"cgroup"}
    for name in ("phase_compute_s", "ps_busy_s", "worker_cpu_used", "ps_cpu_used", "host_speed", "throughput_se"):
        assert all(getattr(t, name) is not None for t in good), name
    assert all((t.worker_cpu_used or 9) <= 1.05 * (t.worker_cpu or 0) for t in good)
    assert not any(t.host for t in bank.trials)


def test_card_describes_host_versions_limits_and_discarded_trials(bank: Bank) -> None:
    card = bank.card
    assert card["host"]["cores"] >= 1
    assert set(card["host"]["versions"]) == {"numpy", "torch", "ray"}
    assert set(card["how"]) >= {"cores", "memory", "timing", "passes"}
    assert all(discarded["reason"] and discarded["trials"] for discarded in card["discarded"])
    assert card["measured_from"] < card["measured_to"]


def test_shipped_prior_equals_a_prior_fitted_to_the_shipped_bank(bank: Bank) -> None:
    shipped, learned = LearnedPrior.load(), LearnedPrior.fit(bank.trials, bank.jobs)
    assert shipped.trials == learned.trials
    job = Job()
    axes = {"workers": [1, 2, 4], "ps": [1, 2, 2], "worker_cpu": [0.2, 0.5, 0.8], "ps_cpu": [0.1, 0.3, 0.4]}
    shipped_curve, learned_curve = (prior.curve(job) for prior in (shipped, learned))
    assert np.abs(shipped_curve.log_rates(axes) - learned_curve.log_rates(axes)).max() < 0.02
    assert shipped_curve.sd(axes) == pytest.approx(learned_curve.sd(axes), rel=0.1)


def test_shipped_bank_and_prior_are_small() -> None:
    assert SHIPPED_PRIOR.stat().st_size < 5e6
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 5e6
