from __future__ import annotations

import numpy as np

from sizewright.models.embedding_memory import peak_of
from sizewright.recommender.memory_watch import MemoryWatch
from sizewright.recommender.windows import Doing, Window
from sizewright.spec import Job, Model, Tables
from sizewright.spec.units import MIB

JOB = Job(model=Model(tables=Tables(count=4, rows=500_000, dim=16)))
BASE = 200.0 * MIB


def rows_after(samples: float) -> float:
    """Distinct ids of four tables with a Zipf law over a million ids each."""
    shares = np.arange(1.0, 500_001) ** -1.05
    return float(4 * -np.expm1(-samples * shares / shares.sum()).sum())


def peak(rows: float, ps: int) -> float:
    return float(peak_of(JOB, np.array([rows]), ps, BASE, 0.0).draws[0])


def watch(until: int, ps: int = 2, limit: float = 0.0, share: float = 0.5) -> MemoryWatch:
    """One that has looked twelve times at a job whose tables grow; the fullest PS holds such a share."""
    told = MemoryWatch(JOB)
    for samples in np.geomspace(until / 20, until, 12):
        rows = rows_after(samples)
        shares = [share, *[(1 - share) / (ps - 1)] * (ps - 1)]
        replicas = tuple(server(f"ps-{i}", int(rows * s), peak(rows * s * ps, ps), limit) for i, s in enumerate(shares))
        told.add(Window(1.0, 1.0, 100, int(samples), 10**7, replicas), int(limit))
    told.refit()
    return told


def server(name: str, rows: int, peak_bytes: float, limit: float) -> Doing:
    measured = int(min(peak_bytes, limit) if limit else peak_bytes)
    usual = dict.fromkeys(Doing._fields, 0) | {"name": name, "role": "ps", "seconds": 1.0}
    return Doing(**(usual | {"rows": rows, "memory_peak_bytes": measured}))


def test_the_peak_at_the_end_is_told_from_the_beginning() -> None:
    told = watch(200_000)
    assert told.grows
    forecast = told.forecast(2_000_000, 2)
    assert forecast is not None
    truth = peak(rows_after(2_000_000), 2)
    low, high = forecast.interval()
    assert low < truth < high
    wanted = told.wanted_bytes(2_000_000, 2)
    assert wanted is not None
    assert truth < wanted < 2 * truth


def test_a_limit_is_sure_to_hold_or_to_break() -> None:
    told = watch(200_000)
    soon, end = told.forecast(210_000, 2), told.forecast(4_000_000, 2)
    assert soon is not None
    assert end is not None
    now = peak(rows_after(200_000), 2)
    assert soon.oom_probability(2.5 * now) < 0.01
    assert end.oom_probability(1.02 * now) > 0.95


def test_more_ps_hold_less_each() -> None:
    told = watch(200_000)
    two, four = (told.wanted_bytes(2_000_000, ps) for ps in (2, 4))
    assert two is not None
    assert four is not None
    assert four < two


def test_a_ps_that_holds_more_than_its_share_counts() -> None:
    even, uneven = (watch(200_000, share=share).wanted_bytes(2_000_000, 2) for share in (0.5, 0.7))
    assert even is not None
    assert uneven is not None
    assert uneven > 1.05 * even


def test_what_a_limit_cut_off_is_no_evidence() -> None:
    """Else the smaller the limit, the less would be asked for after it had ended the PS."""
    free = watch(200_000).wanted_bytes(2_000_000, 2)
    assert free is not None
    for share in (0.95, 0.8, 0.6):
        capped = watch(200_000, limit=share * peak(rows_after(200_000), 2)).wanted_bytes(2_000_000, 2)
        assert capped is not None
        assert 0.99 * free <= capped <= 1.5 * free


def test_before_it_has_looked_it_says_nothing() -> None:
    told = MemoryWatch(JOB)
    told.refit()
    assert told.forecast(1000, 2) is None
    assert told.wanted_bytes(1000, 2) is None
    assert not told.grows
