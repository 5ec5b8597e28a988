"""Run jobs on an existing Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sizewright.errors import InputError
from sizewright.executors.session._base import SessionExecutor, TrainingSession
from sizewright.spec import Job


class RayExecutor(SessionExecutor):
    """Place workers and PS on the nodes of the cluster at `address`, such as `10.0.0.7:6379`.

    The other options are those of `SessionExecutor`. Launching needs the address; rendering does not.
    """

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        *,
        samples: int | None = None,
        snapshot_s: float | None = 10.0,
        folder: str | Path | None = None,
        resume: str | Path | None = None,
        hang_s: float = 30.0,
        timeout_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            samples=samples,
            snapshot_s=snapshot_s,
            folder=folder,
            resume=resume,
            hang_s=hang_s,
            timeout_s=timeout_s,
            clock=clock,
        )
        self._options["address"] = address

    def _open(self, job: Job) -> TrainingSession:
        if not self._options["address"]:
            raise InputError(
                "The ray executor needs the address of a running Ray.",
                'Give it: get_executor("ray", address="10.0.0.7:6379"), or --address 10.0.0.7:6379.',
            )
        return super()._open(job)

    def _constructor_call(self) -> str:
        return f'get_executor("ray", address="{self._options["address"] or "HOST:PORT"}")'
