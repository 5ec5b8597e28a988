"""Run a function on many cases side by side on Ray, on this host or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sizewright.errors import EngineError, SizewrightError

T = TypeVar("T")


def on_ray(run: Callable[[Any], T], cases: Sequence[Any], address: str | None) -> Iterator[T]:
    """Yield the result of `run` for each case, in the order in which they end; each case gets one core.

    Raises MissingExtraError without ray, EngineError when Ray does not start or a case is lost, and what `run` raises.
    """
    from sizewright.training.ray.engine import Engine

    engine = Engine(address=address)
    ray = engine.ray
    try:
        path = [os.path.abspath(folder) for folder in sys.path]  # an empty entry is the working folder of this process
        shared = ray.put(run)  # once, with the trace that it holds
        remote = ray.remote(num_cpus=1, max_retries=2)(_run_remotely)
        waiting = [remote.remote([shared, ray.put(case)], path) for case in cases]
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            yield _result(ray, done[0])
    finally:
        engine.stop()


def _run_remotely(run_and_case: list[Any], path: list[str]) -> Any:
    """Run a case in a worker process, which imports the user's modules from the same folders as the driver."""
    import ray

    sys.path.extend(folder for folder in path if folder not in sys.path)
    run, case = ray.get(run_and_case)
    return run(case)


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SizewrightError):
            raise error.cause from None
        if isinstance(error.cause, ray.exceptions.RayError):
            raise EngineError(
                f"A run could not start: {str(error.cause).splitlines()[0]}",
                "Install your own policies on each machine of the cluster.",
            ) from error
        raise
    except ray.exceptions.RayError as error:
        raise EngineError(
            f"A run was lost: {str(error).splitlines()[0]}", "Try fewer jobs, or not in parallel."
        ) from error
