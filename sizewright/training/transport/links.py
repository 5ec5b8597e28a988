"""Links from workers to parameter servers, over direct TCP by default, or through Ray."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Server
from sizewright.training.transport.exchange import (
    ExchangeRequest,
    Reply,
    ReplyHead,
    receive_reply_head,
    reply_bytes,
    request_bytes,
    send_request,
)
from sizewright.training.transport.wire import Caller, Hello, connect, drop, receive_into


class Link(Protocol):
    """One worker's connection to one server, with requests and replies in the same order.

    Every method raises ConnectionError or OSError if the server has closed the connection.
    """

    sent_bytes: int
    received_bytes: int

    def send(self, request: ExchangeRequest) -> None:
        """Send a request without waiting for the reply."""

    def wait(self) -> ReplyHead:
        """Wait for the next reply, and return its head."""

    def read(self, rows: Sequence[Floats], dense: Floats) -> None:
        """Read the rest of the reply into contiguous arrays of the requested sizes."""

    def close(self) -> None:
        """Close the link; a waiting thread gets a ConnectionError."""


class Transport(Protocol):
    """Opens links. It is pickled and sent to the workers."""

    def connect(self, server: Server, worker: int, answer_s: float = 30.0) -> Link:
        """Open a link from a worker to a server, which must answer within `answer_s` seconds."""


class TcpTransport:
    """Opens direct TCP links, which are authenticated with the session's token."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def connect(self, server: Server, worker: int, answer_s: float = 30.0) -> Link:  # noqa: D102
        return TcpLink(connect(server.address, self._token, Hello(Caller.worker, worker), answer_s))


class TcpLink:
    """A link over one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sent_bytes = self.received_bytes = 0
        self._socket = sock

    def send(self, request: ExchangeRequest) -> None:  # noqa: D102
        self.sent_bytes += send_request(self._socket, request)

    def wait(self) -> ReplyHead:  # noqa: D102
        return receive_reply_head(self._socket)

    def read(self, rows: Sequence[Floats], dense: Floats) -> None:  # noqa: D102
        if not all(receive_into(self._socket, array) for array in (*rows, dense)):
            raise ConnectionError("the parameter server closed the connection")
        self.received_bytes += reply_bytes(rows, dense)

    def close(self) -> None:  # noqa: D102
        drop(self._socket)


class RayTransport:
    """Opens links that call the servers' Ray actors by name: slower, but they work wherever Ray does."""

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
        self._ray = ray
        self._actor = actor
        self._worker = worker
        self._calls: list[Any] = []
        self._reply: Reply | None = None
        self._closed = False

    def send(self, request: ExchangeRequest) -> None:  # noqa: D102
        self._calls.append(self._actor.exchange.remote(self._worker, request))
        self.sent_bytes += request_bytes(request)

    def wait(self) -> ReplyHead:  # noqa: D102
        call = self._calls.pop(0)
        while True:
            if self._closed:
                raise ConnectionError("the link was closed")
            try:
                self._reply = self._ray.get(call, timeout=1.0)
                break
            except self._ray.exceptions.GetTimeoutError:
                continue
            except self._ray.exceptions.RayError as error:
                raise ConnectionError(str(error)) from None
        assert self._reply is not None
        return ReplyHead(self._reply.state, sum(map(len, self._reply.rows)), self._reply.dense.size)

    def read(self, rows: Sequence[Floats], dense: Floats) -> None:  # noqa: D102
        assert self._reply is not None
        for array, received in zip(rows, self._reply.rows, strict=True):
            np.copyto(array, received)
        np.copyto(dense, self._reply.dense)
        self.received_bytes += reply_bytes(rows, dense)

    def close(self) -> None:  # noqa: D102
        self._closed = True
