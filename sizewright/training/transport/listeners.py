"""Listeners for workers and peers, with one thread per authenticated connection and none for others."""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress

from sizewright.training.host.thread_cache import ThreadCache
from sizewright.training.ps.parameter_server import ParameterServer
from sizewright.training.ps.routing import Address
from sizewright.training.transport.exchange import receive_request, request_bytes, send_reply
from sizewright.training.transport.peers import Sink, serve_peer
from sizewright.training.transport.wire import Caller, Hello, Stranger, drop

# With Python's default of 5 ms, one busy thread delays the others for whole steps.
_SWITCH_INTERVAL_S = 0.0005
_THREADS = ThreadCache()
_CLOSE_TIMEOUT_S = 5.0
MAX_STRANGERS, HANDSHAKE_S = 64, 10.0
_BACKLOG = 128
_AT_ONCE = 16
_FULL_S = 0.05

Serve = Callable[[socket.socket, Hello], None]


class Listener:
    """Listens on a free port of `host` until closed, and serves each authenticated connection in its own thread.

    Connections that are not authenticated yet (strangers) have a deadline and no thread. At most `MAX_STRANGERS` of
    them are kept; the oldest is dropped to admit another.
    """

    def __init__(self, token: bytes, serve: Serve, host: str = "127.0.0.1") -> None:
        self.fault: str | None = None
        self._token, self._serve_link = token, serve
        self._socket = socket.create_server((host, 0), backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._links: set[socket.socket] = set()
        self._strangers: dict[socket.socket, Stranger] = {}
        self._serving: set[Future[None]] = set()
        self._wake, self._awake = socket.socketpair()
        self._closing = False
        self._listening = _THREADS.submit(self._listen)

    @property
    def address(self) -> Address:
        """The host and port to connect to."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Stop listening and drop every connection; afterwards no thread serves any."""
        self._closing = True
        with suppress(OSError):
            self._wake.send(b"x")
        wait([self._listening], timeout=_CLOSE_TIMEOUT_S)
        for each in (self._socket, self._wake, self._awake, *self._strangers, *self._links):
            drop(each)
        wait([self._listening, *self._serving], timeout=_CLOSE_TIMEOUT_S)
        self._serve_link = _serve_nobody  # breaks a reference cycle that would keep rows until a collection

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._awake, selectors.EVENT_READ)
            while not self._closing:
                try:
                    self._handle_events(selector)
                except Exception as error:  # a stranger must not stop the listener
                    self.fault = f"{type(error).__name__}: {error}"
                    time.sleep(_FULL_S)

    def _handle_events(self, selector: selectors.BaseSelector) -> None:
        next_deadline = min((each.deadline for each in self._strangers.values()), default=None)
        timeout_s = None if next_deadline is None else max(next_deadline - time.monotonic(), 0.0)
        ready = selector.select(timeout_s)
        for key, _ in ready:  # existing connections before new ones
            if isinstance(key.data, Stranger):
                self._read_hello(selector, key.data)
        now = time.monotonic()
        for expired in [each for each in self._strangers.values() if each.deadline <= now]:
            self._drop_stranger(selector, expired)
        if any(key.fileobj is self._socket for key, _ in ready):
            self._accept(selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        for _ in range(_AT_ONCE):
            try:
                link, _address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # mostly too many open files: dropping a stranger frees one
                self._drop_stranger(selector, next(iter(self._strangers.values()), None))
                time.sleep(_FULL_S)
                return
            if len(self._strangers) >= MAX_STRANGERS:
                self._drop_stranger(selector, next(iter(self._strangers.values())))
            try:
                stranger = Stranger(link, self._token, time.monotonic() + HANDSHAKE_S)
            except OSError:
                link.close()
                continue
            self._strangers[link] = stranger
            selector.register(link, selectors.EVENT_READ, stranger)

    def _read_hello(self, selector: selectors.BaseSelector, stranger: Stranger) -> None:
        if stranger.sock not in self._strangers:
            return
        try:
            hello = stranger.read()
        except (OSError, ValueError):
            self._drop_stranger(selector, stranger)
            return
        if hello is not None:
            selector.unregister(stranger.sock)
            del self._strangers[stranger.sock]
            self._links.add(stranger.sock)
            self._serving = {future for future in self._serving if not future.done()}
            self._serving.add(_THREADS.submit(self._serve, stranger.sock, hello))

    def _drop_stranger(self, selector: selectors.BaseSelector, stranger: Stranger | None) -> None:
        if stranger is not None:
            selector.unregister(stranger.sock)
            del self._strangers[stranger.sock]
            stranger.sock.close()

    def _serve(self, link: socket.socket, hello: Hello) -> None:
        try:
            self._serve_link(link, hello)
        except OSError:
            pass  # the other side has closed the connection
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        finally:
            self._links.discard(link)
            link.close()


def _serve_nobody(link: socket.socket, hello: Hello) -> None:
    """Serve nothing, after the listener was closed."""


class PsServer(Listener):
    """Serves a parameter server to workers and to its peers."""

    def __init__(self, ps: ParameterServer, token: bytes, host: str = "127.0.0.1") -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._ps = ps
        self.sent_bytes = self.received_bytes = 0
        self._counting = threading.Condition()
        self._answering = 0
        super().__init__(token, self._serve_caller, host)

    def close(self) -> None:
        """Refuse all requests and stop listening; afterwards no thread of the server refers to its rows."""
        self._ps.close()
        super().close()

    def _serve_caller(self, link: socket.socket, hello: Hello) -> None:
        """Serve a peer or a worker. The end of a link does not remove its worker, which may open another link."""
        if hello.caller != Caller.worker:
            self.count(0, serve_peer(link, hello.id, self._ps.incoming))
            return
        state = self._ps.worker_state(hello.id)
        widths = [store.width for store in self._ps.stores]
        while (request := receive_request(link, widths)) is not None:
            self.count(0, request_bytes(request))
            with self.answering():
                self.count(send_reply(link, self._ps.exchange(state, request)), 0)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count the request as pending until its reply has been sent."""
        with self._counting:
            self._answering += 1
        try:
            yield
        finally:
            with self._counting:
                self._answering -= 1
                self._counting.notify_all()

    def drain(self, timeout_s: float) -> None:
        """Wait until no request is pending: a push whose reply is lost would be repeated at another server."""
        with self._counting:
            self._counting.wait_for(lambda: not self._answering, timeout_s)

    def count(self, sent: int, received: int) -> None:
        """Add to the byte counters, from any thread."""
        with self._counting:
            self.sent_bytes += sent
            self.received_bytes += received


class SinkServer(Listener):
    """Receives rows for sinks that are not parameter servers; `make_sink` creates one per connection."""

    def __init__(self, make_sink: Callable[[int], Sink], token: bytes, host: str = "127.0.0.1") -> None:
        def serve(link: socket.socket, hello: Hello) -> None:
            sink = make_sink(hello.id)
            serve_peer(link, hello.id, lambda _: sink)

        super().__init__(token, serve, host)
