from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from test_feed import Numbers
from training_parts import TOKEN, in_threads

from sizewright.training.leases.batch_source import LeasedBatches
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.transport.wire import Caller, Hello, connect

TOTAL = 1000


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    server = LeaseServer(SampleLeases(TOTAL, batch_size=10, most_batches=3), TOKEN)
    yield server
    server.close()


def feed_of(server: LeaseServer, worker: int) -> LeasedBatches:
    return LeasedBatches(connect(server.address, TOKEN, Hello(Caller.worker, worker)), Numbers(), 10)


def train(feed: LeasedBatches, batches: int | None = None) -> list[int]:
    """So many batches, or all there are; the samples that were trained."""
    trained: list[int] = []
    tag = 0
    while not feed.finished and (batches is None or tag < batches):
        portion = feed.next()
        if portion is not None:
            tag += 1
            feed.trained(portion, tag)
            trained += portion.batch.labels.astype(int).tolist()
    return trained


def wait_until_nothing_is_out(server: LeaseServer) -> None:
    for _ in range(2000):
        with server.lock:
            if not server.book.out():
                return
        threading.Event().wait(0.005)
    raise AssertionError("what a worker had was not given back")


def test_workers_train_every_sample_once_between_them(server: LeaseServer) -> None:
    parts: list[list[int]] = []
    feeds = [feed_of(server, number) for number in (1, 2, 3)]
    in_threads(*(lambda feed=feed: parts.append(train(feed)) for feed in feeds))
    assert sorted(sample for part in parts for sample in part) == list(range(TOTAL))
    assert server.finished.wait(10)
    assert server.book.trained == TOTAL
    for feed in feeds:
        feed.close()


def test_a_connection_that_ends_gives_its_samples_back(server: LeaseServer) -> None:
    """What was trained and reported stays trained; the rest is trained by whoever comes."""
    died = feed_of(server, 1)
    before = train(died, 2)
    for _ in range(2):  # on their way when it dies
        assert died.next() is not None
    died.close()
    wait_until_nothing_is_out(server)
    assert server.book.trained == len(before) == 20
    assert server.reported == {1: 2}
    after = train(feed_of(server, 2))
    assert sorted(before + after) == list(range(TOTAL))


def test_a_worker_that_was_dropped_is_not_listened_to_any_more(server: LeaseServer) -> None:
    feed = feed_of(server, 1)
    portion = feed.next()
    assert portion is not None
    held = server.book.out()[1]
    assert server.drop(1) == held >= 10
    assert server.drop(1) == 0
    feed.trained(portion, 9)
    feed.close()
    assert sorted(train(feed_of(server, 2))) == list(range(TOTAL))


def test_a_run_that_was_over_already_finishes() -> None:
    book = SampleLeases(TOTAL, batch_size=10, trained=[(0, TOTAL)])
    server = LeaseServer(book, TOKEN)
    feed = feed_of(server, 1)
    assert feed.next() is None
    assert feed.finished
    assert server.finished.is_set()
    feed.close()
    server.close()


def test_leases_are_paced_by_the_clock_that_is_given() -> None:
    """One batch a second: the lease after the first report is of as many batches as the target has seconds."""
    seconds = iter(range(100))
    book = SampleLeases(None, batch_size=10, target_s=5.0)
    server = LeaseServer(book, TOKEN, clock=lambda: float(next(seconds)))
    feed = feed_of(server, 1)
    for tag in range(1, 30):
        portion = feed.next()
        assert portion is not None
        feed.trained(portion, tag)
    with server.lock:
        assert max(out.end - out.start for out in book._out.values()) > 10
    feed.close()
    server.close()
