"""Strangers at a listener: many, slow, silent, or with what they have overheard."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from sizewright.training.transport import listeners
from sizewright.training.transport.listeners import MAX_STRANGERS, Listener
from sizewright.training.transport.wire import Caller, Hello, connect, receive_bytes
from tests.helpers.training_parts import TOKEN

HELLO = Hello(Caller.worker, 7)
SERVER = """
import resource, sys
from sizewright.training.transport.listeners import Listener
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
listener = Listener(bytes.fromhex(sys.argv[1]), lambda link, hello: link.sendall(b"served"))
print(listener.address[1], flush=True)
sys.stdin.read()
"""


def serve(link: socket.socket, hello: Hello) -> None:
    link.sendall(b"served")
    receive_bytes(link, 1)


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = Listener(TOKEN, serve)
    yield opened
    opened.close()


def is_served(address: tuple[str, int]) -> bool:
    with connect(address, TOKEN, HELLO) as link:
        return receive_bytes(link, 6) == b"served"


def speak_slowly(link: socket.socket) -> None:
    for _ in range(100):
        link.sendall(b"x")
        time.sleep(0.1)


@contextlib.contextmanager
def strangers(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connections.append(stack.enter_context(socket.create_connection(address, timeout=10)))
        yield connections


def test_silent_strangers_block_nobody_and_use_no_threads(listener: Listener) -> None:
    before = threading.active_count()
    with strangers(listener.address, 3 * MAX_STRANGERS):
        assert is_served(listener.address)
        assert len(listener._strangers) <= MAX_STRANGERS
        assert threading.active_count() <= before + 1


def test_slow_stranger_has_one_deadline(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_S", 0.5)
    with strangers(listener.address, 1) as (slow,):
        began = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT011 (a reset or a broken pipe)
            speak_slowly(slow)
        assert time.monotonic() - began >= 0.4
    assert is_served(listener.address)


def test_token_is_never_sent_and_a_replay_is_refused(listener: Listener) -> None:
    heard: dict[str, bytes] = {"client": b"", "listener": b""}
    with socket.create_server(("127.0.0.1", 0)) as middle:

        def pass_on(source: socket.socket, sink: socket.socket, side: str) -> None:
            with contextlib.suppress(OSError):
                while part := source.recv(1 << 12):
                    heard[side] += part
                    sink.sendall(part)

        def relay() -> None:
            client, _ = middle.accept()
            server = socket.create_connection(listener.address)
            for words in ((client, server, "client"), (server, client, "listener")):
                threading.Thread(target=pass_on, args=words, daemon=True).start()

        threading.Thread(target=relay, daemon=True).start()
        assert is_served(middle.getsockname())
    assert TOKEN not in heard["client"] + heard["listener"]
    with strangers(listener.address, 1) as (again,):
        again.sendall(heard["client"])
        assert len(receive_bytes(again, 32) or b"") == 32  # another challenge
        with contextlib.suppress(ConnectionError):
            assert receive_bytes(again, 1) is None


def test_listener_without_the_token_is_detected() -> None:
    impostor = Listener(bytes(32), serve)
    with pytest.raises(ConnectionError):
        connect(impostor.address, TOKEN, HELLO)
    impostor.close()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept_anybody() -> None:
            link, _ = server.accept()
            link.sendall(bytes(64))

        threading.Thread(target=accept_anybody, daemon=True).start()
        with pytest.raises(ConnectionError, match="does not know the token"):
            connect(server.getsockname(), TOKEN, HELLO)


def test_listener_survives_the_limit_of_open_files() -> None:
    command = [sys.executable, "-c", SERVER, TOKEN.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        with strangers(address, 120):
            assert is_served(address)
        assert is_served(address)
        process.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_user_gets_only_a_challenge(listener: Listener) -> None:
    """What it sends back is no proof: it is turned away, and whoever belongs there is served meanwhile."""
    host, port = listener.address
    script = f"exec 3<>/dev/tcp/{host}/{port}; head -c 32 <&3 | wc -c; head -c 101 /dev/zero >&3; wc -c <&3"
    with subprocess.Popen(["bash", "-c", script], user=65534, group=65534, stdout=subprocess.PIPE, text=True) as other:
        assert is_served(listener.address)
        stdout, _ = other.communicate(timeout=30)
    assert stdout.split() == ["32", "0"]
