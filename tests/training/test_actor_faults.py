"""Faults of the actors of both roles, without starting their processes."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sizewright.training.ps.actor import PsActor
from sizewright.training.transport.exchange import ExchangeRequest
from sizewright.training.worker.actor import WorkerActor


@pytest.mark.parametrize(("fault", "is_idle"), [(None, True), ("ValueError: broken", False)])
def test_worker_that_failed_is_not_idle(fault: str | None, is_idle: bool) -> None:
    """An idle worker is started again as if it had paused; one that failed must be replaced and reported."""
    worker = object.__new__(WorkerActor)
    worker._training = Future()
    worker._training.set_result(None)
    worker._fault = fault
    assert worker.is_idle() is is_idle


@pytest.mark.parametrize(
    ("error", "fault"), [(MemoryError("no room"), "MemoryError: no room"), (ConnectionError("stale"), None)]
)
def test_exchange_over_ray_that_fails_is_a_fault_of_its_server(error: Exception, fault: str | None) -> None:
    def fail(*_: object) -> None:
        raise error

    server = object.__new__(PsActor)
    server._server = cast(Any, SimpleNamespace(answering=contextlib.nullcontext, fault=None))
    server._ps = cast(Any, SimpleNamespace(exchange=fail, worker_state=lambda _: None))
    with pytest.raises(type(error)):
        server.exchange(1, ExchangeRequest(1, 0))
    assert server.fault() == fault
