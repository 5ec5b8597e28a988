from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.embedding import EmbeddingRows
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Parts, Server
from sizewright.training.transport.exchange import DONE, ExchangeRequest
from sizewright.training.transport.links import TcpLink, TcpTransport
from sizewright.training.transport.listeners import Listener, PsServer, SinkServer
from sizewright.training.transport.peers import Peer
from sizewright.training.transport.wire import Caller, Hello, connect
from tests.helpers.training_parts import TOKEN, in_threads, make_ps, request


@pytest.fixture
def server() -> Iterator[PsServer]:
    server = PsServer(make_ps(), TOKEN)
    yield server
    server.close()


def link_to(server: PsServer, worker: int = 1) -> TcpLink:
    link = TcpTransport(TOKEN).connect(Server(1, server.address), worker)
    assert isinstance(link, TcpLink)
    return link


def ask(link: TcpLink, request_: ExchangeRequest) -> Floats:
    link.send(request_)
    head = link.wait()
    assert head.state == DONE
    rows = np.empty((head.rows, 2), np.float32)
    link.read(rows, np.empty(head.dense, np.float32))
    return rows


def minus(count: int) -> Floats:
    return np.full((count, 2), -1, np.float32)


def test_server_listens_on_loopback_only(server: PsServer) -> None:
    host, port = server.address
    assert host == "127.0.0.1"
    assert port > 0


def test_two_workers_see_each_others_pushes(server: PsServer) -> None:
    with contextlib.closing(link_to(server)) as one, contextlib.closing(link_to(server, 2)) as other:
        start = ask(one, request(keys=[5, 6], tag=1))
        np.testing.assert_array_equal(ask(other, request(keys=[6, 5], tag=1)), start[::-1])
        ask(other, request(push_tag=1, grads=minus(2)))
        np.testing.assert_allclose(ask(one, request(keys=[5, 6], tag=2)), start + 1, atol=1e-6)


def test_stopping_server_waits_until_its_replies_are_read(server: PsServer) -> None:
    """Cut off amid its reply, a push that was applied would be pushed again elsewhere."""
    many = np.arange(4_000_000, dtype=np.int64)  # a reply of 32 MB, which no socket holds
    with contextlib.closing(link_to(server)) as link:
        link.send(request(keys=many, tag=1))
        while server._ps.counters.exchanges == 0:
            time.sleep(0.005)
        drained = threading.Event()
        threading.Thread(target=lambda: (server.drain(60), drained.set()), daemon=True).start()
        assert not drained.wait(0.2)
        head = link.wait()
        rows = np.empty((head.rows, 2), np.float32)
        link.read(rows, np.empty(0, np.float32))
        assert drained.wait(20)


def test_pull_tags_belong_to_a_connection(server: PsServer) -> None:
    """The same tag on another connection is another pull."""
    with contextlib.closing(link_to(server)) as one, contextlib.closing(link_to(server, 2)) as other:
        first, second = ask(one, request(keys=[1], tag=9)), ask(other, request(keys=[2], tag=9))
        ask(one, request(push_tag=9, grads=minus(1)))
        np.testing.assert_allclose(
            ask(one, request(keys=[1, 2], tag=10)), np.concatenate([first + 1, second]), atol=1e-6
        )


def test_both_sides_count_the_same_bytes(server: PsServer) -> None:
    links = [link_to(server, number) for number in (1, 2, 3)]

    def work(link: TcpLink) -> None:
        for _ in range(30):
            ask(link, request(keys=[1, 2, 3], tag=1))
            ask(link, request(keys=[7], tag=2, push_tag=1, grads=minus(3), dense=[1] * 4, flags=2))
            ask(link, request(push_tag=2, push_keys=[7], grads=minus(1)))

    in_threads(*(lambda link=link: work(link) for link in links))
    assert server.received_bytes == sum(link.sent_bytes for link in links)
    deadline = time.monotonic() + 10  # a server counts what it has sent a moment later
    while server.sent_bytes != sum(link.received_bytes for link in links) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert server.sent_bytes == sum(link.received_bytes for link in links)
    for link in links:
        link.close()


def test_stranger_is_refused_and_silent_one_blocks_nobody(server: PsServer) -> None:
    hello = Hello(Caller.worker, 1)
    with socket.create_connection(server.address), pytest.raises(ConnectionError):
        connect(server.address, bytes(32), hello)
    with socket.create_connection(server.address), contextlib.closing(link_to(server)) as link:
        assert ask(link, request(keys=[1, 2, 3])).shape == (3, 2)


def test_broken_connection_does_not_affect_other_workers(server: PsServer) -> None:
    with contextlib.closing(link_to(server, 2)) as healthy:
        broken = connect(server.address, TOKEN, Hello(Caller.worker, 1))
        broken.sendall(b"\x01" * 10)
        broken.close()
        assert ask(healthy, request(keys=[1])).shape == (1, 2)
    assert server.fault is None


def test_exchange_error_is_reported_and_others_continue(server: PsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_update(slots: object, grads: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(server._ps.stores[0], "update", broken_update)
    with contextlib.closing(link_to(server)) as broken, contextlib.closing(link_to(server, 2)) as healthy:
        ask(broken, request(keys=[1, 2], tag=1))
        with pytest.raises(ConnectionError):
            ask(broken, request(push_tag=1, grads=minus(2)))
        assert server.fault is not None
        assert server.fault.startswith("ValueError")
        assert ask(healthy, request(keys=[1])).shape == (1, 2)


def test_round_waits_for_a_disconnected_worker_until_it_is_forgotten() -> None:
    """It may open another one; that it has gone is for the session to say."""
    server = PsServer(make_ps(sync=True), TOKEN)
    with contextlib.closing(link_to(server)) as one:
        other = link_to(server, 2)
        ask(other, request(keys=[1], tag=1))
        start = ask(one, request(keys=[1], tag=1))
        one.send(request(keys=[1], tag=2, push_tag=1, grads=minus(1)))
        other.close()
        time.sleep(0.1)
        assert server._ps.sync.members == {1, 2}
        server._ps.forget(2)
        assert one.wait().state == DONE
        rows = np.empty((1, 2), np.float32)
        one.read(rows, np.empty(0, np.float32))
        np.testing.assert_allclose(rows - start, 1.0, rtol=1e-5)
    server.close()


def test_peer_transfers_rows_and_dense_weights(server: PsServer) -> None:
    server._ps.expect(2, {9}, slice(1, 3), np.array([4, 5]))
    peer = Peer(server.address, TOKEN, source=9, version=2)
    rows = EmbeddingRows(np.array([4, 5]), np.arange(4, dtype=np.float32).reshape(2, 2), np.empty((2, 0), np.float32))
    peer.insert(rows)
    np.testing.assert_array_equal(server._ps.stores[0].read(server._ps.stores[0].locate(rows.keys)), rows.weights)
    peer.put_dense(1, np.array([[7], [8]], np.float32), np.empty((2, 0), np.float32))
    peer.put_applied(np.array([5]), SampleRanges([(2, 9), (11, 12)]))
    assert server._ps.version == 1
    peer.done(2)
    assert server._ps.version == 2
    assert server._ps.dense.copy().tolist() == [7, 8]
    applied = {tuple(parts.tolist()): list(samples) for parts, samples in server._ps.applied_groups()}
    assert applied == {(4,): [], (5,): [(2, 9), (11, 12)]}  # of what nobody spoke of nothing is left
    with contextlib.closing(link_to(server)) as link:  # while the peer is connected
        ask(link, request(keys=[1], version=2))
    server.close()
    of_no_rows = 29 + (29 + 8 + 32)  # the last two frames
    assert server.received_bytes == peer.sent_bytes - of_no_rows + link.sent_bytes
    with pytest.raises(OSError):  # noqa: PT011 (reset, broken pipe or closed, as it happens)
        peer.insert(rows)


def test_sink_receives_sender_and_data() -> None:
    received: list[object] = []

    class Sink:
        def insert(self, rows: EmbeddingRows) -> None:
            received.append([array.tolist() for array in rows])

        def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
            received.append((start, weights.tolist(), state.tolist()))

        def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
            received.append((parts.tolist(), list(samples)))

        def arrived(self, version: int, source: int) -> None:
            received.append((version, source))

    def make_sink(source: int) -> Sink:
        received.append(source)
        return Sink()

    server = SinkServer(make_sink, TOKEN)
    peer = Peer(server.address, TOKEN, source=3)
    peer.insert(EmbeddingRows(np.array([4]), np.ones((1, 2), np.float32), np.zeros((1, 3), np.float32)))
    peer.put_dense(5, np.ones((2, 1), np.float32), np.zeros((2, 2), np.float32))
    peer.put_dense(2**40, np.empty((0, 1), np.float32), np.empty((0, 2), np.float32))
    peer.put_applied(np.array([], np.int64), SampleRanges())
    peer.done(8)
    assert received == [
        3,
        [[4], [[1, 1]], [[0, 0, 0]]],
        (5, [[1], [1]], [[0, 0], [0, 0]]),
        (2**40, [], []),
        ([], []),
        (8, 3),
    ]
    peer.close()
    server.close()


def open_sockets() -> int:
    count = 0
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{entry}").startswith("socket:")
    return count


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts sockets in /proc")
def test_close_leaves_no_busy_thread_socket_or_rows() -> None:
    gc.collect()
    sockets, threads = open_sockets(), threading.active_count()
    for _ in range(8):
        server = PsServer(make_ps(sync=True), TOKEN)
        address, store = server.address, weakref.ref(server._ps.stores[0])
        silent = socket.create_connection(address)
        links = [link_to(server, number) for number in range(3)]
        for link in links:
            ask(link, request(keys=[1], tag=1))
        links[0].send(request(push_tag=1, grads=minus(1)))  # waits for the others
        server.close()
        with pytest.raises(ConnectionError):
            links[0].wait()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(address, timeout=5)
        for link in (silent, *links):
            link.close()
        del server
        deadline = time.monotonic() + 5
        while store() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store() is None
        assert open_sockets() == sockets
    # a server has five threads; idle ones may stay for the next server, but never those of all eight
    assert threading.active_count() <= threads + 12


def test_close_is_idempotent(server: PsServer) -> None:
    server.close()


def test_listener_serves_each_connection_with_its_hello() -> None:
    met: list[Hello] = []

    def serve(link: socket.socket, hello: Hello) -> None:
        met.append(hello)
        link.sendall(b"!")

    listener = Listener(TOKEN, serve)
    for hello in (Hello(Caller.worker, 3), Hello(Caller.peer, 4)):
        with connect(listener.address, TOKEN, hello) as link:
            assert link.recv(1) == b"!"
            assert link.recv(1) == b""
    listener.close()
    assert met == [(Caller.worker, 3), (Caller.peer, 4)]
