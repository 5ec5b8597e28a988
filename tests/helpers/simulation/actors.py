"""Simulated Ray: actors are processes, calls take time, and a killed actor never answers."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from sizewright.training.ray.node_agent import NodeResources
from tests.helpers.simulation.scheduler import Process, Scheduler, Task

_CALL_S, _START_S = 0.001, 0.02


class RayError(Exception):
    """Stands for the exception of this name in `ray.exceptions`, like those below."""


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError):
    pass


class RayActorError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class Ref:
    """The future result of a call."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.done, self.value, self.error = False, None, None  # type: tuple[bool, Any, RayError | None]

    def __hash__(self) -> int:
        return self.number


class Signal:
    """A condition that several processes wait for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[Task, Callable[[], bool]] = {}

    def wait_for(self, ready: Callable[[], bool], timeout_s: float | None = None) -> None:
        deadline = None if timeout_s is None else self._scheduler.now + timeout_s
        while not ready():
            remaining_s = None if deadline is None else deadline - self._scheduler.now
            if remaining_s is not None and remaining_s <= 0:
                return
            assert self._scheduler.current is not None
            self._waiting[self._scheduler.current] = ready
            self._scheduler.wait(remaining_s)
            self._waiting.pop(self._scheduler.current, None)

    def notify_all(self) -> None:
        for task in [task for task, ready in self._waiting.items() if ready()]:
            del self._waiting[task]
            self._scheduler.wake(task)


class SimRay:
    """Stands for the parts of the module `ray` that the engine uses."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError, RayActorError=RayActorError,
        ActorUnavailableError=ActorUnavailableError,
    )  # fmt: skip

    def __init__(self, scheduler: Scheduler, driver: Process) -> None:
        self.scheduler, self.driver, self.gone_s = scheduler, driver, math.inf
        self.actors: list[Handle] = []
        self._changed = Signal(scheduler)
        self._refs = 0
        driver.on_kill.append(self._driver_died)

    @property
    def alive(self) -> bool:
        """Return whether Ray's own processes run."""
        return self.gone_s == math.inf

    def remote(self, **_: Any) -> Any:
        return lambda cls: ActorClass(self, cls)

    def ref(self) -> Ref:
        self._refs += 1
        return Ref(self._refs)

    def resolve(self, ref: Ref, value: Any = None, error: RayError | None = None) -> None:
        if not ref.done:
            ref.done, ref.value, ref.error = True, value, error
            self._changed.notify_all()

    def get(self, refs: Any, timeout: float | None = None) -> Any:
        awaited = refs if isinstance(refs, list) else [refs]
        self._changed.wait_for(lambda: all(ref.done for ref in awaited) or any(ref.error for ref in awaited), timeout)
        for ref in awaited:
            if ref.error is not None:
                raise ref.error
        if not all(ref.done for ref in awaited):
            raise GetTimeoutError("timed out")
        return [ref.value for ref in awaited] if isinstance(refs, list) else awaited[0].value

    def wait(
        self, refs: Sequence[Ref], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Ref], list[Ref]]:
        self._changed.wait_for(lambda: sum(ref.done for ref in refs) >= num_returns, timeout)
        return [ref for ref in refs if ref.done], [ref for ref in refs if not ref.done]

    def kill(self, actor: Handle, no_restart: bool = True) -> None:
        if not actor.process.stopped:  # a stopped process does not receive it
            self.scheduler.kill(actor.process)

    def _driver_died(self) -> None:
        """End the actors of a dead driver a moment later, as Ray does."""
        for actor in self.actors:
            self.scheduler.spawn(self.scheduler.process("raylet"), partial(self._end, actor), "end")

    def _end(self, actor: Handle) -> None:
        self.scheduler.wait(self.scheduler.delay(0.1))
        self.scheduler.kill(actor.process)


class ActorClass:
    """An actor class."""

    def __init__(self, ray: SimRay, cls: type, name: str = "") -> None:
        self._ray, self._cls, self._name = ray, cls, name

    def options(self, *, name: str = "", **_: Any) -> ActorClass:
        return ActorClass(self._ray, self._cls, name)

    def remote(self, *args: Any) -> Handle:
        return Handle(self._ray, self._cls, args, self._name or self._cls.__name__)


class Handle:
    """An actor, which starts in its own process."""

    def __init__(self, ray: SimRay, cls: type, args: tuple[Any, ...], name: str) -> None:
        scheduler = ray.scheduler
        self.process, self.instance = scheduler.process(name), None  # type: tuple[Process, Any]
        self._ray, self._calls = ray, []  # type: ignore[var-annotated]
        self._begun = Signal(scheduler)
        self.process.on_kill.append(self._died)
        ray.actors.append(self)
        copied = pickle.loads(pickle.dumps(args))

        def begin() -> None:
            scheduler.wait(scheduler.delay(_START_S))
            self.instance = cls(*copied)
            self._begun.notify_all()

        scheduler.spawn(self.process, begin, "begin")

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *args, **more: self._call(method, args, more))

    def _call(self, method: str, args: tuple[Any, ...], more: dict[str, Any]) -> Ref:
        ray, ref = self._ray, self._ray.ref()
        if not self.process.alive:
            ray.resolve(ref, error=RayActorError("the actor died"))
            return ref
        self._calls.append(ref)
        copied = pickle.loads(pickle.dumps((args, more)))

        def run() -> None:
            ray.scheduler.wait(ray.scheduler.delay(_CALL_S))
            self._begun.wait_for(lambda: self.instance is not None)
            try:
                value = getattr(self.instance, method)(*copied[0], **copied[1])
            except Exception as error:
                ray.resolve(ref, error=RayTaskError(error))
            else:
                ray.resolve(ref, pickle.loads(pickle.dumps(value)))

        ray.scheduler.spawn(self.process, run, method)
        return ref

    def _died(self) -> None:
        calls, self._calls = self._calls, []
        for ref in calls:
            self._ray.resolve(ref, error=RayActorError("the actor died"))


class SimEngine:
    """Stands for Engine."""

    local, address = True, None

    def __init__(self, ray: SimRay) -> None:
        self.ray = ray

    def ip(self) -> str:
        return "127.0.0.1"

    def alive(self) -> bool:
        return self.ray.alive

    def ask_head(self, call: Callable[[], Any]) -> Any:
        return call()

    def kill(self, actor: Handle) -> None:
        self.ray.kill(actor)

    def cpu_used_s(self) -> float:
        return 0.0

    def stop(self) -> None:
        for actor in self.ray.actors:
            self.ray.scheduler.kill(actor.process)


class SimMachine:
    """Stands for the node agent of a host without control groups."""

    tree = None

    def __init__(self, ray: SimRay) -> None:
        self._ray = ray

    def available(self) -> NodeResources:
        return NodeResources(64.0, 1 << 40, None)

    def end(self, pids: list[int]) -> None:
        for actor in self._ray.actors:
            if actor.process.number in pids:
                self._ray.scheduler.kill(actor.process)

    def lift(self, names: list[str]) -> None:
        pass

    def remove(self, names: list[str]) -> None:
        pass

    def ended_for_memory(self, names: list[str]) -> list[str]:
        return []

    def close(self) -> None:
        pass
