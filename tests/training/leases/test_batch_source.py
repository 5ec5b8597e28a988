from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.datasets.clicks.batch import Batch
from sizewright.training.leases.batch_source import ANSWER, ASK, LeasedBatch, LeasedBatches, LeaseState, Op
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.transport.wire import receive_bytes


class Numbers:
    """Samples whose label is their own number; those of `broken` are left out."""

    def __init__(self, broken: set[int] | None = None) -> None:
        self._broken = broken or set()

    def read(self, start: int, count: int) -> Batch:
        kept = np.array([n for n in range(start, start + count) if n not in self._broken], np.float32)
        return Batch(kept, np.empty((len(kept), 0), np.float32), np.empty((len(kept), 0), np.int64))


class Session:
    """The other side of a feed, by hand: answers are put ahead, and what was said is read afterwards."""

    def __init__(self, broken: set[int] | None = None, batch_size: int = 10) -> None:
        self.links: list[socket.socket] = []
        self.feed = LeasedBatches(self._open, Numbers(broken), batch_size, patience_s=1)

    @property
    def link(self) -> socket.socket:
        """The last connection."""
        return self.links[-1]

    def _open(self) -> socket.socket:
        link, other = socket.socketpair()
        link.settimeout(10)
        other.settimeout(10)
        self.links.append(link)
        return other

    def answer(self, state: LeaseState, lease: int = 0, start: int = 0, end: int = 0) -> None:
        self.link.sendall(ANSWER.pack(state, lease, start, end))

    def said(self) -> list[tuple[int, ...]]:
        """All that was said since the last look: each thing with its number, its lease and the samples."""
        messages = []
        self.link.setblocking(False)
        try:
            while data := receive_bytes(self.link, ASK.size):
                messages.append(ASK.unpack(data))
        except BlockingIOError:
            pass
        self.link.settimeout(10)
        return messages

    def close(self) -> None:
        self.feed.close()
        for link in self.links:
            link.close()


def without_numbers(messages: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [(op, *rest) for op, _, *rest in messages]


WANT, BACK, FLUSH = (Op.want, 0, 0, 0), (Op.hand_back, 0, 0, 0), (Op.flush, 0, 0, 0)


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    opened: list[Session] = []
    yield opened
    for session in opened:
        session.close()


def new(sessions: list[Session], broken: set[int] | None = None) -> Session:
    sessions.append(Session(broken))
    return sessions[-1]


def numbers(portion: LeasedBatch | None) -> list[int]:
    assert portion is not None
    return portion.batch.labels.astype(int).tolist()


def test_lease_is_read_in_batches_and_the_next_is_requested_early(sessions: list[Session]) -> None:
    session = new(sessions)
    session.answer(LeaseState.leased, 4, 100, 125)
    first = session.feed.next()
    assert numbers(first) == list(range(100, 110))
    assert without_numbers(session.said()) == [WANT]
    second = session.feed.next()
    assert numbers(second) == list(range(110, 120))
    assert without_numbers(session.said()) == [WANT]  # one batch is left
    third = session.feed.next()
    assert numbers(third) == list(range(120, 125))
    assert session.said() == []  # it was asked for already
    for batch in (first, second, third):
        assert batch is not None
        session.feed.trained(batch)
    assert session.said() == [
        (Op.trained, 3, 4, 100, 110),
        (Op.trained, 4, 4, 110, 120),
        (Op.trained, 5, 4, 120, 125),
    ]
    session.answer(LeaseState.leased_partly_applied, 5, 0, 3)
    again = session.feed.next()
    assert numbers(again) == [0, 1, 2]
    assert again is not None
    assert again.partly_applied
    assert not any(batch.partly_applied for batch in (first, second, third) if batch)


def test_empty_answer_is_not_the_end(sessions: list[Session]) -> None:
    session = new(sessions)
    session.answer(LeaseState.nothing)
    assert session.feed.next() is None
    assert not session.feed.finished
    session.answer(LeaseState.leased, 1, 0, 5)
    assert numbers(session.feed.next()) == [0, 1, 2, 3, 4]
    session.answer(LeaseState.finished)
    assert session.feed.next() is None
    assert session.feed.finished


@pytest.mark.parametrize("lease_requested", [False, True])
def test_hand_back_returns_the_remaining_and_the_requested_lease(
    sessions: list[Session], lease_requested: bool
) -> None:
    session = new(sessions)
    session.answer(LeaseState.leased, 1, 0, 20 if lease_requested else 50)
    assert numbers(session.feed.next()) == list(range(10))
    if lease_requested:
        session.answer(LeaseState.leased, 2, 100, 150)  # on its way while it hands back
    session.answer(LeaseState.nothing)
    session.feed.hand_back()
    expected = [WANT, WANT, BACK, BACK, FLUSH] if lease_requested else [WANT, BACK, FLUSH]
    assert without_numbers(session.said()) == expected
    session.answer(LeaseState.leased, 3, 7, 9)
    assert numbers(session.feed.next()) == [7, 8]


def test_batch_size_may_change_within_a_lease(sessions: list[Session]) -> None:
    session = new(sessions)
    session.answer(LeaseState.leased, 1, 0, 100)
    sizes = []
    for size in (10, 25, 1, 40, 40):
        session.feed.batch_size = size
        sizes.append(len(numbers(session.feed.next())))
    assert sizes == [10, 25, 1, 40, 24]


def test_batches_of_broken_rows_are_reported_in_order(sessions: list[Session]) -> None:
    """A report covers all of its lease up to it: what is still on its way would count as trained."""
    session = new(sessions, broken={*range(10), *range(20, 40)})
    session.answer(LeaseState.leased, 1, 0, 30)
    session.answer(LeaseState.leased, 2, 30, 60)
    first, second = session.feed.next(), session.feed.next()
    assert numbers(first) == list(range(10, 20))
    assert numbers(second) == list(range(40, 50))
    messages = [each for each in without_numbers(session.said()) if each != WANT]
    skipped = [(Op.skip, 1, 0, 10), (Op.trained, 1, 10, 10), (Op.skip, 1, 20, 30), (Op.skip, 2, 30, 40)]
    assert messages == skipped  # nothing was before the first
    assert first is not None
    session.feed.trained(first)
    reports = [(Op.trained, 1, 10, 20), (Op.trained, 1, 30, 30), (Op.trained, 2, 40, 40)]
    assert without_numbers(session.said()) == reports


def test_messages_that_a_cut_may_have_lost_are_repeated(sessions: list[Session]) -> None:
    session = new(sessions)
    session.answer(LeaseState.leased, 1, 0, 50)
    batch = session.feed.next()
    assert batch is not None
    session.said()
    session.feed.trained(batch)
    session.link.close()
    for _ in range(20):  # until the end is seen
        session.feed._send(Op.skip, 1, 40, 50)
        if session.feed.cuts:
            break
    assert session.feed.cuts == 1
    messages = session.said()
    assert messages[0] == (Op.trained, 2, 1, 0, 10)
    assert [number for _, number, *_ in messages] == list(range(2, 2 + len(messages)))


def test_ended_session_raises(sessions: list[Session]) -> None:
    session = new(sessions)
    session.link.close()

    def refuse() -> socket.socket:
        raise ConnectionRefusedError

    session.feed._open = refuse
    with pytest.raises(ConnectionError, match="no longer accepts this worker"):
        session.feed.next()


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(0, 300), max_batch=st.integers(1, 4), pipeline=st.integers(0, 2),
    steps=st.lists(st.integers(0, 9), max_size=40), broken=st.sets(st.integers(0, 299), max_size=60),
    first_broken=st.integers(0, 60),
)  # fmt: skip
def test_every_sample_is_trained_once_despite_hand_backs(
    total: int, max_batch: int, pipeline: int, steps: list[int], broken: set[int], first_broken: int
) -> None:
    """Against a real sample_leases; up to two batches are on their way, and handing back gives those up."""
    broken = broken | set(range(first_broken))
    session, sample_leases = Session(broken), SampleLeases(total, batch_size=10, max_batches=max_batch)
    trained: list[int] = []
    flying: list[LeasedBatch] = []

    def serve() -> None:
        for op, _, lease, start, end in session.said():
            if op == Op.trained:
                sample_leases.report(1, lease, end, 0.0)
            elif op == Op.skip:
                sample_leases.skip(start, end)
            elif op == Op.hand_back:
                sample_leases.hand_back(1)
            else:
                granted = sample_leases.lease(1, 0.0) if op == Op.want else None
                state = (
                    LeaseState.leased
                    if granted
                    else LeaseState.finished
                    if sample_leases.finished
                    else LeaseState.nothing
                )
                session.answer(state, *(granted[:3] if granted else (0, 0, 0)))

    def report(portion: LeasedBatch) -> None:
        session.feed.trained(portion)
        trained.extend(portion.batch.labels.astype(int).tolist())
        serve()

    session.feed._link = NearLink(session, serve)  # type: ignore[assignment]
    for step in [*steps, *[1] * 200]:
        if step == 0:
            flying.clear()
            session.feed.hand_back()
            serve()
            continue
        portion = session.feed.next()
        if portion is None:
            for each in flying:
                report(each)
            flying.clear()
            if session.feed.finished:
                break
            continue
        flying.append(portion)
        if len(flying) > pipeline:
            report(flying.pop(0))
    assert sample_leases.finished
    assert sorted(trained) == [n for n in range(total) if n not in broken]
    session.close()


class NearLink:
    """The feed's end of the connection; the sample_leases answers whenever the feed waits."""

    def __init__(self, session: Session, serve: Callable[[], None]) -> None:
        self._link, self._serve = session.feed._link, serve

    def sendall(self, data: bytes) -> None:
        self._link.sendall(data)

    def recv(self, size: int) -> bytes:
        self._serve()
        return self._link.recv(size)

    def shutdown(self, how: int) -> None:
        self._link.shutdown(how)

    def close(self) -> None:
        self._link.close()
