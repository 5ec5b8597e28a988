"""A session of a user's command, where a change of the allocation is stop, checkpoint and restart."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import socket
import threading
import time
from pathlib import Path

from sizewright.errors import EngineError, SizewrightError
from sizewright.interrupts import uninterrupted
from sizewright.progress import TRIAL_VARIABLE
from sizewright.spec import Allocation, Change, Job, Metrics, Outcome, Status
from sizewright.spec._paths import absolute
from sizewright.training.command.local_launcher import LocalLauncher
from sizewright.training.command.ray_launcher import RayLauncher
from sizewright.training.command.reports import Report
from sizewright.training.command.run import Run
from sizewright.training.host.allocation_check import check_room
from sizewright.training.host.device import check_device

RESTARTS_VARIABLE = "SIZEWRIGHT_RESTARTS"
LOGS = "sizewright-logs"
_WATCH_S = 0.25
_TRIAL_GRACE_S = 1.0


class CommandSession:
    """Runs a job's command at one allocation after the other, on this host or on the Ray cluster at `address`.

    Use it as a context manager: leaving it ends every process and removes every control group. Logs are written to a
    folder below `logs`. In a trial (`trial`) an environment variable says so, processes are ended quickly, and logs of
    successful starts are removed.

    Raise InputError if a value of `command.env` is withheld and not in the environment, and EngineError for a job that
    trains on GPUs where there is none.
    """

    def __init__(self, job: Job, *, address: str | None = None, logs: str | Path = LOGS, trial: bool = False) -> None:
        assert job.command is not None
        command = job.command.with_values(os.environ)
        self.job = job.model_copy(update={"command": command}).with_absolute_path()
        self._command, self._trial = command, trial
        name = f"sizewright-{os.getpid()}-{secrets.token_hex(2)}"
        self._address = address
        self._logs = Path(absolute(logs)) / f"{job.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self._run: Run | None = None
        self._starts = self._samples = self._before = 0
        self._lock = threading.RLock()
        self._watching: threading.Thread | None = None
        self._over, self._stopped = threading.Event(), threading.Event()
        self._fault: SizewrightError | None = None
        self._status: Status = "running"
        self._notes = ""
        self._began: float | None = None
        self._ended: float | None = None
        self._changes: list[Change] = []
        with uninterrupted():
            self._place = RayLauncher(name, address) if address else LocalLauncher(name)
            atexit.register(self.stop)  # for a program that ends without
        if job.training.device == "cuda" and not self.gpus:
            try:
                check_device(job)  # PyTorch also knows other GPUs than those of NVIDIA
            except BaseException:
                self.stop()
                raise

    def __enter__(self) -> CommandSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def host(self) -> str:
        """The name of this host, or the cluster's address."""
        return self._address or socket.gethostname()

    @property
    def cores(self) -> float:
        """The cores of all machines."""
        return sum(available.cores for available in self._place.node_resources)

    @property
    def gpus(self) -> int:
        """The GPUs of all machines."""
        return sum(available.gpus for available in self._place.node_resources)

    @property
    def memory_bytes(self) -> int:
        """The free memory of all machines when the session began."""
        return sum(available.memory_bytes for available in self._place.node_resources)

    @property
    def whole_cores(self) -> bool:
        """Return whether CPU limits can be whole cores only, because there are no control groups."""
        return any(available.tree is None for available in self._place.node_resources)

    @property
    def allocation(self) -> Allocation | None:
        """The current allocation, None if the command does not run."""
        return self._run.allocation if self._run else None

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        """Run at `allocation`; return once the command reports samples and its CPU limits are set.

        A running command is stopped with SIGTERM, at which it may write a checkpoint, and started again.
        """
        self._check(allocation)
        if self.finished and not self._trial:
            raise EngineError("The command has already finished, so it cannot be changed.", "Launch it again.")
        began = time.monotonic()
        with self._lock:
            restart = self._began is not None
            self._end()
            self._start(allocation)
            self._began = self._began or time.monotonic()
            if restart:
                self._changes.append(
                    Change(
                        at_s=max(0.0, began - self._began),
                        kind="restart",
                        seconds=time.monotonic() - began,
                        description=allocation.describe(),
                    )
                )
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, daemon=True, name="watch")
            self._watching.start()

    def replace(self, name: str) -> str:
        """Raise EngineError, since any change restarts all replicas of a command."""
        raise EngineError(
            f"{name} cannot be replaced: a command's replicas can only be restarted together.", "Scale it instead."
        )

    def expect_memory(self, ps_bytes: int) -> None:
        """Do nothing, since replicas of a command are not restored one by one."""

    def rebalance(self) -> None:
        """Raise EngineError, since a command distributes its rows itself."""
        raise EngineError(
            "The rows cannot be rebalanced: a command distributes them over its PS itself.", "Scale it instead."
        )

    def pause(self) -> None:
        """Stop the command until the next `scale`."""
        with self._lock:
            self._end()

    def discard(self) -> None:
        """Kill the command at once, and forget its failure."""
        with self._lock:
            self._end(keep_logs=True)
            self._fault = None

    def observe(self) -> Metrics:
        """Return the metrics of every replica. Raise the error that ended the job, if any."""
        with self._lock:
            run = self._look()
            remaining = self.job.samples_left(self._samples)
            return Metrics(replicas=run.metrics, samples_trained=self._samples, samples_left=remaining)

    def reports(self) -> list[list[Report]]:
        """Return the reports of each replica since the last start, on this host's monotonic clock."""
        with self._lock:
            return self._look().series()

    @property
    def finished(self) -> bool:
        """Return whether the command has succeeded."""
        return self._status == "finished"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` for the end of the command, and return whether it has succeeded.

        Raise the error that ended it, if any.
        """
        self._over.wait(timeout_s)
        if self._fault:
            raise self._fault
        return self.finished

    def outcome(self) -> Outcome:
        """Return the outcome so far."""
        end = self._ended or time.monotonic()
        return Outcome(
            status="failed" if self._fault else self._status,
            message=str(self._fault or self._notes),
            samples=self._samples,
            duration_s=0.0 if self._began is None else end - self._began,
            changes=tuple(self._changes),
        )

    def stop(self) -> None:
        """End everything."""
        self._stopped.set()
        with uninterrupted():
            with self._lock:
                self._end()
                self._ended = self._ended or time.monotonic()
                if self._status == "running":
                    self._status = "stopped"
                self._over.set()
            if self._watching is not None and self._watching is not threading.current_thread():
                self._watching.join(10)
            self._place.close()
            atexit.unregister(self.stop)

    def _check(self, allocation: Allocation) -> None:
        """Raise EngineError for an allocation that cannot run, before anything is changed."""
        if not allocation.replicas("worker"):
            raise EngineError("The allocation needs at least one worker.", "Set replicas to 1 or more.")
        if self.job.has_ps != bool(allocation.replicas("ps")):
            needs = "needs at least one PS" if self.job.has_ps else "has no PS"
            why = "" if self._command.may_have_ps else ", since its rendezvous is torchrun"
            raise EngineError(f"{self.job.name} {needs}{why}.", "Change the allocation's PS, or bounds.ps.replicas.")
        check_room(allocation, self._place.node_resources)

    def _start(self, allocation: Allocation) -> None:
        run = Run(self.job, allocation, self._place, self._logs / f"start-{self._starts}")
        env = {RESTARTS_VARIABLE: str(self._starts)} | ({TRIAL_VARIABLE: "1"} if self._trial else {})
        self._starts += 1
        self._over.clear()
        self._status, self._ended = "running", None
        self._run, self._before = run, self._samples
        try:
            run.start(env)
            run.await_reports()
            run.hold()
        except BaseException:
            self._end(keep_logs=True)
            raise

    def _end(self, *, keep_logs: bool = False) -> None:
        run = self._run
        if run is None:
            return
        grace_s = self._command.grace_s
        try:
            run.end(0.0 if keep_logs else min(grace_s, _TRIAL_GRACE_S) if self._trial else grace_s)
            if not keep_logs:
                self._samples = self._total(run)
        finally:
            self._run = None
        if self._trial and not keep_logs:
            shutil.rmtree(run.folder, ignore_errors=True)
            for empty in (self._logs, self._logs.parent):
                if empty.is_dir() and not any(empty.iterdir()):
                    empty.rmdir()

    def _look(self) -> Run:
        if self._fault:
            raise self._fault
        if self._run is None:
            raise EngineError("The command does not run now.", "Start it: scale(allocation).")
        try:
            self._run.observe()
            self._run.check_silence()
        except SizewrightError as error:
            self._fault = error
            self._over.set()
            raise
        finally:
            self._samples = self._total(self._run)
        if self._run.finished and not self._over.is_set():
            self._status, self._notes = "finished", self._run.orphan_note
            self._ended = time.monotonic()
            self._over.set()
        return self._run

    def _total(self, run: Run) -> int:
        return run.samples + (self._before if run.counts_from_zero else 0)

    def _watch(self) -> None:
        while not self._stopped.wait(_WATCH_S):
            with self._lock:
                if self._run is not None and not self._over.is_set():
                    with contextlib.suppress(SizewrightError):  # `observe` and `wait` raise it
                        self._look()
