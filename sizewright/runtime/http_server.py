"""A small HTTP server for metrics and health, which idle connections cannot exhaust."""

from __future__ import annotations

import asyncio
import email
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from sizewright.errors import InputError

_MAX_CONNECTIONS, _REQUEST_S = 32, 10.0


class HttpServer:
    """An HTTP server in one thread. A request has one deadline, and the oldest one is dropped where there are too many.

    It answers with a WSGI application. Port 0 takes any free port, which `port` then names.
    The standard library's server has a thread for each connection, so that idle connections could exhaust a process.
    Raises InputError for a port that cannot be used.
    """

    def __init__(self, host: str, port: int, app: Callable[..., list[bytes]]) -> None:
        try:
            family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
            dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
        except (OSError, OverflowError) as error:
            raise InputError(f"Cannot serve metrics at {host}:{port}: {error}.", "Choose another port.") from None
        self.port: int = self._socket.getsockname()[1]
        self._app = app
        self._requests: deque[asyncio.Task[Any]] = deque()
        self._loop = asyncio.new_event_loop()
        self._closing = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, daemon=True, name="metrics port")
        self._thread.start()

    def close(self) -> None:
        """Drop every connection and release the port."""
        self._loop.call_soon_threadsafe(self._closing.set_result, None)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._listen())
        self._loop.close()

    async def _listen(self) -> None:
        # A listener of asyncio pauses for a second when the process can open no more files, and would log a traceback.
        self._loop.set_exception_handler(lambda *_: None)
        server = await asyncio.start_server(self._answer, sock=self._socket, backlog=_MAX_CONNECTIONS)
        await self._closing
        server.close()
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = asyncio.current_task()
        assert request
        self._requests.append(request)
        if len(self._requests) > _MAX_CONNECTIONS:
            self._requests.popleft().cancel()
        try:
            await asyncio.wait_for(self._exchange(reader, writer), _REQUEST_S)
        except (asyncio.CancelledError, asyncio.TimeoutError, asyncio.LimitOverrunError, EOFError, OSError, ValueError):
            pass  # a connection that sends no request, or not in time, gets no answer
        finally:
            with suppress(ValueError):  # it was dropped for another
                self._requests.remove(request)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.decode("latin-1").partition("\r\n")
        method, target, _ = line.split(" ")
        headers, url = email.message_from_string(fields), urlsplit(target)
        environ = {"REQUEST_METHOD": method, "PATH_INFO": url.path, "QUERY_STRING": url.query}
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}

        def start_response(status: str, headers: list[tuple[str, str]]) -> None:
            lines = [f"HTTP/1.0 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
            writer.write("\r\n".join(lines).encode("latin-1"))

        writer.writelines(self._app(environ, start_response))
        writer.close()
        await writer.wait_closed()
