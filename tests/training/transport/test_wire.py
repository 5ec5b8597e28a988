from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.transport.listeners import Listener
from sizewright.training.transport.wire import Caller, Hello, connect, drop, receive_bytes, receive_into, send_arrays
from tests.helpers.training_parts import TOKEN

HELLO = Hello(Caller.worker, 7)


@settings(max_examples=40, deadline=None)
@given(shapes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=4), strided=st.booleans())
def test_arrays_arrive_as_sent(shapes: list[tuple[int, int]], strided: bool) -> None:
    rng = np.random.default_rng(len(shapes))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if strided:
        arrays = [np.ascontiguousarray(array.T).T for array in arrays]
    sending, receiver = socket.socketpair()
    with sending, receiver:
        sent: list[int] = []
        sender = threading.Thread(target=lambda: sent.append(send_arrays(sending, b"head", *arrays)))
        sender.start()
        assert receive_bytes(receiver, 4) == b"head"
        for array in arrays:
            got = np.empty(array.shape, np.float32)
            assert receive_into(receiver, got)
            np.testing.assert_array_equal(got, array)
        sender.join(20)
    assert sent == [4 + sum(array.nbytes for array in arrays)]


def test_end_of_a_connection_is_detected() -> None:
    sender, receiver = socket.socketpair()
    with receiver:
        sender.sendall(b"123")
        sender.close()
        assert receive_bytes(receiver, 2) == b"12"
        assert receive_bytes(receiver, 2) is None
        assert not receive_into(receiver, np.empty(2, np.float32))
        assert receive_into(receiver, np.empty(0, np.float32))


def test_drop_wakes_waiters() -> None:
    sender, receiver = socket.socketpair()
    results: list[object] = []

    def wait() -> None:
        try:
            results.append(receive_bytes(receiver, 1))
        except OSError:
            results.append(None)

    waiting = threading.Thread(target=wait)
    with sender:
        waiting.start()
        drop(receiver)
        waiting.join(10)
        assert results == [None]
        drop(receiver)  # again is fine


def handshake(shown: bytes, hello: Hello = HELLO, known: bytes = TOKEN) -> tuple[list[Hello], list[object]]:
    """Whom a listener let in when a client knows this token, and what the client came to."""
    met: list[Hello] = []
    outcome: list[object] = []
    listener = Listener(known, lambda link, hello: met.append(hello))
    try:
        outcome.append(connect(listener.address, shown, hello, timeout_s=10))
    except OSError as error:
        outcome.append(error)
    listener.close()
    return met, outcome


@pytest.mark.parametrize("hello", [HELLO, Hello(Caller.peer, 2**32 - 1)])
def test_right_token_is_accepted_with_its_identity(hello: Hello) -> None:
    met, (link,) = handshake(TOKEN, hello)
    assert met == [hello]
    assert isinstance(link, socket.socket)
    assert link.gettimeout() is None
    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    link.close()


@pytest.mark.parametrize(
    ("shown", "hello"),
    [
        (bytes(32), HELLO),
        (TOKEN[:-1] + b"\xff", HELLO),
        (TOKEN[::-1], HELLO),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", HELLO),
        (TOKEN, Hello(9, 1)),  # type: ignore[arg-type]
    ],
)
def test_wrong_token_or_unknown_caller_is_refused(shown: bytes, hello: Hello) -> None:
    met, (error,) = handshake(shown, hello)
    assert met == []
    assert isinstance(error, ConnectionError)
