from __future__ import annotations

import pytest

from sizewright.recommender.diagnose import diagnose
from sizewright.recommender.slow_replicas import Slow
from sizewright.recommender.windows import Doing, Window

WORKER = {"cpu_s": 0.5, "steps": 10, "data_s": 0.05, "pull_s": 0.05, "compute_s": 0.4, "push_s": 0.02}
PS = {"cpu_s": 0.3, "exchanges": 40, "busy_s": 0.3, "lookups": 1000}


def doing(name: str, **told: float) -> Doing:
    role = name.partition("-")[0]
    usual = dict.fromkeys(Doing._fields, 0) | {"name": name, "role": role, "seconds": 1.0}
    return Doing(**(usual | (WORKER if role == "worker" else PS) | told))


@pytest.mark.parametrize(
    ("name", "told", "cause", "remedy"),
    [
        ("worker-0", {"steps": 2, "throttled_s": 0.7, "compute_s": 0.9, "cpu_s": 0.1}, "cpu_cut", "migrate"),
        ("worker-0", {"steps": 2, "throttled_s": 0.7, "data_s": 0.9, "cpu_s": 0.1}, "cpu_cut", "migrate"),
        ("worker-0", {"steps": 2, "compute_s": 0.9, "cpu_s": 0.1}, "busy_host", "migrate"),
        ("worker-0", {"steps": 2, "data_s": 0.8, "compute_s": 0.08, "cpu_s": 0.1}, "starved_input", "wait"),
        ("worker-0", {"steps": 4, "pull_s": 0.6, "compute_s": 0.16, "cpu_s": 0.75}, "slow_network", "migrate"),
        ("worker-0", {"steps": 4, "compute_s": 0.9, "cpu_s": 1.0}, "too_few_samples", "wait"),
        ("worker-0", {"steps": 60, "compute_s": 13.5, "cpu_s": 15.0}, "unknown", "wait"),
        ("ps-0", {"busy_s": 0.9, "lookups": 3000, "cpu_s": 0.9}, "skewed_keys", "rebalance"),
        ("ps-0", {"busy_s": 0.9, "throttled_s": 0.6, "cpu_s": 0.3}, "cpu_cut", "migrate"),
        ("ps-0", {"busy_s": 0.9, "cpu_s": 0.3}, "busy_host", "migrate"),
        ("ps-0", {"busy_s": 0.9, "cpu_s": 0.9}, "too_few_samples", "wait"),
        ("ps-0", {"busy_s": 1.8, "cpu_s": 1.8, "exchanges": 80}, "unknown", "wait"),
    ],
)
def test_the_cause_is_named_with_the_remedy_that_fits_it(
    name: str, told: dict[str, float], cause: str, remedy: str
) -> None:
    role = name.partition("-")[0]
    replicas = (doing(name, **told), doing(f"{role}-1"), doing(f"{role}-2"))
    slow = Slow(name, "worker" if role == "worker" else "ps", 4.0)
    found = diagnose(slow, Window(1.0, 1.0, 100, 100, 1000, replicas))
    assert (found.cause, found.remedy) == (cause, remedy)
    assert found.reason.startswith(f"{name} takes 4.0 times as long")
