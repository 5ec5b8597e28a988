"""TCP; the way through Ray is tested with sessions."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from sizewright.training.ps.routing import Server
from sizewright.training.transport.exchange import DONE, STALE, WANT_DENSE, request_bytes
from sizewright.training.transport.links import TcpTransport
from sizewright.training.transport.listeners import PsServer
from tests.helpers.training_parts import TOKEN, make_ps, request


@pytest.fixture
def server() -> Iterator[PsServer]:
    server = PsServer(make_ps(dense=3, version=2), TOKEN)
    yield server
    server.close()


def test_replies_arrive_in_the_order_of_requests(server: PsServer) -> None:
    transport = pickle.loads(pickle.dumps(TcpTransport(TOKEN)))  # as workers get it
    link = transport.connect(Server(1, server.address), 1)
    requests = [request(keys=range(n), tag=n, version=2, flags=WANT_DENSE) for n in (1, 2, 3)]
    for each in requests:
        link.send(each)
    for n in (1, 2, 3):
        head = link.wait()
        assert head == (DONE, n, 3)
        rows = np.empty((n, 2), np.float32)
        link.read([rows], np.empty(3, np.float32))
        np.testing.assert_array_equal(rows, server._ps.stores[0].read(np.arange(n)))
    assert link.sent_bytes == sum(map(request_bytes, requests))
    assert link.received_bytes == sum(12 + 4 * (2 * n + 3) for n in (1, 2, 3))
    link.send(request(keys=[1], version=1))
    assert link.wait() == (STALE, 0, 0)
    link.close()


def test_worker_is_identified_by_its_number(server: PsServer) -> None:
    links = [TcpTransport(TOKEN).connect(Server(1, server.address), number) for number in (4, 7)]
    for link in links:
        link.send(request(version=2))
        link.wait()
    assert server._ps.sync.members == {4, 7}
    for link in links:
        link.close()


@pytest.mark.parametrize("token", [TOKEN, bytes(32)])
def test_lost_or_refusing_server_raises(server: PsServer, token: bytes) -> None:
    if token == TOKEN:
        server.close()
    with pytest.raises(OSError):  # noqa: PT011 (refused or closed, as it happens)
        TcpTransport(token).connect(Server(1, server.address), 1)


def test_close_wakes_waiters_and_a_closed_link_raises(server: PsServer) -> None:
    link = TcpTransport(TOKEN).connect(Server(1, server.address), 1)
    link.send(request(version=9))  # of the future: the server keeps it waiting
    faults: list[OSError] = []

    def wait() -> None:
        try:
            link.wait()
        except OSError as fault:
            faults.append(fault)

    waiting = threading.Thread(target=wait)
    waiting.start()
    link.close()
    waiting.join(10)
    assert len(faults) == 1
    for call in (link.wait, lambda: link.send(request()), lambda: link.read(np.empty((1, 2), np.float32), np.empty(1))):
        with pytest.raises(OSError):  # noqa: PT011
            call()
