"""Where a command's replicas run: the machines of a Ray cluster, each replica below an actor that Ray places."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from sizewright.errors import ReplicaDiedError, SizewrightError
from sizewright.spec import Job, Resources, Role
from sizewright.training.command.rendezvous import Seat, Start
from sizewright.training.command.replica import CommandReplica, Death, Look, free_port
from sizewright.training.engine import Engine
from sizewright.training.machine import Machine, Offer
from sizewright.training.machines import Machines
from sizewright.training.placement import Placement
from sizewright.training.placement import Seat as Reserved

_ANSWER_S = 60.0


class OnRay:
    """As `Here`, for the cluster at `address`."""

    def __init__(self, name: str, address: str) -> None:
        self._name, self._machine = name, Machine(name)
        try:
            self._engine = Engine(address=address)
        except BaseException:
            self._machine.close()
            raise
        self._machines = Machines(self._engine, name, self._machine)
        self._placement = Placement(self._engine, timeout_s=_ANSWER_S)
        self._actors: dict[str, tuple[Any, Reserved]] = {}
        try:
            self._machines.find()
        except BaseException:
            self.close()
            raise

    @property
    def offers(self) -> list[Offer]:
        """What the machines have."""
        return list(self._machines.offers.values())

    def seat(self, role: Role, number: int, size: Resources) -> Seat:
        """A place on a machine that Ray chooses: PS apart, workers together."""
        (reserved,) = self._placement.take(role, [size])
        options = self._placement.options(reserved)
        trees = {node: offer.tree for node, offer in self._machines.offers.items()}
        actor = self._engine.ray.remote(**options)(CommandActor).remote(trees)
        self._actors[f"{role}-{number}"] = actor, reserved
        host, port = self._ask(actor.address.remote())
        return Seat(role, number, size, host, port)

    def replica(self, job: Job, seat: Seat, batch_size: int, logs: Path) -> RayReplica:
        """One that has not begun."""
        actor, reserved = self._actors.pop(seat.name)
        self._ask(actor.make.remote(job, seat, batch_size, logs))
        return RayReplica(seat, actor, lambda ref: self._ask(ref), lambda: self._give_back(actor, reserved))

    def close(self) -> None:
        """End every actor and remove all control groups."""
        for actor, reserved in self._actors.values():
            self._give_back(actor, reserved)
        self._actors = {}
        self._machines.close()
        self._engine.stop()
        self._machine.close()

    def _give_back(self, actor: Any, reserved: Reserved) -> None:
        self._engine.kill(actor)
        self._placement.give_back([reserved])

    def _ask(self, ref: Any) -> Any:
        exceptions = self._engine.ray.exceptions
        try:
            return self._engine.ray.get(ref, timeout=_ANSWER_S)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, SizewrightError):
                raise error.cause from None
            raise ReplicaDiedError(f"A replica failed: {error.cause}.") from None
        except exceptions.RayError as error:
            told = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise ReplicaDiedError(f"A replica's machine or Ray there has gone: {told[0]}") from None


class RayReplica:
    """A `CommandReplica` elsewhere."""

    def __init__(self, seat: Seat, actor: Any, ask: Any, give_back: Any) -> None:
        self.seat = seat
        self._actor, self._ask, self._give_back = actor, ask, give_back

    def start(self, start: Start) -> None:  # noqa: D102
        self._ask(self._actor.call.remote("start", start))

    def hold(self) -> None:  # noqa: D102
        self._ask(self._actor.call.remote("hold"))

    def look(self) -> Look:  # noqa: D102
        return Look(*self._ask(self._actor.call.remote("look")))

    def why(self) -> Death:  # noqa: D102
        return Death(*self._ask(self._actor.call.remote("why")))

    def last_lines(self) -> str:  # noqa: D102
        return str(self._ask(self._actor.call.remote("last_lines")))

    def terminate(self) -> None:  # noqa: D102
        with contextlib.suppress(SizewrightError):
            self._ask(self._actor.call.remote("terminate"))

    def ended(self) -> bool:  # noqa: D102
        try:
            return bool(self._ask(self._actor.call.remote("ended")))
        except SizewrightError:
            return True

    def kill(self) -> None:  # noqa: D102
        with contextlib.suppress(SizewrightError):
            self._ask(self._actor.call.remote("kill"))
        self._give_back()


class CommandActor:
    """Stands over one replica on its machine."""

    def __init__(self, trees: dict[str, Any]) -> None:
        import ray

        self._tree = trees.get(str(ray.get_runtime_context().get_node_id()))
        self._replica: CommandReplica | None = None

    def address(self) -> tuple[str, int]:
        """Of this machine, and a port that is free now."""
        import ray

        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return host, free_port(host)

    def make(self, job: Job, seat: Seat, batch_size: int, logs: Path) -> None:
        """The replica, which has not begun."""
        self._replica = CommandReplica(job, seat, batch_size, self._tree, logs)

    def call(self, method: str, *args: Any) -> Any:
        """One of its methods."""
        return getattr(self._replica, method)(*args)
