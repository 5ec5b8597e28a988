"""A control loop beside a run: put together from what is known of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from threadpoolctl import threadpool_limits

from sizewright.datasets.trials import Trial, now
from sizewright.errors import InputError, StoreError
from sizewright.models.prior import JobCurve
from sizewright.recommender.auto_scale import Scaling
from sizewright.recommender.control import Tuner
from sizewright.recommender.decisions import DecisionLog
from sizewright.recommender.online_fit import AtOnce, Pool
from sizewright.recommender.scaler import AutoScaler
from sizewright.spec import Allocation, Cluster, Executor, Handle, Job
from sizewright.spec._base import Record

Beside = Callable[[Handle, Allocation], Tuner]


class Tuning(Record):
    """How a running job is watched and changed."""

    scaling: Scaling = Scaling()
    turn_s: float = 1.0
    """Seconds between two looks."""
    dry_run: bool = False
    """Decide and change nothing."""
    decisions: Path | None = None
    """File that decisions are appended to; a loop that finds some of its job there goes on from them."""


@contextmanager
def tuning(
    job: Job,
    executor: Executor,
    tuning: Tuning,
    *,
    trials: Sequence[Trial] = (),
    foretold: JobCurve | None = None,
    cluster: Cluster | None = None,
    forgive: Callable[[StoreError], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = now,
    at_once: bool = False,
) -> Iterator[Beside]:
    """Makes the loop of a job that `executor` runs, given its handle and allocation; its fits end with the context.

    `clock` and `now` are the time of the job, which waits for fits where they are made `at_once`.
    Raises InputError for a job whose allocations cannot be compared while it runs, StoreError for decisions that
    cannot be written.
    """
    if job.command:
        raise InputError(
            f"Job {job.name} runs a command, which starts anew with every change.",
            "Run it without tuning; sizewright recommend sizes it before the next run.",
        )
    scaler = AutoScaler(job, trials, foretold, cluster=cluster, scaling=tuning.scaling)
    log = DecisionLog(tuning.decisions) if tuning.decisions else None
    if log:
        log.check()
    # Cores belong to the job: matrix products this small gain nothing by threads, which spin between two of them.
    with threadpool_limits(1), ThreadPoolExecutor(1, thread_name_prefix="refit") as background:
        pool: Pool = AtOnce() if at_once else background
        yield lambda handle, allocation: Tuner(
            job, executor, handle, allocation, scaler, clock=clock, now=now, log=log, turn_s=tuning.turn_s,
            dry_run=tuning.dry_run, forgive=forgive, pool=pool,
        )  # fmt: skip
