from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from sizewright.training.leases.batch_source import ANSWER, LeaseAnswer, LeasedBatches, LeaseMessage, Op
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.transport.wire import Caller, Hello, connect
from tests.helpers.training_parts import TOKEN, in_threads
from tests.training.leases.test_batch_source import Numbers

TOTAL = 1000


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    server = LeaseServer(SampleLeases(TOTAL, batch_size=10, max_batches=3), TOKEN)
    yield server
    server.close()


def feed_of(server: LeaseServer, worker: int) -> LeasedBatches:
    return LeasedBatches(lambda: connect(server.address, TOKEN, Hello(Caller.worker, worker)), Numbers(), 10)


def train(feed: LeasedBatches, batches: int | None = None) -> list[int]:
    """Train `batches` batches, or all of them, and return the samples."""
    trained: list[int] = []
    tag = 0
    while not feed.finished and (batches is None or tag < batches):
        portion = feed.next()
        if portion is not None:
            tag += 1
            feed.trained(portion)
            trained += portion.batch.labels.astype(int).tolist()
    return trained


def test_workers_together_train_every_sample_once(server: LeaseServer) -> None:
    parts: list[list[int]] = []
    feeds = [feed_of(server, number) for number in (1, 2, 3)]
    in_threads(*(lambda feed=feed: parts.append(train(feed)) for feed in feeds))
    assert sorted(sample for part in parts for sample in part) == list(range(TOTAL))
    assert server.finished.wait(10)
    assert server.leases.trained == TOTAL
    for feed in feeds:
        feed.close()


def wait_for_reports(server: LeaseServer, trained: int) -> None:
    for _ in range(2000):
        with server.lock:
            if server.leases.trained >= trained:
                return
        threading.Event().wait(0.005)
    raise AssertionError("a report did not arrive")


@pytest.mark.parametrize("applied", ["nowhere", "somewhere", "everywhere"])
def test_samples_of_a_dead_worker_are_leased_again_unless_applied(server: LeaseServer, applied: str) -> None:
    """What was reported stays trained; what all servers have is trained though it was not reported; what only some
    have goes out in leases of its own."""
    gone = feed_of(server, 1)
    before = train(gone, 2)
    batch = gone.next()  # on its way when it dies
    assert batch is not None
    wait_for_reports(server, 20)
    gone.close()
    has = SampleRanges([(0, batch.start), (batch.start, batch.until)])
    lacks = SampleRanges([(0, batch.start)])
    accounts = {"nowhere": [lacks, lacks], "somewhere": [has, lacks], "everywhere": [has, has]}[applied]
    leased = server.leases.leased()[1]
    again = server.release(1, accounts)
    assert again == leased - (10 if applied == "everywhere" else 0)
    assert server.release(1, accounts) == 0
    heir = feed_of(server, 2)
    first = heir.next()
    assert first is not None
    assert (first.start, first.partly_applied) == (
        batch.until if applied == "everywhere" else batch.start,
        applied == "somewhere",
    )
    heir.trained(first)
    after = first.batch.labels.astype(int).tolist() + train(heir)
    if applied == "everywhere":
        after += batch.batch.labels.astype(int).tolist()
    assert sorted(before + after) == list(range(TOTAL))
    heir.close()


def test_released_worker_is_ignored(server: LeaseServer) -> None:
    feed = feed_of(server, 1)
    feed._patience_s = 0.2
    batch = feed.next()
    assert batch is not None
    server.release(1, [])
    feed.trained(batch)

    def next_leases() -> None:
        while True:  # it may have got one more lease
            feed._next_sample = feed._end
            feed.next()

    with pytest.raises(ConnectionError, match="no longer answers"):
        next_leases()
    feed.close()
    assert server.leases.trained == 0
    assert sorted(train(feed_of(server, 2))) == list(range(TOTAL))


def test_repeated_messages_after_a_cut_count_once(server: LeaseServer) -> None:
    """Cut anywhere, however much of what was said or answered has got lost: every sample is trained once."""
    rng = random.Random(0)
    feeds = [feed_of(server, number) for number in (1, 2, 3)]

    def cut(feed: LeasedBatches, probability: float, ways: list[int]) -> None:
        if rng.random() < probability:
            with contextlib.suppress(OSError):  # it is cut already
                feed._link.shutdown(rng.choice(ways))

    def work(feed: LeasedBatches, trained: list[int]) -> None:
        while not feed.finished:
            cut(feed, 0.3, [socket.SHUT_RDWR])
            if (batch := feed.next()) is not None:
                cut(feed, 0.2, [socket.SHUT_RD, socket.SHUT_WR])
                feed.trained(batch)
                trained += batch.batch.labels.astype(int).tolist()
            elif rng.random() < 0.3:
                feed.hand_back()

    parts: list[list[int]] = [[], [], []]
    in_threads(*(lambda i=i: work(feeds[i], parts[i]) for i in range(3)))
    assert sum(feed.cuts for feed in feeds) > 3
    assert sorted(sample for part in parts for sample in part) == list(range(TOTAL))
    assert server.leases.trained == TOTAL
    for feed in feeds:
        feed.close()


def test_message_that_could_not_be_processed_is_not_taken_as_done(server: LeaseServer) -> None:
    """Otherwise a repeated request would get the previous lease again."""
    want = LeaseMessage(Op.want, 1)
    first = server._answer(1, want)
    beyond = LeaseMessage(Op.trained, 2, lease=LeaseAnswer(*ANSWER.unpack(first)).lease, end=10 * TOTAL)
    for _ in range(2):
        with pytest.raises(ValueError, match="report"):
            server._answer(1, beyond)
    assert server._answer(1, want) == first


def test_run_without_remaining_samples_finishes() -> None:
    sample_leases = SampleLeases(TOTAL, batch_size=10, trained=[(0, TOTAL)])
    server = LeaseServer(sample_leases, TOKEN)
    feed = feed_of(server, 1)
    assert feed.next() is None
    assert feed.finished
    assert server.finished.is_set()
    feed.close()
    server.close()


def test_leases_are_paced_by_the_injected_clock() -> None:
    """One batch a second: the lease after the first report is of as many batches as the target has seconds."""
    seconds = iter(range(100))
    sample_leases = SampleLeases(None, batch_size=10, target_s=5.0)
    server = LeaseServer(sample_leases, TOKEN, clock=lambda: float(next(seconds)))
    feed = feed_of(server, 1)
    for _ in range(1, 30):
        portion = feed.next()
        assert portion is not None
        feed.trained(portion)
    with server.lock:
        assert max(open_lease.end - open_lease.start for open_lease in sample_leases._open_leases.values()) > 10
    feed.close()
    server.close()
