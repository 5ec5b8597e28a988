"""Answer the requests of other processes to a running job, and decide which of them may change it."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import ValidationError

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.runtime.control_protocol import ControlAnswer, ControlRequest, Status
from sizewright.runtime.run import Running
from sizewright.spec import RestoresReplicas
from sizewright.spec._base import validate_json

_LOG = logging.getLogger(__name__)


class ControlHandler:
    """Answer requests to one running job; a client is any object, identified by `is`."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._attached: object = None

    def disconnected(self, client: object) -> None:
        """Detach a client that has disconnected."""
        if client is self._attached:
            self._attached = None

    def answer(self, line: bytes, client: object) -> ControlAnswer:
        """Return the answer to one line of a client. No request can end the job."""
        try:
            return ControlAnswer(value=self._do(validate_json(ControlRequest, line), client))
        except ValidationError:
            return ControlAnswer.of(
                InputError("The request is not valid.", "Use the version of sizewright that runs the job.")
            )
        except SizewrightError as error:
            return ControlAnswer.of(error)
        except Exception as error:  # as in a turn of its own loop: the job trains on
            _LOG.debug("A request failed.", exc_info=error)
            return ControlAnswer.of(
                EngineError(f"The request failed: {type(error).__name__}: {error}.", "Check the allocation of the job.")
            )

    def _do(self, request: ControlRequest, client: object) -> Any:
        """Carry out a request, and return the value of its answer."""
        executor = self._running.executor
        handle = self._running.handle
        if request.do == "status":
            return self._status()
        if request.do == "observe":
            return executor.observe(handle).model_dump(mode="json")
        if request.do == "pause":
            return self._pause(True)
        if request.do == "resume":
            return self._pause(False)
        if request.do == "attach":
            self._check_may_change(client)
            self._attached = client
            return None
        if request.do == "expect_memory":
            self._check_may_change(client)
            if isinstance(executor, RestoresReplicas):
                executor.expect_memory(handle, request.ps_bytes)
            return None
        if request.plan is None:
            raise InputError(f"The request {request.do} needs a plan.")
        if request.do == "change_cost":
            return executor.change_cost(request.plan).model_dump(mode="json")
        self._check_may_change(client)
        executor.adjust(handle, request.plan)
        return None

    def _status(self) -> Any:
        running = self._running
        status = Status(
            job=running.job.with_absolute_path(),
            handle=running.handle,
            allocation=running.allocation,
            capabilities=running.executor.capabilities,
            tuned=running.controller is not None,
            paused=running.controller is not None and running.controller.paused,
            attached=self._attached is not None,
            decision=running.decision,
        )
        return status.model_dump(mode="json")

    def _check_may_change(self, client: object) -> None:
        """Raise InputError while another control loop changes the job: two would undo each other's changes."""
        name, controller = self._running.handle.id, self._running.controller
        if controller is not None and not controller.paused:
            raise InputError(
                f"{name} is tuned by its own loop.",
                f"Pause that first: sizewright tune {name} --pause; or use a dry run.",
            )
        if self._attached not in (None, client):
            raise InputError(f"{name} is tuned by another loop.", "End that one first, or use a dry run.")

    def _pause(self, paused: bool) -> None:
        name, controller = self._running.handle.id, self._running.controller
        if controller is None:
            raise InputError(f"{name} has no loop of its own.", "Run it with tuning (--tune).")
        if not paused and self._attached is not None:
            raise InputError(f"{name} is tuned by another loop.", "End that one first.")
        controller.paused = paused
