"""Run a control loop for a job that another process runs, until the job ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sizewright.recommender.control.controller import Controller
from sizewright.runtime.run import MetricsCallback, Running, log_errors


def watch(
    running: Running,
    tuner: Controller,
    *,
    callbacks: Sequence[MetricsCallback] = (),
    forgive: Callable[[Exception], None] = lambda _: None,
) -> None:
    """Take a turn every `tuner.turn_s` seconds until the job ends; `forgive` receives the error of a failed turn."""
    safe_callbacks = [log_errors(callback) for callback in (running.on_metrics, *callbacks)]
    ended = False
    while not ended:
        try:
            running.turn(tuner)
        except Exception as error:
            if running.executor.wait(running.handle, 0):
                return
            forgive(error)
        if tuner.latest:
            for callback in safe_callbacks:
                callback(tuner.latest)
        ended = running.executor.wait(running.handle, tuner.turn_s)
