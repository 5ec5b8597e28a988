"""A session of the user's own command: as a `Session`, but a change is stop, checkpoint and restart."""

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
from sizewright.spec import Allocation, Change, Job, Metrics, Outcome, Status
from sizewright.spec._paths import absolute
from sizewright.training.allocation_check import check_room
from sizewright.training.command.here import Here
from sizewright.training.command.on_ray import OnRay
from sizewright.training.command.reports import Report
from sizewright.training.command.run import Run

TRIAL_VARIABLE, RESTARTS_VARIABLE = "SIZEWRIGHT_TRIAL", "SIZEWRIGHT_RESTARTS"
LOGS = "sizewright-logs"
_WATCH_S = 0.25
_TRIAL_GRACE_S = 1.0


class CommandSession:
    """Runs a job's command at one allocation after the other, here or on the Ray cluster at `address`. Use as a
    context manager: leaving it ends every process and removes every control group. Logs are kept in a folder below
    `logs`.

    Raises InputError where a value of `command.env` is withheld and not in the environment.

    In trials (`trial`) the environment says so, ends are quick, and logs of starts that went well are removed.
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
            self._place = OnRay(name, address) if address else Here(name)
            atexit.register(self.stop)  # for a program that ends without

    def __enter__(self) -> CommandSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def host(self) -> str:
        """Where it runs: this host's name, or the cluster's address."""
        return self._address or socket.gethostname()

    @property
    def cores(self) -> float:
        """Cores of all machines."""
        return sum(offer.cores for offer in self._place.offers)

    @property
    def memory_bytes(self) -> int:
        """Memory that was free when the session began."""
        return sum(offer.memory_bytes for offer in self._place.offers)

    @property
    def whole_cores(self) -> bool:
        """Whether replicas can be held to whole cores only, for want of control groups."""
        return any(offer.tree is None for offer in self._place.offers)

    @property
    def allocation(self) -> Allocation | None:
        """What runs now."""
        return self._run.allocation if self._run else None

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        """Run at `allocation`; returns once it reports and is held to its cores.

        What runs before is asked to end (SIGTERM, at which it may write a checkpoint) and is started anew.
        """
        self._check(allocation)
        if self.finished and not self._trial:
            raise EngineError("The command has ended well: there is nothing to change.", "Launch it anew.")
        began = time.monotonic()
        with self._lock:
            restart = self._began is not None
            self._end()
            self._start(allocation)
            self._began = self._began or time.monotonic()
            if restart:
                took, at_s = time.monotonic() - began, max(0.0, began - self._began)
                self._changes.append(Change(at_s=at_s, kind="restart", seconds=took, description=allocation.describe()))
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, daemon=True, name="watch")
            self._watching.start()

    def replace(self, name: str) -> str:
        """Raises EngineError: any change starts all replicas of a command anew."""
        raise EngineError(f"{name} is a replica of a command, which starts as a whole.", "Scale it instead.")

    def expect_memory(self, ps_bytes: int) -> None:
        """Commands are not restored one by one."""

    def rebalance(self) -> None:
        """Raises EngineError: a command spreads its rows itself."""
        raise EngineError("A command spreads its rows over its PS itself.", "Scale it instead.")

    def pause(self) -> None:
        """End what runs, until the next `scale`."""
        with self._lock:
            self._end()

    def discard(self) -> None:
        """End what runs at once, and forget what failed."""
        with self._lock:
            self._end(keep_logs=True)
            self._fault = None

    def observe(self) -> Metrics:
        """Sums of every replica. Raises what ended the job."""
        with self._lock:
            run = self._look()
            left = self.job.samples_left(self._samples)
            return Metrics(replicas=run.metrics, samples_trained=self._samples, samples_left=left)

    def reports(self) -> list[list[Report]]:
        """What was reported since the last start, replica by replica, on this host's monotonic clock."""
        with self._lock:
            return self._look().series()

    @property
    def finished(self) -> bool:
        """Whether the command has ended well."""
        return self._status == "finished"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the command has ended well; waits at most `timeout_s` for it. Raises what ended it otherwise."""
        self._over.wait(timeout_s)
        if self._fault:
            raise self._fault
        return self.finished

    def outcome(self) -> Outcome:
        """What became of it so far."""
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
        """Raises before anything is touched."""
        if not allocation.replicas("worker"):
            raise EngineError("The allocation needs at least one worker.", "Set replicas to 1 or more.")
        if self.job.has_ps != bool(allocation.replicas("ps")):
            needs = "needs at least one PS" if self.job.has_ps else "has no PS"
            why = "" if self._command.may_have_ps else ", since its rendezvous is torchrun"
            raise EngineError(f"{self.job.name} {needs}{why}.", "Change the allocation's PS, or bounds.ps.replicas.")
        check_room(allocation, self._place.offers)

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
            self._run.look()
            self._run.check_silence()
        except SizewrightError as error:
            self._fault = error
            self._over.set()
            raise
        finally:
            self._samples = self._run.samples + (self._before if self._run.counts_anew else 0)
        if self._run.finished and not self._over.is_set():
            self._status, self._notes = "finished", self._run.left_behind
            self._ended = time.monotonic()
            self._over.set()
        return self._run

    def _watch(self) -> None:
        while not self._stopped.wait(_WATCH_S):
            with self._lock:
                if self._run is not None and not self._over.is_set():
                    with contextlib.suppress(SizewrightError):  # whoever asks is told
                        self._look()
