"""Simulated connections: byte streams with latency that can break and lose data in flight."""

from __future__ import annotations

import itertools
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from sizewright.training.transport.wire import Hello
from tests.helpers.simulation.scheduler import Process, Scheduler, Task

Address = tuple[str, int]
_LATENCY_S, _SLOW_S, _SLOW_SHARE = 0.0005, 0.3, 0.01


class Network:
    """Listeners by address, and all open connections."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.links: list[tuple[SimSocket, SimSocket]] = []
        self._listeners: dict[Address, tuple[Any, Process]] = {}
        self._ports = itertools.count(1000)

    def listen(self, listener: Any) -> Address:
        """Return a new address of the calling process."""
        address = ("127.0.0.1", next(self._ports))
        assert self.scheduler.current is not None
        self._listeners[address] = listener, self.scheduler.current.process
        return address

    def forget(self, address: Address) -> None:
        """Remove the listener of an address."""
        self._listeners.pop(address, None)

    def connect(self, address: Address, token: bytes, hello: Hello, timeout_s: float = 30.0) -> SimSocket:
        """Stands for `wire.connect`."""
        scheduler = self.scheduler
        scheduler.wait(scheduler.delay(_LATENCY_S))
        listener, process = self._listeners.get(tuple(address), (None, None))  # type: ignore[arg-type]
        deadline = scheduler.now + timeout_s
        while process is not None and process.stopped and process.alive:  # its kernel accepts the connection meanwhile
            if scheduler.now > deadline:
                raise TimeoutError("timed out")
            scheduler.wait(0.05)
        if process is None or not process.alive:
            raise ConnectionRefusedError("refused")
        assert scheduler.current is not None
        mine, theirs = SimSocket(self, scheduler.current.process), SimSocket(self, process)
        mine.peer, theirs.peer = theirs, mine
        self.links = [link for link in self.links if not any(end.gone or end.broken for end in link)]
        self.links.append((mine, theirs))
        listener._links.add(theirs)
        task = scheduler.spawn(process, lambda: listener._serve(theirs, hello), "serve")
        listener.serving.append(task)
        return mine

    def cut(self, link: tuple[SimSocket, SimSocket]) -> None:
        """Break a connection; data in flight is lost or still arrives, independently in each direction."""
        for end in link:
            end.break_off(lost=self.scheduler.rng.random() < 0.5)


class SimSocket:
    """One end of a connection."""

    _numbers = itertools.count()

    def __init__(self, network: Network, process: Process) -> None:
        self.number = next(SimSocket._numbers)
        self.network, self.scheduler, self.process = network, network.scheduler, process
        self.peer: SimSocket = self
        self.gone = self.broken = False
        self._came: deque[tuple[float, memoryview]] = deque()
        self._ended_at: float | None = None
        self._reading: list[Task] = []
        self._timeout_s: float | None = None
        process.on_kill.append(self.close)

    def __hash__(self) -> int:
        return self.number

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds

    def sendall(self, data: bytes | memoryview) -> None:
        if self.scheduler.over:
            return
        if self.gone or self.peer.gone or self.broken:
            raise BrokenPipeError("broken pipe")
        self.peer.take(bytes(data))

    def take(self, data: bytes) -> None:
        """Queue bytes that arrive after a latency."""
        last = self._came[-1][0] if self._came else self.scheduler.now
        slow = self.scheduler.rng.random() < _SLOW_SHARE
        at = max(last, self.scheduler.now + self.scheduler.delay(_SLOW_S if slow else _LATENCY_S))
        self._came.append((at, memoryview(data)))
        self._wake()

    def recv(self, size: int) -> bytes:
        view = bytearray(size)
        return bytes(view[: self.recv_into(memoryview(view))])

    def recv_into(self, view: memoryview) -> int:
        deadline = None if self._timeout_s is None else self.scheduler.now + self._timeout_s
        while True:
            now = self.scheduler.now
            if self.gone:
                return 0
            if self._came and self._came[0][0] <= now:
                at, data = self._came.popleft()
                count = min(len(view), len(data))
                view[:count] = data[:count]
                if count < len(data):
                    self._came.appendleft((at, data[count:]))
                return count
            if self._ended_at is not None and not self._came and self._ended_at <= now:
                return 0
            if deadline is not None and now >= deadline:
                raise TimeoutError("timed out")
            next_s = self._came[0][0] if self._came else self._ended_at
            waits = [at - now for at in (next_s, deadline) if at is not None]
            assert self.scheduler.current is not None
            self._reading.append(self.scheduler.current)
            self.scheduler.wait(min(waits) if waits else None)
            if self.scheduler.current in self._reading:
                self._reading.remove(self.scheduler.current)

    def awaits(self, now: float) -> bool:
        """Return whether data is in flight to this end."""
        return bool(self._came) and self._came[-1][0] > now

    def shutdown(self, how: int) -> None:
        self.close()

    def close(self) -> None:
        """Close this end; the other side still reads what was sent, and then the end."""
        if self.gone or self.scheduler.over:
            return
        self.gone = True
        self._wake()
        self.peer.end()

    def end(self) -> None:
        """Note that the other side has closed."""
        last = self._came[-1][0] if self._came else self.scheduler.now
        self._ended_at = max(last, self.scheduler.now + self.scheduler.delay(_LATENCY_S))
        self._wake()

    def break_off(self, *, lost: bool) -> None:
        """Break this end; data in flight is dropped if `lost`."""
        if lost:
            self._came.clear()
        self.broken = True
        self.end()

    def _wake(self) -> None:
        reading, self._reading = self._reading, []
        for task in reading:
            self.scheduler.wake(task)


class SimListener:
    """Replaces the sockets of a Listener; the rest of the Listener runs unchanged."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def methods(self) -> dict[str, Callable[..., Any] | property]:
        network = self._network

        def begin(listener: Any, token: bytes, serve: Any, host: str = "127.0.0.1") -> None:
            listener.fault, listener._serve_link, listener._links = None, serve, set()
            listener.serving = []
            listener.at = network.listen(listener)

        def close(listener: Any) -> None:
            network.forget(listener.at)
            for link in sorted(listener._links, key=lambda link: link.number):
                link.close()
            deadline = network.scheduler.now + 5.0
            while any(not task.done for task in listener.serving) and network.scheduler.now < deadline:
                network.scheduler.wait(0.001)

        return {"__init__": begin, "close": close, "address": property(lambda listener: listener.at)}


assert socket  # the constants that the engine passes to `shutdown` are the real ones
