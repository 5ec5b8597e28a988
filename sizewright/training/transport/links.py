"""How workers reach parameter servers: direct TCP by default, calls through Ray as the fallback."""

from __future__ import annotations

import socket
from typing import Any, Protocol

import numpy as np

from sizewright.training.optimizers import Floats
from sizewright.training.routing import Server
from sizewright.training.transport.exchange import (
    Reply,
    ReplyHead,
    Request,
    receive_reply_head,
    reply_bytes,
    request_bytes,
    send_request,
)
from sizewright.training.transport.wire import Caller, Hello, connect, drop, receive_into


class Link(Protocol):
    """One worker's connection to one server: requests go out and replies come back in order.

    Every method raises ConnectionError or OSError when the server has gone.
    """

    sent_bytes: int
    received_bytes: int

    def send(self, request: Request) -> None:
        """Send without waiting for the reply."""

    def wait(self) -> ReplyHead:
        """Wait for the next reply."""

    def read(self, rows: Floats, dense: Floats) -> None:
        """The rest of the reply, into contiguous arrays of the sizes that its head told."""

    def close(self) -> None:
        """A thread that waits is woken with ConnectionError."""


class Transport(Protocol):
    """Makes links; sent to the workers as it is."""

    def connect(self, server: Server, worker: int, answer_s: float = 30.0) -> Link:
        """A link of one worker to one server, which is to answer within `answer_s`."""


class TcpTransport:
    """Sockets between the replicas, each opened with the session's token."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def connect(self, server: Server, worker: int, answer_s: float = 30.0) -> Link:  # noqa: D102
        return TcpLink(connect(server.address, self._token, Hello(Caller.worker, worker), answer_s))


class TcpLink:
    """A link over one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sent_bytes = self.received_bytes = 0
        self._socket = sock

    def send(self, request: Request) -> None:  # noqa: D102
        self.sent_bytes += send_request(self._socket, request)

    def wait(self) -> ReplyHead:  # noqa: D102
        return receive_reply_head(self._socket)

    def read(self, rows: Floats, dense: Floats) -> None:  # noqa: D102
        if not (receive_into(self._socket, rows) and receive_into(self._socket, dense)):
            raise ConnectionError("the parameter server closed the connection")
        self.received_bytes += reply_bytes(1, 0, rows.size) + dense.nbytes

    def close(self) -> None:  # noqa: D102
        drop(self._socket)


class RayTransport:
    """Calls of the servers' actors, found by name: slower, yet it goes wherever Ray goes."""

    def __init__(self, prefix: str, namespace: str) -> None:
        self._prefix, self._namespace = prefix, namespace

    def connect(self, server: Server, worker: int, answer_s: float = 30.0) -> Link:  # noqa: D102
        import ray

        try:
            actor = ray.get_actor(f"{self._prefix}-ps-{server.id - 1}", namespace=self._namespace)
        except ValueError as error:
            raise ConnectionError(str(error)) from None
        return RayLink(ray, actor, worker)


class RayLink:
    """A link whose requests are calls of an actor."""

    def __init__(self, ray: Any, actor: Any, worker: int) -> None:
        self.sent_bytes = self.received_bytes = 0
        self._ray, self._actor, self._worker = ray, actor, worker
        self._asked: list[Any] = []
        self._reply: Reply | None = None
        self._closed = False

    def send(self, request: Request) -> None:  # noqa: D102
        self._asked.append(self._actor.exchange.remote(self._worker, request))
        self.sent_bytes += request_bytes(request)

    def wait(self) -> ReplyHead:  # noqa: D102
        asked = self._asked.pop(0)
        while True:
            if self._closed:
                raise ConnectionError("the link was closed")
            try:
                self._reply = self._ray.get(asked, timeout=1.0)
                break
            except self._ray.exceptions.GetTimeoutError:
                continue
            except self._ray.exceptions.RayError as error:
                raise ConnectionError(str(error)) from None
        assert self._reply is not None
        return ReplyHead(self._reply.state, len(self._reply.rows), self._reply.dense.size)

    def read(self, rows: Floats, dense: Floats) -> None:  # noqa: D102
        assert self._reply is not None
        np.copyto(rows, self._reply.rows.reshape(rows.shape))
        np.copyto(dense, self._reply.dense)
        self.received_bytes += self._reply.rows.nbytes + dense.nbytes

    def close(self) -> None:  # noqa: D102
        self._closed = True
