"""A session: one job trained at an allocation that `scale` can change; here a change starts the job anew."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from sizewright.errors import EngineDiedError, EngineError, ReplicaDiedError, SizewrightError, TrialTimeoutError
from sizewright.spec import Allocation, Job, Metrics, ReplicaMetrics, Role
from sizewright.training.actors import PsActor, WorkerActor
from sizewright.training.cgroups import find_cgroups
from sizewright.training.engine import Engine
from sizewright.training.host import host_cores
from sizewright.training.wire import TOKEN_BYTES

_FIRST_STEPS = 3
_PATIENCE_S = 5.0
_AGAIN = "Run the same command again; it goes on with the rest."
_SESSION_NUMBERS = itertools.count()
_ACTORS: dict[Role, type[Any]] = {"ps": PsActor, "worker": WorkerActor}


class Session:
    """Starts Ray once; replicas that an allocation does not need stay loaded and idle for a later one.

    Use as a context manager: leaving it ends every process and removes every control group.
    """

    def __init__(self, job: Job, *, timeout_s: float = 120.0) -> None:
        if job.training.device != "cpu":
            raise EngineError(
                f"Trials run on the CPU only, and the job's training.device is {job.training.device}.",
                "Bring measurements of your own: sizewright trials import FILE --job JOB.",
            )
        self.job = job.with_absolute_path()
        self.allocation: Allocation | None = None
        self._timeout_s = timeout_s
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._replicas: dict[Role, list[Any]] = {"ps": [], "worker": []}
        self._active: dict[Role, int] = {"ps": 0, "worker": 0}
        self._tree = find_cgroups(f"sizewright-{os.getpid()}-{next(_SESSION_NUMBERS)}")
        self._engine: Engine | None = None
        try:
            self._engine = Engine(self._tree)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def whole_cores(self) -> bool:
        """Whether replicas can be held to whole cores only, for want of control groups."""
        return self._tree is None

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        """Train at `allocation`, tables filled to `table_scale` of their rows; returns once limits are on.

        Raises EngineError when the host cannot hold it, ReplicaDiedError when a replica dies on the way.
        """
        _check_host(allocation)
        self.pause()
        for role in self._replicas:
            self._grow(role, allocation)
        self._launch(allocation, table_scale)
        self._await_steps(_FIRST_STEPS)
        self._limit(allocation)
        self.allocation = allocation

    def pause(self) -> None:
        """Stop training, replicas stay loaded; the next `scale` goes on."""
        self.allocation = None
        self._halt()

    def observe(self) -> Metrics:
        """Sums of every replica. Raises ReplicaDiedError when one has died or its training has failed."""
        readings: list[ReplicaMetrics] = self._get([a.observe.remote() for a in self._all()])
        for fault in self._get([a.fault.remote() for a in self._all()]):
            if fault:
                raise self._died(fault)
        assert self._engine is not None
        return Metrics(replicas=tuple(readings), engine_cpu_s=self._engine.cpu_used_s())

    def pids(self) -> dict[str, int]:
        """Processes of the replicas by name, such as `worker-0`."""
        names = [f"{role}-{i}" for role, count in self._active.items() for i in range(count)]
        return dict(zip(names, self._get([a.pid.remote() for a in self._all()]), strict=True))

    def discard(self) -> None:
        """End all replicas, for instance after a failure; Ray stays for the next `scale`."""
        assert self._engine is not None
        groups = [self._tree.child(name) for name in self._names()] if self._tree else []
        for group in groups:
            group.set_cpu(None)  # a throttled process takes seconds to end
        for actors in self._replicas.values():
            for actor in actors:
                self._engine.ray.kill(actor, no_restart=True)
            actors.clear()
        self._active = dict.fromkeys(self._active, 0)
        for group in groups:
            group.remove()

    def stop(self) -> None:
        """End everything that this session started; a further Ctrl-C does not cut it short."""
        with _uninterrupted():
            try:
                if self._engine and self._engine.alive():
                    self.discard()
            finally:
                if self._engine:
                    self._engine.stop()
                    self._engine = None
                if self._tree:
                    self._tree.remove()
                    self._tree = None

    def _names(self) -> list[str]:
        return [f"{role}-{i}" for role, actors in self._replicas.items() for i in range(len(actors))]

    def _in_use(self, role: Role) -> list[Any]:
        return self._replicas[role][: self._active[role]]

    def _all(self) -> list[Any]:
        return [*self._in_use("ps"), *self._in_use("worker")]

    def _grow(self, role: Role, allocation: Allocation) -> None:
        assert self._engine is not None
        actors, wanted = self._replicas[role], allocation.replicas(role)
        # Cores are held by the control group, so Ray's own count of them must not stand in the way.
        make = self._engine.ray.remote(num_cpus=0, max_restarts=0)(_ACTORS[role])
        while len(actors) < wanted:
            actors.append(make.remote(self._tree, len(actors)))
        self._active[role] = wanted

    def _halt(self) -> None:
        self._get([a.halt.remote() for a in self._in_use("worker")])
        self._get([a.close.remote() for a in self._in_use("ps")])
        self._get([a.set_cpu.remote(None) for a in self._all()])

    def _launch(self, allocation: Allocation, scale: float) -> None:
        servers, workers = self._in_use("ps"), self._in_use("worker")
        sizes = list(allocation.each("worker"))
        job = self.job.with_batch_size(allocation.batch_size)
        weights = [w.load.remote(job, r.memory_bytes) for w, r in zip(workers, sizes, strict=True)]
        self._get(weights)
        addresses = self._get(
            [
                s.prepare.remote(job, scale, len(servers), len(workers), weights[0], self._token, r.memory_bytes)
                for s, r in zip(servers, allocation.each("ps"), strict=True)
            ]
        )
        common = (job, scale, len(workers), addresses, self._token)
        self._get([w.start.remote(*common, r.cpu) for w, r in zip(workers, sizes, strict=True)])

    def _limit(self, allocation: Allocation) -> None:
        first_core, set_ = 0.0, []
        for role in ("ps", "worker"):
            for actor, resources in zip(self._in_use(role), allocation.each(role), strict=True):
                set_.append(actor.set_cpu.remote(resources.cpu, int(first_core)))
                first_core += resources.cpu
        self._get(set_)

    def _await_steps(self, steps: int) -> None:
        deadline = time.monotonic() + self._timeout_s
        while any(worker.steps < steps for worker in self.observe().of("worker")):
            if time.monotonic() > deadline:
                raise TrialTimeoutError(
                    f"No worker finished {steps} steps in {self._timeout_s:g} s.",
                    "Give the replicas more cores, or the job a smaller batch.",
                )
            time.sleep(0.02)

    def _get(self, refs: list[Any]) -> Any:
        assert self._engine is not None
        ray = self._engine.ray
        try:
            return self._wait_for(refs)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, SizewrightError):
                raise cause from None
            raise self._died(f"{type(cause).__name__}: {cause}") from None
        except ray.exceptions.GetTimeoutError:
            raise TrialTimeoutError(
                f"A replica did not answer within {self._timeout_s:g} s.", "Give it more cores, or try again."
            ) from None
        except ray.exceptions.RayActorError as error:
            last = str(error).strip().splitlines()[-1]
            raise self._died(last if "creation task" in str(error) else "its process ended") from None
        except ray.exceptions.RayError as error:
            told = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineDiedError(f"Ray failed: {told[0]}", _AGAIN) from None

    def _wait_for(self, refs: list[Any]) -> Any:
        """`ray.get` in short waits, since it may wait for ever on a Ray that has died."""
        assert self._engine is not None
        ray, deadline = self._engine.ray, time.monotonic() + self._timeout_s
        while True:
            try:
                return ray.get(refs, timeout=min(_PATIENCE_S, self._timeout_s))
            except ray.exceptions.GetTimeoutError:
                if not self._engine.alive():
                    raise EngineDiedError("Ray's own processes have ended.", _AGAIN) from None
                if time.monotonic() > deadline:
                    raise

    def _died(self, why: str) -> SizewrightError:
        for name in self._names() if self._tree else ():
            assert self._tree is not None
            with contextlib.suppress(OSError):
                if self._tree.child(name).oom_kills():
                    told = f"{name} was ended for using more memory than it was given."
                    return ReplicaDiedError(told, "Raise its memory.", oom=True)
        assert self._engine is not None
        if not self._engine.alive():
            return EngineDiedError("Ray's own processes have ended.", _AGAIN)
        return ReplicaDiedError(f"A replica failed: {why.rstrip('.')}.", "The other trials go on.")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check_host(allocation: Allocation) -> None:
    cores = host_cores()
    if allocation.cores() > cores + 1e-9:
        raise EngineError(
            f"The allocation asks for {allocation.cores():g} cores and this host has {cores:g}.",
            "Ask for fewer, or run on a larger host.",
        )
    if not allocation.replicas("worker") or not allocation.replicas("ps"):
        raise EngineError("The allocation needs at least one worker and one PS.", "Set replicas to 1 or more.")
