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
from training_parts import TOKEN, make_ps, pull, push, read_reply

from sizewright.training.ps_server import PsServer
from sizewright.training.wire import connect, receive_reply_head, send_request


@pytest.fixture
def server() -> Iterator[PsServer]:
    server = PsServer(make_ps(), TOKEN)
    yield server
    server.close()


def ask(link: socket.socket, keys: list[int], tag: int = 1) -> np.ndarray:
    send_request(link, pull(keys, tag))
    return read_reply(link, 2)[0]


def test_it_listens_on_this_host_only(server: PsServer) -> None:
    host, port = server.address
    assert host == "127.0.0.1"
    assert port > 0


def test_two_workers_see_each_others_pushes(server: PsServer) -> None:
    with connect(server.address, TOKEN) as one, connect(server.address, TOKEN) as other:
        start = ask(one, [5, 6])
        np.testing.assert_array_equal(ask(other, [6, 5]), start[::-1])
        send_request(other, push(1, -np.ones((2, 2))))
        read_reply(other, 2)
        np.testing.assert_allclose(ask(one, [5, 6], tag=2), start + 1, atol=1e-6)


def test_places_belong_to_a_connection(server: PsServer) -> None:
    """The same tag on another connection is another pull."""
    with connect(server.address, TOKEN) as one, connect(server.address, TOKEN) as other:
        first, second = ask(one, [1], tag=9), ask(other, [2], tag=9)
        send_request(one, push(9, -np.ones((1, 2))))
        read_reply(one, 2)
        np.testing.assert_allclose(ask(one, [1, 2], tag=10), np.concatenate([first + 1, second]), atol=1e-6)


def test_a_stranger_is_refused_and_a_silent_one_keeps_nobody_waiting(server: PsServer) -> None:
    with socket.create_connection(server.address), pytest.raises(ConnectionError):
        connect(server.address, bytes(32))
    with socket.create_connection(server.address), connect(server.address, TOKEN, timeout_s=10) as link:
        assert ask(link, [1, 2, 3]).shape == (3, 2)


def test_a_worker_that_breaks_off_harms_no_other(server: PsServer) -> None:
    with connect(server.address, TOKEN) as healthy:
        broken = connect(server.address, TOKEN)
        broken.sendall(b"\x01" * 10)
        broken.close()
        assert ask(healthy, [1]).shape == (1, 2)


def open_sockets() -> int:
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{entry}").startswith("socket:")
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts sockets in /proc")
def test_closing_leaves_no_busy_thread_no_socket_and_no_rows() -> None:
    gc.collect()
    sockets, threads = open_sockets(), threading.active_count()
    for _ in range(8):
        server = PsServer(make_ps(sync=2), TOKEN)
        address, store = server.address, weakref.ref(server._ps.store)
        silent = socket.create_connection(address)
        links = [connect(address, TOKEN) for _ in range(3)]
        for link in links:
            ask(link, [1])
        send_request(links[0], push(1, np.ones((1, 2)), np.ones(4, np.float32)))  # waits for a second worker
        server.close()
        with pytest.raises(ConnectionError):
            receive_reply_head(links[0])
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


def test_closing_twice_is_fine(server: PsServer) -> None:
    server.close()
