from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_parts import TOKEN, read_reply

from sizewright.training.wire import (
    REPLY_HEAD_BYTES,
    Reply,
    Request,
    admit,
    connect,
    receive_into,
    receive_reply_head,
    receive_request,
    send_reply,
    send_request,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.settimeout(20)
    yield left, right
    left.close()
    right.close()


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SIZES = st.integers(0, 400)
shared_pair = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@shared_pair
@given(SIZES, SIZES, SIZES, st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_requests_arrive_as_sent(
    pair: Pair, rows: int, dense: int, keys: int, width: int, tag: int, want_dense: bool, strided: bool
) -> None:
    grads = floats(tag, width, rows).T if strided else floats(tag, rows, width)
    asked = np.random.default_rng(tag).integers(0, 2**62, keys)
    request = Request(tag, grads, floats(tag + 1, dense), tag ^ 1, asked, want_dense)
    sent: list[int] = []
    sender = threading.Thread(target=lambda: sent.append(send_request(pair[0], request)))
    sender.start()
    got = receive_request(pair[1], width)
    sender.join(20)
    assert got is not None
    assert (got.push_tag, got.pull_tag, got.want_dense) == (tag, tag ^ 1, want_dense)
    np.testing.assert_array_equal(got.row_grads, grads)
    np.testing.assert_array_equal(got.dense_grads, request.dense_grads)
    np.testing.assert_array_equal(got.keys, asked)
    assert sent == [24 + 4 * (rows * width + dense) + 8 * keys]


@shared_pair
@given(rows=SIZES, dense=SIZES, width=st.integers(1, 40))
def test_replies_arrive_as_sent(pair: Pair, rows: int, dense: int, width: int) -> None:
    reply = Reply(floats(rows, rows, width), floats(dense, dense))
    sender = threading.Thread(target=send_reply, args=(pair[0], reply))
    sender.start()
    values, weights = read_reply(pair[1], width)
    sender.join(20)
    np.testing.assert_array_equal(values, reply.rows)
    np.testing.assert_array_equal(weights, reply.dense)


def test_the_head_of_a_reply_has_the_size_that_is_counted() -> None:
    left, right = socket.socketpair()
    with left, right:
        send_reply(left, Reply(np.empty((0, 3), np.float32), np.empty(0, np.float32)))
        assert len(right.recv(100)) == REPLY_HEAD_BYTES


@pytest.mark.parametrize("sent", [0, 10, 30, 60])
def test_a_worker_that_goes_amid_a_request_ends_it(sent: int) -> None:
    left, right = socket.socketpair()
    recorder, record = socket.socketpair()
    with left, right, recorder, record:
        send_request(recorder, Request(1, floats(0, 3, 2), floats(1, 4), 2, np.arange(5), True))
        left.sendall(record.recv(1000)[:sent])
        left.close()
        assert receive_request(right, 2) is None


def test_a_server_that_goes_is_told_from_an_empty_reply() -> None:
    left, right = socket.socketpair()
    with right:
        left.close()
        with pytest.raises(ConnectionError):
            receive_reply_head(right)
        assert not receive_into(right, np.empty(2, np.float32))
        assert receive_into(right, np.empty(0, np.float32))


def handshake(shown: bytes) -> tuple[bool, list[object]]:
    """Whether the server let in a client that shows this token, and what the client came to."""
    outcome: list[object] = []

    def client() -> None:
        try:
            outcome.append(connect(server.getsockname(), shown, timeout_s=10))
        except OSError as error:
            outcome.append(error)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=client)
        thread.start()
        sock, _ = server.accept()
        let_in = admit(sock, TOKEN, timeout_s=2)
        thread.join(20)
        sock.close()
    return let_in, outcome


def test_the_right_token_is_let_in() -> None:
    let_in, (link,) = handshake(TOKEN)
    assert let_in
    assert isinstance(link, socket.socket)
    assert link.gettimeout() is None
    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    link.close()


@pytest.mark.parametrize(
    "shown", [bytes(32), TOKEN[:-1] + b"\xff", TOKEN[::-1], b"GET / HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_a_wrong_token_is_refused(shown: bytes) -> None:
    let_in, (error,) = handshake(shown)
    assert not let_in
    assert isinstance(error, ConnectionError)
