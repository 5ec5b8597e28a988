from __future__ import annotations

import numpy as np

from sizewright.formatting import MIB
from sizewright.models.memory.embedding import peak_of
from sizewright.recommender.control.memory_watch import MemoryWatch
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Job, Model, Tables

JOB = Job(model=Model(tables=Tables(count=4, rows=500_000, dim=16)))
BASE = 200.0 * MIB


def rows_after(samples: float) -> float:
    """Distinct ids of four tables with a Zipf law over a million ids each."""
    shares = np.arange(1.0, 500_001) ** -1.05
    return float(4 * -np.expm1(-samples * shares / shares.sum()).sum())


def peak(rows: float, ps: int) -> float:
    return float(peak_of(JOB, [np.array([rows])], ps, BASE, 0.0).draws[0])


def watch(until: int, ps: int = 2, limit: float = 0.0, share: float = 0.5) -> MemoryWatch:
    """Return a watch after twelve observations of growing tables; the fullest PS holds `share` of the rows."""
    watched = MemoryWatch(JOB)
    for samples in np.geomspace(until / 20, until, 12):
        rows = rows_after(samples)
        shares = [share, *[(1 - share) / (ps - 1)] * (ps - 1)]
        replicas = tuple(server(f"ps-{i}", int(rows * s), peak(rows * s * ps, ps), limit) for i, s in enumerate(shares))
        watched.add(Window(1.0, 1.0, 100, int(samples), 10**7, replicas), int(limit))
    watched.refit()
    return watched


def server(name: str, rows: int, peak_bytes: float, limit: float) -> ReplicaWindow:
    measured = int(min(peak_bytes, limit) if limit else peak_bytes)
    defaults = dict.fromkeys(ReplicaWindow._fields, 0) | {"name": name, "role": "ps", "seconds": 1.0}
    return ReplicaWindow(**(defaults | {"rows": rows, "memory_peak_bytes": measured}))


def test_peak_at_the_end_is_forecast_early() -> None:
    watched = watch(200_000)
    assert watched.grows
    forecast = watched.forecast(2_000_000, 2)
    assert forecast is not None
    truth = peak(rows_after(2_000_000), 2)
    low, high = forecast.interval()
    assert low < truth < high
    needed = watched.needed_bytes(2_000_000, 2)
    assert needed is not None
    assert truth < needed < 2 * truth


def test_forecast_counts_all_ids_of_a_sample() -> None:
    """Two tables of a million rows with 20 uniform ids a sample each: far more rows than samples appear."""
    million, ids = 1_000_000, 20
    job = Job(model=Model(tables=Tables(count=2, rows=million, dim=16, pooling=ids)), data={"zipf": 0})

    def rows_at(samples: float) -> float:
        return float(2 * million * -np.expm1(samples * ids * np.log1p(-1 / million)))

    watched = MemoryWatch(job)
    for samples in np.geomspace(1_000, 20_000, 12):
        rows = rows_at(samples)
        of_rows = float(peak_of(job, [np.array([rows])], 1, BASE, 0.0).draws[0])
        watched.add(Window(1.0, 1.0, 100, int(samples), 10**7, (server("ps-0", int(rows), of_rows, 0.0),)), 0)
    watched.refit()
    forecast = watched.forecast(60_000, 1)
    assert forecast is not None
    low, high = forecast.interval()
    assert low * 0.98 < float(peak_of(job, [np.array([rows_at(60_000)])], 1, BASE, 0.0).draws[0]) < high * 1.02


def test_oom_probability_is_clear_far_from_the_limit() -> None:
    watched = watch(200_000)
    soon, end = watched.forecast(210_000, 2), watched.forecast(4_000_000, 2)
    assert soon is not None
    assert end is not None
    now = peak(rows_after(200_000), 2)
    assert soon.oom_probability(2.5 * now) < 0.01
    assert end.oom_probability(1.02 * now) > 0.95


def test_more_ps_need_less_memory_each() -> None:
    watched = watch(200_000)
    two, four = (watched.needed_bytes(2_000_000, ps) for ps in (2, 4))
    assert two is not None
    assert four is not None
    assert four < two


def test_uneven_rows_need_more_memory() -> None:
    even, uneven = (watch(200_000, share=share).needed_bytes(2_000_000, 2) for share in (0.5, 0.7))
    assert even is not None
    assert uneven is not None
    assert uneven > 1.05 * even


def test_capped_peak_does_not_lower_the_forecast() -> None:
    """Else the smaller the limit, the less would be asked for after it had ended the PS."""
    free = watch(200_000).needed_bytes(2_000_000, 2)
    assert free is not None
    for share in (0.95, 0.8, 0.6):
        capped = watch(200_000, limit=share * peak(rows_after(200_000), 2)).needed_bytes(2_000_000, 2)
        assert capped is not None
        assert 0.99 * free <= capped <= 1.5 * free


def test_without_observations_there_is_no_forecast() -> None:
    watched = MemoryWatch(JOB)
    watched.refit()
    assert watched.forecast(1000, 2) is None
    assert watched.needed_bytes(1000, 2) is None
    assert not watched.grows
