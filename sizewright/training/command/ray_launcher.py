"""The launcher of a command's replicas on a Ray cluster, where an actor starts each replica."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sizewright.errors import ReplicaDiedError, SizewrightError
from sizewright.spec import Job, Resources, Role
from sizewright.training.command.rendezvous import ReplicaCommand, ReplicaSlot
from sizewright.training.command.replica import CommandReplica, Death, ReplicaObservation, free_port
from sizewright.training.host.private_folders import check_import_folder
from sizewright.training.ray.engine import Engine
from sizewright.training.ray.node_agent import NodeAgent, NodeResources
from sizewright.training.ray.nodes import Nodes
from sizewright.training.ray.placement import ReplicaPlacement
from sizewright.training.ray.placement import Slot as Reserved

_ANSWER_S = 60.0


class RayLauncher:
    """Runs replicas on the Ray cluster at `address`, with the interface of `LocalLauncher`."""

    def __init__(self, name: str, address: str) -> None:
        self._name, self._node_agent = name, NodeAgent(name)
        try:
            self._engine = Engine(address=address)
        except BaseException:
            self._node_agent.close()
            raise
        self._nodes = Nodes(self._engine, name, self._node_agent)
        self._placement = ReplicaPlacement(self._engine, timeout_s=_ANSWER_S)
        self._actors: dict[str, tuple[Any, Reserved]] = {}
        try:
            self._nodes.find()
        except BaseException:
            self.close()
            raise

    @property
    def node_resources(self) -> list[NodeResources]:
        """The resources of each machine."""
        return list(self._nodes.node_resources.values())

    def slot(self, role: Role, number: int, size: Resources) -> ReplicaSlot:
        """Return a slot on a machine that Ray chooses; PS are spread, workers are packed."""
        (reserved,) = self._placement.take(role, [size])
        options = self._placement.options(reserved)
        trees = {node: available.tree for node, available in self._nodes.node_resources.items()}
        actor = self._engine.ray.remote(**options)(CommandActor).remote(trees)
        self._actors[f"{role}-{number}"] = actor, reserved
        host, port = self._ask(actor.address.remote())
        return ReplicaSlot(role, number, size, host, port)

    def device_env(self, slots: Sequence[ReplicaSlot], me: ReplicaSlot) -> dict[str, str]:
        """Return nothing: Ray itself tells an actor which GPUs are its own."""
        return {}

    def replica(self, job: Job, slot: ReplicaSlot, batch_size: int, logs: Path) -> RayReplica:
        """Create a replica that is not started yet."""
        actor, reserved = self._actors.pop(slot.name)
        self._ask(actor.make.remote(job, slot, batch_size, logs))
        return RayReplica(slot, actor, lambda ref: self._ask(ref), lambda: self._give_back(actor, reserved))

    def close(self) -> None:
        """End every actor and remove all control groups."""
        for actor, reserved in self._actors.values():
            self._give_back(actor, reserved)
        self._actors = {}
        self._nodes.close()
        self._engine.stop()
        self._node_agent.close()

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
            lines = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise ReplicaDiedError(f"A replica's machine, or Ray on it, has ended: {lines[0]}") from None


class RayReplica:
    """A `CommandReplica` on another machine, which is called through its actor."""

    def __init__(self, slot: ReplicaSlot, actor: Any, ask: Any, give_back: Any) -> None:
        self.slot = slot
        self._actor = actor
        self._ask = ask
        self._give_back = give_back

    def start(self, start: ReplicaCommand) -> None:  # noqa: D102
        self._ask(self._actor.call.remote("start", start))

    def hold(self) -> None:  # noqa: D102
        self._ask(self._actor.call.remote("hold"))

    def observe(self) -> ReplicaObservation:  # noqa: D102
        return ReplicaObservation(*self._ask(self._actor.call.remote("observe")))

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
    """Runs one replica on its machine."""

    def __init__(self, trees: dict[str, Any]) -> None:
        import ray

        check_import_folder()
        self._tree = trees.get(str(ray.get_runtime_context().get_node_id()))
        self._replica: CommandReplica | None = None

    def address(self) -> tuple[str, int]:
        """Return the address of this machine, and a port that is free now."""
        import ray

        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return host, free_port(host)

    def make(self, job: Job, slot: ReplicaSlot, batch_size: int, logs: Path) -> None:
        """Create the replica, which is not started yet."""
        self._replica = CommandReplica(job, slot, batch_size, self._tree, logs)

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the replica."""
        return getattr(self._replica, method)(*args)
