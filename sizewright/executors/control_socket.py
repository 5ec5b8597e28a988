"""A running job can be reached from other processes. All is answered in the thread that looks at it, between two looks,
so that nothing else touches its executor meanwhile."""

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
from sizewright.executors.control_answers import Answers
from sizewright.executors.control_protocol import MOST_BYTES, folder, line_of
from sizewright.executors.run import Look, Running
from sizewright.spec import Metrics

_LOG = logging.getLogger(__name__)
_LINGER_S = 0.02
"""Who was answered may have another question at once."""
_MOST_S = 0.25
"""The job's own loop is not held up for longer by questions."""
_SEND_S = 1.0


class ControlSocket:
    """Of one running job, from `beside` on until the context is left."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._path: Path | None = None
        self._waiting: dict[socket.socket, bytes] = {}
        """What came from each so far, short of a whole line."""

    def __enter__(self) -> ControlSocket:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        if self._path:
            self._path.unlink(missing_ok=True)

    def beside(self, running: Running) -> Look:
        """Opens it; a job that cannot be reached is run all the same."""
        try:
            self._open()
        except (OSError, EngineError) as error:
            _LOG.warning("`sizewright tune` will not find this run: %s", error)
        answers = Answers(running)

        def look(_: Metrics | None) -> None:
            self._serve(answers)

        return look

    def _open(self) -> None:
        path = folder() / f"{uuid.uuid4().hex[:8]}.sock"
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path.with_suffix(".new")))
            listening.listen()
            os.rename(path.with_suffix(".new"), path)  # whoever sees it can connect
        except OSError:
            listening.close()
            path.with_suffix(".new").unlink(missing_ok=True)
            raise
        self._path = path
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)

    def _serve(self, answers: Answers) -> None:
        until, linger_s = time.monotonic() + _MOST_S, 0.0
        while time.monotonic() < until and (ready := self._selector.select(linger_s)):
            # Who has gone leaves the place to who asks for it.
            for key, _ in sorted(ready, key=lambda each: not _has_gone(each[0].fileobj)):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj in self._waiting:
                    self._read(key.fileobj, answers)
                else:
                    self._accept(key.fileobj)
            linger_s = _LINGER_S

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listening.accept()
            connection.settimeout(_SEND_S)
            self._waiting[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket, answers: Answers) -> None:
        try:
            came = connection.recv(1 << 16)
            *lines, rest = (self._waiting[connection] + came).split(b"\n")
            self._waiting[connection] = rest
            for line in lines:
                connection.sendall(line_of(answers.to(line, connection)))
        except OSError:  # gone, or it does not read what it asked for
            came = b""
        if not came or len(rest) > MOST_BYTES:
            self._drop(connection, answers)

    def _drop(self, connection: socket.socket, answers: Answers) -> None:
        self._selector.unregister(connection)
        del self._waiting[connection]
        connection.close()
        answers.gone(connection)


def _has_gone(connection: object) -> bool:
    assert isinstance(connection, socket.socket)
    with suppress(OSError):  # the listening one
        return not connection.recv(1, socket.MSG_PEEK)
    return False
