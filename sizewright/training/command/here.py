"""Where a command's replicas run: this host, without Ray."""

from __future__ import annotations

from pathlib import Path

from sizewright.spec import Job, Resources, Role
from sizewright.training.command.rendezvous import Seat
from sizewright.training.command.replica import CommandReplica, free_port
from sizewright.training.machine import Machine, Offer


class Here:
    """This host, with control groups where it allows them."""

    def __init__(self, name: str) -> None:
        self._machine = Machine(name)
        self._offer = self._machine.offer()

    @property
    def offers(self) -> list[Offer]:
        """What this host has."""
        return [self._offer]

    def seat(self, role: Role, index: int, size: Resources) -> Seat:
        """A place for a replica, with a port that is free now."""
        return Seat(role, index, size, "127.0.0.1", free_port())

    def replica(self, job: Job, seat: Seat, batch_size: int, logs: Path) -> CommandReplica:
        """One that has not begun."""
        return CommandReplica(job, seat, batch_size, self._offer.tree, logs)

    def close(self) -> None:
        """Remove all control groups."""
        self._machine.close()
