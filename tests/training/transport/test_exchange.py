from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sizewright.training.transport.exchange import (
    DONE,
    STALE_REPLY,
    ExchangeRequest,
    Reply,
    receive_reply_head,
    receive_request,
    reply_bytes,
    request_bytes,
    send_reply,
    send_request,
)
from sizewright.training.transport.wire import receive_into
from tests.helpers.training_parts import NO_FLOATS, request

Pair = tuple[socket.socket, socket.socket]
SIZES, WORD = st.integers(0, 300), st.integers(0, 2**32 - 1)
shared_pair = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    client, server = socket.socketpair()
    for sock in (client, server):
        sock.settimeout(20)
    yield client, server
    client.close()
    server.close()


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@shared_pair
@given(
    rows=SIZES, dense=SIZES, keys=SIZES, width=st.integers(1, 40), tag=WORD, version=WORD, flags=st.integers(0, 15),
    start=st.integers(0, 2**40), named=st.booleans(), strided=st.booleans(),
)  # fmt: skip
def test_requests_arrive_as_sent(
    pair: Pair, rows: int, dense: int, keys: int, width: int, tag: int, version: int, flags: int, start: int,
    named: bool, strided: bool,
) -> None:  # fmt: skip
    grads = floats(tag, width, rows).T if strided else floats(tag, rows, width)
    requested, named_keys = (np.random.default_rng(tag).integers(0, 2**62, n) for n in (keys, rows if named else 0))
    other = np.arange(named, dtype=np.int64)  # the rows of 5 floats
    samples = np.random.default_rng(tag).integers(0, 2**40, (dense % 3, 2))
    sent = ExchangeRequest(
        version, flags, tag, start, start + 7, (named_keys, other), (grads, floats(tag, 3, 5)), samples,
        floats(tag + 1, dense), tag ^ 1, (requested, other),
    )  # fmt: skip
    counts: list[int] = []
    sender = threading.Thread(target=lambda: counts.append(send_request(pair[0], sent)))
    sender.start()
    got = receive_request(pair[1], [width, 5])
    sender.join(20)
    assert got is not None
    for mine, theirs in zip(got, sent, strict=True):
        arrays = zip(mine, theirs, strict=True) if isinstance(theirs, tuple) else [(mine, theirs)]
        for one, same in arrays:
            np.testing.assert_array_equal(one, same)
    assert (
        counts
        == [request_bytes(sent)]
        == [64 + 4 * (rows * width + 15 + dense) + 8 * (keys + len(named_keys) + 2 * named) + 16 * len(samples)]
    )


@shared_pair
@given(rows=SIZES, dense=SIZES, width=st.integers(1, 40))
def test_replies_arrive_as_sent(pair: Pair, rows: int, dense: int, width: int) -> None:
    reply = Reply(DONE, (floats(rows, rows, width), floats(rows, 3, 5)), floats(dense, dense))
    counts: list[int] = []
    sender = threading.Thread(target=lambda: counts.append(send_reply(pair[0], reply)))
    sender.start()
    head = receive_reply_head(pair[1])
    assert head == (DONE, rows + 3, dense)
    for array in (*reply.rows, reply.dense):
        got = np.empty_like(array)
        assert receive_into(pair[1], got)
        np.testing.assert_array_equal(got, array)
    sender.join(20)
    assert counts == [reply_bytes(reply.rows, reply.dense)] == [12 + 4 * (rows * width + 15 + dense)]


def test_refusal_is_only_a_head(pair: Pair) -> None:
    assert send_reply(pair[0], STALE_REPLY) == reply_bytes((), NO_FLOATS)
    assert receive_reply_head(pair[1]) == (STALE_REPLY.state, 0, 0)


@pytest.mark.parametrize("sent", [0, 10, 51, 52, 70, 100])
def test_connection_lost_within_a_request_raises(sent: int) -> None:
    client, server = socket.socketpair()
    recorder, record = socket.socketpair()
    complete = request(keys=range(5), push_tag=1, grads=np.ones((3, 2)), push_keys=[1, 2, 3], dense=np.ones(4))
    with client, server, recorder, record:
        assert send_request(recorder, complete) > 100
        client.sendall(record.recv(1000)[:sent])
        client.close()
        assert receive_request(server, [2]) is None


def test_lost_server_differs_from_an_empty_reply() -> None:
    client, server = socket.socketpair()
    with client, server:
        send_reply(client, Reply(DONE, (np.empty((0, 3), np.float32),), NO_FLOATS))
        assert receive_reply_head(server) == (DONE, 0, 0)
        client.close()
        with pytest.raises(ConnectionError):
            receive_reply_head(server)
