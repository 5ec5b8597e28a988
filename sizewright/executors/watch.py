"""A control loop beside a job that something else runs, until that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sizewright.errors import SizewrightError
from sizewright.executors.run import Look, Running
from sizewright.recommender.control import Tuner


def watch(
    running: Running,
    tuner: Tuner,
    *,
    looks: Sequence[Look] = (),
    forgive: Callable[[SizewrightError], None] = lambda _: None,
) -> None:
    """A turn whenever one is due; a job that cannot be asked in the midst of one is asked again in the next."""
    ended = False
    while not ended:
        try:
            running.turn(tuner)
        except SizewrightError as error:
            if running.executor.wait(running.handle, 0):
                return
            forgive(error)
        if tuner.latest:
            for look in (running.look, *looks):
                look(tuner.latest)
        ended = running.executor.wait(running.handle, tuner.turn_s)
