"""Serve a running job's socket to other processes.

Requests are answered in the thread that observes the job, between two observations, so that only one thread uses its
executor.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path

from sizewright.errors import EngineError
from sizewright.runtime.control_handler import ControlHandler
from sizewright.runtime.control_protocol import MAX_LINE_BYTES, UNFINISHED, folder, line_of, remove_dead_sockets
from sizewright.runtime.run import MetricsCallback, Running
from sizewright.spec import Metrics

_LOG = logging.getLogger(__name__)
_LINGER_S = 0.02
"""Time for a client that was answered to send its next request."""
_MAX_SERVE_S = 0.25
"""Requests delay the job's own loop by no more than this."""
_SEND_S = 1.0


class ControlSocket:
    """The socket of one running job, open from `observer` until the context ends."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._path: Path | None = None
        self._partial: dict[socket.socket, bytes] = {}
        """The incomplete line of each connection."""

    def __enter__(self) -> ControlSocket:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        if self._path:
            self._path.unlink(missing_ok=True)

    def observer(self, running: Running) -> MetricsCallback:
        """Open the socket and return the callback that serves it; where it cannot be opened, the job runs without."""
        try:
            self._open()
        except (OSError, EngineError) as error:
            _LOG.warning("Other processes cannot reach this run, such as `sizewright tune`: %s", error)
        handler = ControlHandler(running)

        def on_metrics(_: Metrics | None) -> None:
            self._serve(handler)

        return on_metrics

    def _open(self) -> None:
        path = folder() / f"{uuid.uuid4().hex[:8]}.sock"
        remove_dead_sockets(path.parent)
        unfinished = path.with_suffix(UNFINISHED)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(unfinished))
            listener.listen()
            os.rename(unfinished, path)  # a client that sees it can connect
        except OSError:
            listener.close()
            unfinished.unlink(missing_ok=True)
            raise
        self._path = path
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def _serve(self, handler: ControlHandler) -> None:
        end_s = time.monotonic() + _MAX_SERVE_S
        linger_s = 0.0
        while time.monotonic() < end_s and (ready := self._selector.select(linger_s)):
            # Clients that have disconnected come first: one of them may be attached, and another may wait to attach.
            for key, _ in sorted(ready, key=lambda each: not _has_disconnected(each[0].fileobj)):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj in self._partial:
                    self._read(key.fileobj, handler)
                    continue
                with suppress(OSError):
                    connection, _ = key.fileobj.accept()
                    connection.settimeout(_SEND_S)
                    self._partial[connection] = b""
                    self._selector.register(connection, selectors.EVENT_READ)
            linger_s = _LINGER_S

    def _read(self, connection: socket.socket, handler: ControlHandler) -> None:
        """Answer the complete lines of a connection, and close it if its client has disconnected."""
        try:
            received = connection.recv(1 << 16)
            *lines, rest = (self._partial[connection] + received).split(b"\n")
            self._partial[connection] = rest
            for line in lines:
                connection.sendall(line_of(handler.answer(line, connection)))
        except OSError:  # disconnected, or the client does not read the answers
            received = b""
        if not received or len(rest) > MAX_LINE_BYTES:
            self._selector.unregister(connection)
            del self._partial[connection]
            connection.close()
            handler.disconnected(connection)


def _has_disconnected(connection: object) -> bool:
    assert isinstance(connection, socket.socket)
    with suppress(OSError):  # the listener has nothing to peek at
        return not connection.recv(1, socket.MSG_PEEK)
    return False
