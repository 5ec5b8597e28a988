"""The rendezvous of a command's replicas: the environment and the arguments by which they find each other."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sizewright.errors import JobError
from sizewright.spec import Allocation, Job, Resources, Role
from sizewright.spec.command import PLACEHOLDERS, Command
from sizewright.training.command import ranks

_PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")


class ReplicaSlot(NamedTuple):
    """One replica, with its number within its role, its size, and the address where it may listen."""

    role: Role
    number: int
    size: Resources
    host: str = "127.0.0.1"
    port: int = 0

    @property
    def name(self) -> str:
        """Such as `worker-0`."""
        return f"{self.role}-{self.number}"

    @property
    def address(self) -> str:
        """The host and port."""
        return f"{self.host}:{self.port}"


class ReplicaCommand(NamedTuple):
    """The words of a command, its additional environment variables, and how many processes of it to start."""

    words: tuple[str, ...]
    env: dict[str, str]
    processes: int = 1

    @property
    def line(self) -> list[str]:
        """The words that start all processes, on the machine that asks."""
        return [*self.words] if self.processes == 1 else [sys.executable, ranks.__file__, *self.words]


def make_start(job: Job, slots: Sequence[ReplicaSlot], me: ReplicaSlot, allocation: Allocation) -> ReplicaCommand:
    """Return the command for the slot `me`."""
    command = job.command
    assert command is not None
    workers, ps = (sum(slot.role == role for slot in slots) for role in ("worker", "ps"))
    values = placeholders(job, workers, ps, me.size.cpu, me.role, me.number, allocation)
    env = {f"SIZEWRIGHT_{name.upper()}": str(value) for name, value in values.items() if value is not None}
    processes = _processes(command, me) if me.role == "worker" else 1
    # As torchrun does; more threads than cores only wait for each other.
    env["OMP_NUM_THREADS"] = str(max(1, math.ceil(me.size.cpu / processes)))
    env["PYTHONUNBUFFERED"] = "1"  # a report that waits in a buffer has the wrong time
    if command.rendezvous == "torchrun":
        env |= _torchrun(command, slots, me)
    else:
        env |= {"tf_config": _tf_config, "hosts": _hosts}[command.rendezvous](slots, me)
    env |= {name: fill(value, values) for name, value in command.env.items()}
    return ReplicaCommand(tuple(fill(word, values) for word in command.run), env, processes)


def placeholders(
    job: Job, workers: int, ps: int, cores: float, role: Role, index: int | str, allocation: Allocation
) -> dict[str, object]:
    """Return the values of the placeholders of a command.

    Raise JobError if the command takes `{samples}` and the job does not have the number of samples.
    """
    if job.command and job.command.takes_samples and job.samples is None:
        raise JobError("The command uses {samples}, but the job has no number of samples.", "Set training.samples.")
    return {
        "batch_size": allocation.batch_size,
        "samples": job.samples,
        "loaders": job.loaders_at(allocation) if job.command and job.command.takes_loaders else None,
        "workers": workers,
        "ps": ps,
        "cores": f"{cores:g}",
        "role": role,
        "index": index,
    }


def fill(text: str, values: Mapping[str, object]) -> str:
    """Return a text with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), text)


def _processes(command: Command, slot: ReplicaSlot) -> int:
    return command.processes_of(slot.size.gpu.count if slot.size.gpu else 0)


def _torchrun(command: Command, slots: Sequence[ReplicaSlot], me: ReplicaSlot) -> dict[str, str]:
    """Return the variables that torchrun sets, for workers only; those of the first rank if a worker has several.

    A worker with several ranks, or with GPUs of its own, is a node: ranks are numbered within it, as are its GPUs.
    """
    if me.role != "worker":
        return {}
    workers = [slot for slot in slots if slot.role == "worker"]
    counts = [_processes(command, slot) for slot in workers]
    number = workers.index(me)
    if me.size.gpu or max(counts) > 1:
        return {
            "RANK": str(sum(counts[:number])),
            "WORLD_SIZE": str(sum(counts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": str(counts[number]),
            "GROUP_RANK": str(number),
            "GROUP_WORLD_SIZE": str(len(workers)),
            "MASTER_ADDR": workers[0].host,
            "MASTER_PORT": str(workers[0].port),
        }
    local_numbers = [slot.number for slot in workers if slot.host == me.host]
    hosts = list(dict.fromkeys(slot.host for slot in workers))
    return {
        "RANK": str(me.number),
        "WORLD_SIZE": str(len(workers)),
        "LOCAL_RANK": str(local_numbers.index(me.number)),
        "LOCAL_WORLD_SIZE": str(len(local_numbers)),
        "GROUP_RANK": str(hosts.index(me.host)),
        "MASTER_ADDR": workers[0].host,
        "MASTER_PORT": str(workers[0].port),
    }


def _tf_config(slots: Sequence[ReplicaSlot], me: ReplicaSlot) -> dict[str, str]:
    """Return TF_CONFIG; an evaluator knows the cluster but is not part of it."""
    return {"TF_CONFIG": json.dumps({"cluster": _cluster(slots), "task": {"type": me.role, "index": me.number}})}


def _hosts(slots: Sequence[ReplicaSlot], me: ReplicaSlot) -> dict[str, str]:
    """Return lists of addresses by role, for scripts with flags of these names; PS_HOSTS may be empty."""
    lists = {f"{role.upper()}_HOSTS": ",".join(addresses) for role, addresses in _cluster(slots).items()}
    return {"PS_HOSTS": "", **lists, "JOB_NAME": me.role, "TASK_INDEX": str(me.number)}


def _cluster(slots: Sequence[ReplicaSlot]) -> dict[str, list[str]]:
    roles: tuple[Role, ...] = ("chief", "worker", "ps")
    addresses = {role: [slot.address for slot in slots if slot.role == role] for role in roles}
    return {role: hosts for role, hosts in addresses.items() if hosts}
