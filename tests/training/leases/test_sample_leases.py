from __future__ import annotations

import heapq
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.leases.sample_leases import Lease, SampleLeases
from sizewright.training.leases.sample_ranges import SampleRanges

OpenLeases = dict[int, dict[int, Lease]]  # by worker and lease id


class SimulatedWorkers:
    """Simulated workers with their leases, and the number of times that each sample was trained and reported."""

    def __init__(self, sample_leases: SampleLeases) -> None:
        self.sample_leases, self.now, self.counts = sample_leases, 0.0, Counter[int]()
        self.open_leases: OpenLeases = {}

    def lease(self, worker: int) -> None:
        lease = self.sample_leases.lease(worker, self.now)
        if lease is not None:
            assert lease.start < lease.end
            self.open_leases.setdefault(worker, {})[lease.id] = lease
            assert len(self.open_leases[worker]) <= 2

    def train(self, worker: int, share: float) -> None:
        self.now += 0.1
        for id, lease in list(self.open_leases.get(worker, {}).items())[:1]:
            until = lease.start + max(1, round(share * (lease.end - lease.start)))
            self.counts.update(range(lease.start, until))
            self.sample_leases.report(worker, id, until, self.now)
            self.open_leases[worker][id] = lease._replace(start=until)
            if until == lease.end:
                del self.open_leases[worker][id]

    def leave(self, worker: int, died: bool) -> None:
        open_leases = self.open_leases.pop(worker, {})
        remaining = sum(lease.end - lease.start for lease in open_leases.values())
        if died:
            applied = SampleRanges((k, k + 1) for k in self.counts)
            assert self.sample_leases.release(worker, [applied, applied]) == remaining
        else:
            self.sample_leases.hand_back(worker)
        before = self.sample_leases.trained_ranges()
        for lease in open_leases.values():  # too late
            self.sample_leases.report(worker, lease.id, lease.end, self.now)
        assert self.sample_leases.trained_ranges() == before

    def check(self, total: int) -> None:
        assert self.sample_leases.trained == len(self.counts) == sum(self.counts.values())
        assert [k for start, end in self.sample_leases.trained_ranges() for k in range(start, end)] == sorted(
            self.counts
        )
        assert self.sample_leases.remaining() == total - len(self.counts)
        open_samples = {
            worker: sum(lease.end - lease.start for lease in leases.values())
            for worker, leases in self.open_leases.items()
            if leases
        }
        assert self.sample_leases.leased() == open_samples
        assert self.sample_leases.finished == (len(self.counts) == total)


STEPS = st.lists(
    st.tuples(st.sampled_from(["lease", "lease", "train", "train", "leave", "die", "size"]), st.integers(0, 4),
              st.floats(0, 1)),
    max_size=80,
)  # fmt: skip
RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda x: (x[0], x[0] + x[1])), max_size=4)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, total=st.integers(340, 600), batch_size=st.integers(1, 50), trained=RANGES)
def test_every_sample_is_trained_once(
    steps: list[tuple[str, int, float]], total: int, batch_size: int, trained: list[tuple[int, int]]
) -> None:
    floor = SimulatedWorkers(SampleLeases(total, batch_size=batch_size, trained=trained))
    floor.counts.update({k for start, end in trained for k in range(start, end)})
    for action, worker, share in steps:
        if action == "lease":
            floor.lease(worker)
        elif action == "train":
            floor.train(worker, share)
        elif action == "size":
            floor.sample_leases.set_batch_size(1 + int(49 * share))
        else:
            floor.leave(worker, action == "die")
        floor.check(total)
    for _ in range(2000):
        if floor.sample_leases.finished:
            break
        for worker in range(5):
            floor.lease(worker)
            floor.train(worker, 1.0)
    floor.check(total)
    assert floor.sample_leases.finished
    assert list(floor.sample_leases.trained_ranges()) == [(0, total)]
    assert floor.sample_leases.lease(0, floor.now) is None


def race(
    sample_leases: SampleLeases, rates: dict[int, float], until_s: float = float("inf")
) -> dict[int, list[tuple[float, int]]]:
    """Workers that train at given samples/s, two leases at a time: when each lease ended, and its size, by worker."""
    done: dict[int, list[tuple[float, int]]] = {worker: [] for worker in rates}
    queue = [(0.0, worker) for worker in rates]
    heapq.heapify(queue)
    leases: dict[int, list[Lease]] = {worker: [] for worker in rates}
    while queue:
        now, worker = heapq.heappop(queue)
        if now > until_s:
            break
        if leases[worker]:
            lease = leases[worker].pop(0)
            sample_leases.report(worker, lease.id, lease.end, now)
            done[worker].append((now, lease.end - lease.start))
        while (new := sample_leases.lease(worker, now)) is not None:
            leases[worker].append(new)
        if leases[worker]:
            heapq.heappush(queue, (now + (leases[worker][0].end - leases[worker][0].start) / rates[worker], worker))
    return done


def test_lease_duration_meets_its_target_for_fast_and_slow_workers() -> None:
    rates = {0: 20_000.0, 1: 5000.0, 2: 300.0, 3: 1e6}
    done = race(SampleLeases(None, batch_size=512), rates, until_s=60)
    sizes = {worker: leases[-1][1] for worker, leases in done.items()}
    assert sizes[0] == sizes[3] == 64 * 512  # the most
    assert sizes[1] == pytest.approx(10_000, abs=512)
    assert sizes[2] == 512
    assert [size for _, size in done[1][:2]] == [512, 512]


def test_slower_worker_gets_smaller_leases() -> None:
    sample_leases, now, sizes = SampleLeases(None, batch_size=10), 0.0, []
    for rate in [300.0] * 20 + [50.0] * 20:
        lease = sample_leases.lease(7, now)
        assert lease is not None
        now += (lease.end - lease.start) / rate
        sample_leases.report(7, lease.id, lease.end, now)
        sizes.append(lease.end - lease.start)
    assert sizes[19] == 600
    assert sizes[-1] == 100


def test_rates_do_not_depend_on_how_often_a_worker_reports() -> None:
    def size(reports: int) -> int:
        sample_leases, now = SampleLeases(None, batch_size=100), 0.0
        for _ in range(10):
            lease = sample_leases.lease(0, now)
            assert lease is not None
            step = (lease.end - lease.start) / reports
            for k in range(1, reports + 1):
                now += step / 1000.0
                sample_leases.report(0, lease.id, round(lease.start + k * step), now)
        return lease.end - lease.start

    assert size(1) == size(2) == size(50) == 2000


def test_all_workers_end_together() -> None:
    rates = {0: 20_000.0, 1: 10_000.0, 2: 5000.0, 3: 2500.0}
    total = 1_000_000
    done = race(SampleLeases(total, batch_size=512), rates)
    ends = [leases[-1][0] for leases in done.values()]
    assert sum(size for leases in done.values() for _, size in leases) == total
    assert max(ends) < 1.03 * total / sum(rates.values())
    assert max(ends) - min(ends) < 3 * 512 / min(rates.values())


def test_lease_sizes_shrink_near_the_end() -> None:
    sample_leases = SampleLeases(1000, batch_size=10, target_s=100, trained=[(100, 300)])
    first = sample_leases.lease(0, 0.0)
    assert first == Lease(0, 0, 10)
    sample_leases.report(0, first.id, 10, 1.0)  # 10 samples/s: 1000 in 100 s
    assert sample_leases.lease(0, 1.0) == Lease(1, 10, 100)  # 790 / 2 would be more than the first range has
    assert sample_leases.lease(0, 1.0) == Lease(2, 300, 300 + 350)
    assert sample_leases.lease(0, 1.0) is None
    sample_leases.hand_back(0)
    assert sample_leases.lease(1, 1.0) == Lease(3, 10, 20)
    assert sample_leases.lease(0, 1.0) == Lease(4, 20, 100)
    assert sample_leases.lease(0, 1.0) == Lease(5, 300, 300 + 180)  # 700 / (2 · 2), in whole batches


def test_returned_samples_are_leased_first() -> None:
    sample_leases = SampleLeases(None, batch_size=100)
    leases = [sample_leases.lease(worker, 0.0) for worker in (0, 1, 2)]
    assert leases == [Lease(0, 0, 100), Lease(1, 100, 200), Lease(2, 200, 300)]
    sample_leases.report(1, 1, 130, 1.0)
    assert sample_leases.release(1, []) == 70
    assert sample_leases.release(1, []) == 0
    assert sample_leases.lease(3, 1.0) == Lease(3, 130, 200)
    assert sample_leases.lease(3, 1.0) == Lease(4, 300, 400)
    assert list(sample_leases.trained_ranges()) == [(100, 130)]
    assert sample_leases.remaining() is None
    assert not sample_leases.finished


def test_endless_run_uses_constant_memory() -> None:
    sample_leases, now = SampleLeases(None, batch_size=8, max_batches=1), 0.0
    for round in range(20_000):
        now += 0.01
        for worker in range(3):
            lease = sample_leases.lease(worker, now)
            assert lease is not None
            if round % 7 == worker:
                sample_leases.report(worker, lease.id, lease.start + 3, now)
                sample_leases.release(worker, [])
            else:
                sample_leases.report(worker, lease.id, lease.end, now)
        assert len(list(sample_leases.trained_ranges())) <= 4
    assert sample_leases.trained > 300_000
    assert len(sample_leases._free) <= 4
    assert len(sample_leases._paces) <= 3
    assert not sample_leases._open_leases


def test_resumed_run_skips_trained_samples() -> None:
    first = SampleLeases(10_000, batch_size=64)
    leases = [first.lease(worker, 0.0) for worker in range(4)]
    for lease in (leases[0], leases[2]):
        assert lease is not None
        first.report(lease.id, lease.id, lease.end, 1.0)
    second = SampleLeases(10_000, batch_size=64, trained=list(first.trained_ranges()))
    assert list(second.trained_ranges()) == list(first.trained_ranges()) == [(0, 64), (128, 192)]
    assert second.trained == 128
    assert second.lease(9, 0.0) == Lease(0, 64, 128)
    assert SampleLeases(50, batch_size=64, trained=[(20, 50), (0, 20)]).finished
    assert SampleLeases(0, batch_size=64).finished


def test_stale_or_invalid_reports_are_ignored() -> None:
    sample_leases = SampleLeases(None, batch_size=100)
    sample_leases.lease(0, 0.0)
    sample_leases.report(0, 0, 60, 1.0)
    for worker, lease, until in ((0, 0, 40), (0, 0, 60), (1, 0, 100), (0, 5, 100)):
        sample_leases.report(worker, lease, until, 2.0)
        assert list(sample_leases.trained_ranges()) == [(0, 60)]
    with pytest.raises(ValueError, match="which ends at 100"):
        sample_leases.report(0, 0, 101, 2.0)


def test_clock_that_does_not_advance_is_tolerated() -> None:
    sample_leases = SampleLeases(None, batch_size=100)
    sample_leases.lease(0, 5.0)
    sample_leases.report(0, 0, 50, 5.0)
    sample_leases.report(0, 0, 100, 4.0)
    assert sample_leases.lease(0, 5.0) == Lease(1, 100, 200)


@pytest.mark.parametrize(
    "wrong",
    [
        {"total": -1},
        {"batch_size": 0},
        {"target_s": 0.0},
        {"target_s": float("nan")},
        {"max_batches": 0},
        {"trained": [(5, 11)]},
        {"trained": [(-1, 3)]},
        {"trained": [(5, 4)]},
    ],
)
def test_invalid_arguments_are_refused(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"total": 10, "batch_size": 2} | wrong
    with pytest.raises(ValueError, match=r"must (be|lie)"):
        SampleLeases(arguments.pop("total"), **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch"):
        SampleLeases(10, batch_size=2).set_batch_size(0)


def test_partly_applied_samples_are_leased_first_and_separately() -> None:
    """Neither a lease nor a batch of it has samples of two such pieces, however large batches have become."""
    sample_leases = SampleLeases(1000, batch_size=64)
    for worker in (1, 2):
        sample_leases.lease(worker, 0.0)
    first = [SampleRanges([(0, 64)]), SampleRanges()]
    second = [SampleRanges([(0, 64)]), SampleRanges([(64, 128)])]
    assert sample_leases.release(1, first) == 64
    assert sample_leases.release(2, second) == 64
    sample_leases.set_batch_size(100)
    sample_leases.skip(128, 130)
    leases = [sample_leases.lease(worker, 1.0) for worker in (3, 4, 5)]
    assert leases == [Lease(2, 0, 64, True), Lease(3, 64, 128, True), Lease(4, 128, 228)]
    assert list(sample_leases.trained_ranges()) == []
    for worker, lease in zip((3, 4, 5), leases, strict=True):
        assert lease is not None
        sample_leases.report(worker, lease.id, lease.end, 2.0)
    assert list(sample_leases.trained_valid_ranges()) == [(0, 128), (130, 228)]
    sample_leases.hand_back(3)
    assert sample_leases.release(6, []) == 0
