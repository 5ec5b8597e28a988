"""What a running job answers to other processes, and which of them may change it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.executors.control_protocol import Answer, Request, Status
from sizewright.executors.run import Running
from sizewright.spec import RestoresReplicas
from sizewright.spec._base import checked_json

_LOG = logging.getLogger(__name__)


class Answers:
    """To what others ask of a running job; whoever asks is told apart by identity."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._attached: object = None

    def gone(self, asker: object) -> None:
        """It asks no more."""
        if asker is self._attached:
            self._attached = None

    def to(self, line: bytes, asker: object) -> Answer:
        """A line. Whatever it holds, the job goes on."""
        try:
            return Answer(value=self._do(checked_json(Request, line), asker))
        except ValidationError:
            return Answer.of(InputError("That is no request.", "Use a sizewright of the version that runs the job."))
        except SizewrightError as error:
            return Answer.of(error)
        except Exception as error:  # as in a turn of its own loop: the job trains on
            _LOG.debug("A question could not be answered.", exc_info=error)
            return Answer.of(EngineError(f"That failed: {type(error).__name__}: {error}.", "See what the job runs at."))

    def _do(self, request: Request, asker: object) -> Any:
        does: dict[str, Callable[[], Any]] = {
            "status": self._status,
            "observe": lambda: self._running.executor.observe(self._running.handle).model_dump(mode="json"),
            "expect_memory": lambda: self._expect_memory(request.ps_bytes, asker),
            "attach": lambda: self._attach(asker),
            "pause": lambda: self._pause(True),
            "resume": lambda: self._pause(False),
        }
        if request.do in does:
            return does[request.do]()
        if request.plan is None:
            raise InputError(f"To {request.do} takes a plan.")
        if request.do == "change_cost":
            return self._running.executor.change_cost(request.plan).model_dump(mode="json")
        self._free_for(asker)
        self._running.executor.adjust(self._running.handle, request.plan)
        return None

    def _status(self) -> Any:
        r = self._running
        status = Status(
            job=r.job.with_absolute_path(), handle=r.handle, allocation=r.allocation,
            capabilities=r.executor.capabilities, tuned=r.tuner is not None,
            paused=r.tuner is not None and r.tuner.paused, attached=self._attached is not None,
            decision=r.decision,
        )  # fmt: skip
        return status.model_dump(mode="json")

    def _free_for(self, asker: object) -> None:
        """Two loops at once would undo each other's changes."""
        name, tuner = self._running.handle.id, self._running.tuner
        if tuner is not None and not tuner.paused:
            raise InputError(
                f"{name} is tuned by its own loop.",
                f"Pause that first: sizewright tune {name} --pause; or only look (dry run).",
            )
        if self._attached not in (None, asker):
            raise InputError(f"{name} is tuned by another loop.", "End that one first; or only look (dry run).")

    def _attach(self, asker: object) -> None:
        self._free_for(asker)
        self._attached = asker

    def _expect_memory(self, ps_bytes: int, asker: object) -> None:
        self._free_for(asker)
        if isinstance(self._running.executor, RestoresReplicas):
            self._running.executor.expect_memory(self._running.handle, ps_bytes)

    def _pause(self, paused: bool) -> None:
        name, tuner = self._running.handle.id, self._running.tuner
        if tuner is None:
            raise InputError(f"{name} has no loop of its own.", "It was run without tuning, or from a plan.")
        if not paused and self._attached is not None:
            raise InputError(f"{name} is tuned by another loop.", "End that one first.")
        tuner.paused = paused
