"""Runs side by side on Ray, on this host or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sizewright.errors import EngineError, SizewrightError

T = TypeVar("T")


def on_ray(run: Callable[[Any], T], cases: Sequence[Any], address: str | None) -> Iterator[T]:
    """What `run` gives for each case, as they end; each has one core.

    Raises MissingExtraError without ray, EngineError where it does not start or a case is lost, and whatever `run`
    raises.
    """
    from sizewright.training.engine import Engine

    engine = Engine(address=address)
    ray = engine.ray
    try:
        path = [os.path.abspath(each) for each in sys.path]  # an empty one is the working folder here
        shared = ray.put(run)  # with its trace, once
        remote = ray.remote(num_cpus=1, max_retries=2)(_called)
        waiting = [remote.remote([shared, ray.put(case)], path) for case in cases]
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            yield _got(ray, done[0])
    finally:
        engine.stop()


def _called(run_and_case: list[Any], path: list[str]) -> Any:
    """On a worker, which finds modules of the user's where they were found here."""
    import ray

    sys.path.extend(each for each in path if each not in sys.path)
    run, case = ray.get(run_and_case)
    return run(case)


def _got(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SizewrightError):
            raise error.cause from None
        if isinstance(error.cause, ray.exceptions.RayError):
            raise EngineError(
                f"A run could not begin: {str(error.cause).splitlines()[0]}",
                "Policies of your own must be installed on each machine of the cluster.",
            ) from error
        raise
    except ray.exceptions.RayError as error:
        raise EngineError(
            f"A run was lost: {str(error).splitlines()[0]}", "Try fewer jobs, or not in parallel."
        ) from error
