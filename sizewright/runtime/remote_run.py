"""Jobs that other processes run: find them by name, observe and change them over their sockets."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.executors._base import ReadOnlyExecutor
from sizewright.runtime.control_protocol import (
    ControlAnswer,
    ControlRequest,
    Status,
    folder,
    is_listening,
    line_of,
    remove_dead_sockets,
)
from sizewright.spec import ChangeCost, Handle, Metrics, Plan
from sizewright.spec._base import validate, validate_json

_PATIENCE_S = 120.0
"""A run does not answer while it is being changed."""
_GREETING_S = 20.0


class RemoteRun(ReadOnlyExecutor):
    """A job that another process runs, behind the socket at `path`; it can be observed and changed, but not stopped."""

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

    def __enter__(self) -> RemoteRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def look_up(self) -> Status:
        """Return the state of the run."""
        return validate(Status, self._ask("status"))

    def attach(self) -> None:
        """Become the control loop of the run. Raises InputError while there is another."""
        self._ask("attach")
        self._tuning = True

    def pause(self, paused: bool = True) -> None:
        """Pause or resume the run's own control loop. Raises InputError where it has none."""
        self._ask("pause" if paused else "resume")

    def observe(self, handle: Handle) -> Metrics:
        """Return the counters of every replica, and the allocation."""
        return validate(Metrics, self._ask("observe"))

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Apply a plan to the run."""
        self._ask("adjust", plan)

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """Pass on the memory that a PS is forecast to need: the run's executor restarts PS that ran out of memory."""
        self._ask("expect_memory", ps_bytes=ps_bytes)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the seconds that the plan takes, by the estimate of the run's executor."""
        return validate(ChangeCost, self._ask("change_cost", plan))

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds; return whether the run or its process has ended."""
        if self._connection is None:
            time.sleep(timeout_s)
            return not is_listening(self._path)
        ended, _, _ = select.select(
            [self._connection], [], [], timeout_s
        )  # the run sends nothing unless asked, except the end of the connection
        return bool(ended)

    def _ask(self, do: Any, plan: Plan | None = None, ps_bytes: int = 0) -> Any:
        try:
            answer = self._exchange(self._connected(), ControlRequest(do=do, plan=plan, ps_bytes=ps_bytes))
        except TimeoutError:
            self._disconnect()  # a late answer must not be taken for that of the next request
            raise EngineError(f"{self._who} does not answer.", "Wait, or check its process.") from None
        except (OSError, ValidationError):
            self._disconnect()
            raise InputError(f"{self._who} has ended.", "Run it again to continue training.") from None
        return answer.result()

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.settimeout(self._patience_s)
            self._connection.connect(str(self._path))
            if self._tuning:
                self._exchange(self._connection, ControlRequest(do="attach")).result()
        return self._connection

    def _exchange(self, connection: socket.socket, request: ControlRequest) -> ControlAnswer:
        connection.sendall(line_of(request))
        parts = [b""]
        while not parts[-1].endswith(b"\n"):
            parts.append(connection.recv(1 << 16))
            if not parts[-1]:
                raise ConnectionResetError
        return validate_json(ControlAnswer, b"".join(parts))

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None


def find_run(name: str) -> RemoteRun:
    """Return the run of the job `name`, or with that handle id.

    Raises InputError, with the runs that exist, where there is none or several; EngineError where none is found and a
    run does not answer.
    """
    errors: list[SizewrightError] = []
    runs = list(_running(errors.append))
    matches = [run for run in runs if name in (run.status.handle.id, run.status.job.name)]
    for run in runs:
        if len(matches) != 1 or run is not matches[0]:
            run.__exit__()
    if len(matches) == 1:
        return matches[0]
    if not matches and errors:
        raise errors[0]
    if matches:
        raise InputError(f"Several runs are called {name}.", f"Name one: {_ids(matches)}.")
    raise InputError(f"No run is called {name}.", f"Running: {_ids(runs) or 'nothing'}.")


def _running(on_error: Callable[[SizewrightError], None]) -> Iterator[RemoteRun]:
    """Yield all runs that answer; remove the sockets of dead processes, and pass the errors of others to `on_error`."""
    remove_dead_sockets(folder())
    for path in sorted(folder().glob("*.sock")):
        try:
            run = RemoteRun(path, patience_s=_GREETING_S)
        except (SizewrightError, ValidationError) as error:
            if isinstance(error, EngineError):
                on_error(error)
        else:
            yield run


def _ids(runs: list[RemoteRun]) -> str:
    return ", ".join(run.status.handle.id for run in runs)
