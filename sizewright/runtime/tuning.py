"""Build the control loop of a running job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from threadpoolctl import threadpool_limits

from sizewright.datasets.trials.trial import Trial, now
from sizewright.errors import InputError, StoreError
from sizewright.models._base import BaseThroughputModel
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.decisions import DecisionLog
from sizewright.recommender.control.refit import Pool, SynchronousPool
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.spec import Allocation, Cluster, Executor, Handle, Job
from sizewright.spec._base import Record

ControllerFactory = Callable[[Handle, Allocation], Controller]
"""Make the control loop of a job, given its handle and allocation."""


class Tuning(Record):
    """Settings of the control loop."""

    scaling: Scaling = Scaling()
    turn_s: float = 1.0
    """Seconds between two turns."""
    dry_run: bool = False
    """Decide without changing anything."""
    decisions: Path | None = None
    """File to append decisions to; a loop that finds decisions about its run there continues from them."""


@contextmanager
def controller_factory(
    job: Job,
    executor: Executor,
    settings: Tuning,
    *,
    trials: Sequence[Trial] = (),
    predictor: BaseThroughputModel | None = None,
    cluster: Cluster | None = None,
    on_error: Callable[[StoreError], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = now,
    at_once: bool = False,
) -> Iterator[ControllerFactory]:
    """Yield a function that makes the control loop of a job, given its handle and allocation.

    Models are fitted in the background until the context ends, or in the loop's own turns where `at_once` is true.
    `clock` (seconds) and `now` (time of day) are those of the job. `predictor` predicts its throughput, as in
    `AutoScaler`.

    Raises InputError for a job with a command, whose allocations cannot be compared while it runs, and StoreError
    where the file of decisions cannot be written.
    """
    if job.command:
        raise InputError(
            f"Job {job.name} runs a command, which restarts with every change, so it cannot be tuned while it runs.",
            "Run it without tuning, and size it before the next run: sizewright recommend",
        )
    job.check_trainable()
    job.shared_batch()  # raises where limits of the bounds left no number of workers
    scaler = AutoScaler(job, trials, predictor, cluster=cluster, scaling=settings.scaling)
    log = DecisionLog(settings.decisions) if settings.decisions else None
    if log:
        log.check()
    # The cores belong to the job: threads do not speed up matrix products this small, and spin between them.
    with threadpool_limits(1), ThreadPoolExecutor(1, thread_name_prefix="refit") as background:
        pool: Pool = SynchronousPool() if at_once else background
        yield lambda handle, allocation: Controller(
            job,
            executor,
            handle,
            allocation,
            scaler,
            clock=clock,
            now=now,
            log=log,
            turn_s=settings.turn_s,
            dry_run=settings.dry_run,
            on_error=on_error,
            pool=pool,
        )
