"""A control loop beside a job that something else runs, until that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sizewright.executors.run import Look, Running, forgiving
from sizewright.recommender.control import Tuner


def watch(
    running: Running,
    tuner: Tuner,
    *,
    looks: Sequence[Look] = (),
    forgive: Callable[[Exception], None] = lambda _: None,
) -> None:
    """A turn whenever one is due; a job that cannot be asked in the midst of one is asked again in the next."""
    forgiven, ended = [forgiving(look) for look in (running.look, *looks)], False
    while not ended:
        try:
            running.turn(tuner)
        except Exception as error:
            if running.executor.wait(running.handle, 0):
                return
            forgive(error)
        if tuner.latest:
            for look in forgiven:
                look(tuner.latest)
        ended = running.executor.wait(running.handle, tuner.turn_s)
