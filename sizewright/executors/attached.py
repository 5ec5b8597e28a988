"""Jobs that other processes run: found by name, watched and changed over their sockets."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.executors.control_protocol import Answer, Request, Status, folder, line_of
from sizewright.executors.watch_only import WatchOnly
from sizewright.spec import ChangeCost, Handle, Metrics, Plan
from sizewright.spec._base import checked, checked_json

_PATIENCE_S = 120.0
"""A run that is being changed does not answer meanwhile."""
_GREETING_S = 20.0


class Attached(WatchOnly):
    """A job that the process behind the socket at `path` runs. That launches and stops it; this only changes it."""

    name = "attached"

    def __init__(self, path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        self._path, self._patience_s = path, patience_s
        self._connection: socket.socket | None = None
        self._tuning = False
        self._who = f"The run at {path}"
        self.status = self.look_up()
        self._who = f"Run {self.status.handle.id}"
        self.capabilities = self.status.capabilities.model_copy(
            update={"launch": False, "stop": False, "render": False}
        )

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def look_up(self) -> Status:
        """How it is."""
        return checked(Status, self._ask("status"))

    def attach(self) -> None:
        """Be the one loop that changes it. Raises InputError while there is another."""
        self._ask("attach")
        self._tuning = True

    def pause(self, paused: bool = True) -> None:
        """Its own loop, or let that go on. Raises InputError where it has none."""
        self._ask("pause" if paused else "resume")

    def observe(self, handle: Handle) -> Metrics:
        """Sums of every replica, and what it runs at."""
        return checked(Metrics, self._ask("observe"))

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Have it carry out a plan."""
        self._ask("adjust", plan)

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """What a PS is forecast to need, for its own executor, which restores those that memory ends."""
        self._ask("expect_memory", ps_bytes=ps_bytes)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Seconds that the plan takes, as its own executor says."""
        return checked(ChangeCost, self._ask("change_cost", plan))

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether its process has ended it, or has ended; waits at most `timeout_s` seconds for that."""
        if self._connection is None:
            time.sleep(timeout_s)
            return not _answers(self._path)
        ended, _, _ = select.select([self._connection], [], [], timeout_s)  # it says nothing unless asked
        return bool(ended)

    def _ask(self, do: Any, plan: Plan | None = None, ps_bytes: int = 0) -> Any:
        try:
            answer = self._exchange(self._connected(), Request(do=do, plan=plan, ps_bytes=ps_bytes))
        except TimeoutError:
            self._hang_up()  # what it answers later is not for the next question
            raise EngineError(f"{self._who} does not answer.", "Wait, or look at its process.") from None
        except (OSError, ValidationError):
            self._hang_up()
            raise InputError(f"{self._who} has ended.", "Run it again to train on.") from None
        return answer.result()

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.settimeout(self._patience_s)
            self._connection.connect(str(self._path))
            if self._tuning:
                self._exchange(self._connection, Request(do="attach")).result()
        return self._connection

    def _exchange(self, connection: socket.socket, request: Request) -> Answer:
        connection.sendall(line_of(request))
        parts = [b""]
        while not parts[-1].endswith(b"\n"):
            parts.append(connection.recv(1 << 16))
            if not parts[-1]:
                raise ConnectionResetError
        return checked_json(Answer, b"".join(parts))

    def _hang_up(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None


def find_run(name: str) -> Attached:
    """The run of that job, or with that handle id. Raises InputError where there is none or several, listing them, and
    EngineError where one that may be it does not answer."""
    busy: list[SizewrightError] = []
    runs = list(_running(busy.append))
    found = [run for run in runs if name in (run.status.handle.id, run.status.job.name)]
    for run in runs:
        if len(found) != 1 or run is not found[0]:
            run.__exit__()
    if len(found) == 1:
        return found[0]
    if not found and busy:
        raise busy[0]
    if found:
        raise InputError(f"Several runs are called {name}.", f"Name one: {_listed(found)}.")
    raise InputError(f"Nothing is running by the name {name}.", f"Running: {_listed(runs) or 'nothing at all'}.")


def _running(busy: Callable[[SizewrightError], None]) -> Iterator[Attached]:
    """All that answer; sockets of processes that died are removed, and `busy` is told of those being changed."""
    for path in sorted(folder().glob("*.sock")):
        try:
            run = Attached(path, patience_s=_GREETING_S)
        except (SizewrightError, ValidationError) as error:
            if not _answers(path):
                path.unlink(missing_ok=True)
            elif isinstance(error, EngineError):
                busy(error)
        else:
            yield run


def _answers(path: Path) -> bool:
    """Whether there is a process behind it."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _listed(runs: list[Attached]) -> str:
    return ", ".join(run.status.handle.id for run in runs)
