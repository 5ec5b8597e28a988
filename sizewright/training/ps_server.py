"""Serves a parameter server over TCP: one thread a worker, all behind one token."""

from __future__ import annotations

import contextlib
import socket
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait

from sizewright.training.hash_index import Slots
from sizewright.training.ps import ParameterServer
from sizewright.training.wire import admit, receive_request, send_reply

# Python's default of 5 ms lets one busy thread hold back the others for whole steps.
_SWITCH_INTERVAL_S = 0.0005
# Threads are kept for later servers: a new one each would leave its malloc arena, full of freed arrays, behind.
_THREADS = ThreadPoolExecutor(max_workers=1024)
_CLOSE_TIMEOUT_S = 5.0


class PsServer:
    """Listens on a free port of `host` until closed."""

    def __init__(self, ps: ParameterServer, token: bytes, host: str = "127.0.0.1") -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._ps = ps
        self.fault: str | None = None
        self._token = token
        self._socket = socket.create_server((host, 0))
        self._links: list[socket.socket] = []
        self._serving: list[Future[None]] = []
        self._listening = _THREADS.submit(self._listen)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Stop listening and drop every connection; afterwards no thread of the server holds its rows."""
        self._ps.close()
        _drop(self._socket)
        wait([self._listening], timeout=_CLOSE_TIMEOUT_S)
        for link in self._links:
            _drop(link)
        wait([self._listening, *self._serving], timeout=_CLOSE_TIMEOUT_S)

    def _listen(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            self._links.append(link)
            self._serving.append(_THREADS.submit(self._serve, link))

    def _serve(self, link: socket.socket) -> None:
        if not admit(link, self._token):
            return
        places: dict[int, Slots] = {}
        width = self._ps.store.width
        try:
            while (request := receive_request(link, width)) is not None:
                send_reply(link, self._ps.exchange(request, places))
        except OSError:
            pass  # the worker has gone
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        finally:
            link.close()


def _drop(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits on it; closing alone does not
    sock.close()
