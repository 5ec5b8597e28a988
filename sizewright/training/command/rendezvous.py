"""What each replica of a command is told: how to find the others, and what it is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sizewright.errors import JobError
from sizewright.spec import Job, Resources, Role
from sizewright.spec.command import PLACEHOLDERS

_PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")


class Seat(NamedTuple):
    """One replica: its place among those of its role, its size, and where it may listen."""

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
        """Host and port."""
        return f"{self.host}:{self.port}"


class Start(NamedTuple):
    """A command's words and what its environment has besides what is there."""

    words: tuple[str, ...]
    env: dict[str, str]


def make_start(job: Job, seats: Sequence[Seat], me: Seat, batch_size: int) -> Start:
    """The command of one of the seats."""
    command = job.command
    assert command is not None
    workers, ps = (sum(seat.role == role for seat in seats) for role in ("worker", "ps"))
    values = placeholders(job, workers, ps, me.size.cpu, me.role, me.number, batch_size)
    env = {f"SIZEWRIGHT_{name.upper()}": str(value) for name, value in values.items() if value is not None}
    # As torchrun does; more threads than cores only wait for each other.
    env["OMP_NUM_THREADS"] = str(max(1, math.ceil(me.size.cpu)))
    env["PYTHONUNBUFFERED"] = "1"  # a report that waits in a buffer has the wrong time
    env |= {"torchrun": _torchrun, "tf_config": _tf_config, "hosts": _hosts}[command.rendezvous](seats, me)
    own = {name: fill(value, values) for name, value in command.env.items()}
    return Start(tuple(fill(word, values) for word in command.run), env | own)


def placeholders(
    job: Job, workers: int, ps: int, cores: float, role: Role, index: int | str, batch_size: int
) -> dict[str, object]:
    """The values of the placeholders of a command; the number of samples may be unknown to one that takes none.

    Raises JobError for a command that takes it.
    """
    if job.command and job.command.takes_samples and job.samples is None:
        raise JobError("The command takes {samples}, and the job does not say how many.", "Set training.samples.")
    return {
        "batch_size": batch_size, "samples": job.samples, "workers": workers, "ps": ps,
        "cores": f"{cores:g}", "role": role, "index": index,
    }  # fmt: skip


def fill(text: str, values: Mapping[str, object]) -> str:
    """A text with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), text)


def _torchrun(seats: Sequence[Seat], me: Seat) -> dict[str, str]:
    """The variables that torchrun sets, for workers alone."""
    if me.role != "worker":
        return {}
    workers = [seat for seat in seats if seat.role == "worker"]
    here = [seat.number for seat in workers if seat.host == me.host]
    hosts = list(dict.fromkeys(seat.host for seat in workers))
    return {
        "RANK": str(me.number),
        "WORLD_SIZE": str(len(workers)),
        "LOCAL_RANK": str(here.index(me.number)),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "GROUP_RANK": str(hosts.index(me.host)),
        "MASTER_ADDR": workers[0].host,
        "MASTER_PORT": str(workers[0].port),
    }


def _tf_config(seats: Sequence[Seat], me: Seat) -> dict[str, str]:
    """TF_CONFIG; an evaluator is told of the cluster and is no part of it."""
    return {"TF_CONFIG": json.dumps({"cluster": _cluster(seats), "task": {"type": me.role, "index": me.number}})}


def _hosts(seats: Sequence[Seat], me: Seat) -> dict[str, str]:
    """Lists of addresses by role, as scripts with flags of that name take them; that of PS is empty without any."""
    lists = {f"{role.upper()}_HOSTS": ",".join(addresses) for role, addresses in _cluster(seats).items()}
    return {"PS_HOSTS": "", **lists, "JOB_NAME": me.role, "TASK_INDEX": str(me.number)}


def _cluster(seats: Sequence[Seat]) -> dict[str, list[str]]:
    roles: tuple[Role, ...] = ("chief", "worker", "ps")
    found = {role: [seat.address for seat in seats if seat.role == role] for role in roles}
    return {role: addresses for role, addresses in found.items() if addresses}
