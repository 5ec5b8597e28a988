"""A local HTTP server with answers that a test defines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


@contextmanager
def server(reply: Callable[[str, dict[str, str], dict[str, str]], Reply]) -> Iterator[str]:
    """Answer GET and POST with `reply(path, parameters, headers)`; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            answer = reply(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}, dict(self.headers))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
