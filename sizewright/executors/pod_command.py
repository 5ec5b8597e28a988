"""What the container of a replica starts: the job's own command, and what that is told of itself and the others.

A replica's number is known to the platform alone: it is a label of the pod, which the container has as a variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sizewright.errors import InputError
from sizewright.spec import Deploy, Group, Job, Plan, Role
from sizewright.spec.command import Rendezvous
from sizewright.spec.withheld import split, with_values
from sizewright.training.command.rendezvous import fill, placeholders

_INDEX = "$(SIZEWRIGHT_INDEX)"
_PORT = 2222
_TORCHRUN_PORT = 29500


class Finds(NamedTuple):
    """How a platform's replicas find each other."""

    kind: str
    gives: frozenset[Rendezvous] = frozenset()
    """What it tells them by itself."""
    host: str = ""
    """Under which name it finds one, such as `{job}-{role}-{index}`; empty where it has no such names."""
    refuses: Mapping[Rendezvous, str] = {}
    """What it cannot tell them, and why."""


class Start(NamedTuple):
    """Words and environment of a container."""

    words: list[str]
    env: list[dict[str, Any]]


def gives_command(job: Job) -> bool:
    """Whether a job file says what its containers start."""
    return job.command is not None or job.deploy.command != Deploy().command


def starts_command(job: Job) -> bool:
    """Whether its containers start `command.run`; `deploy.command` goes before it, and is all that other jobs have."""
    return job.command is not None and job.deploy.command == Deploy().command


def check_rendezvous(plan: Plan, finds: Finds) -> None:
    """Raises InputError for a command whose replicas the platform cannot tell how to find each other."""
    command = plan.job.command
    if command and (why := finds.refuses.get(command.rendezvous)):
        other = f", or rendezvous {min(finds.gives)}" if plan.job.has_ps and finds.gives else ""
        raise InputError(
            f"{plan.job.name} is a command with rendezvous {command.rendezvous}, and {why}.",
            f"Use an executor that tells them: volcano or slurm{other}.",
        )


def start(plan: Plan, role: Role, group: Group, finds: Finds, label: str | None) -> Start:
    """Of each replica of a role. Raises InputError for what the platform cannot tell them."""
    job, command = plan.job, plan.job.command
    if command is None:
        return Start(list(job.deploy.command), [])
    plain, secret = split(command.env)
    values = placeholders(job, plan.target.replicas("worker"), plan.target.replicas("ps"), group.cpu,
                          role, _INDEX, plan.target.batch_size)  # fmt: skip
    words = [fill(_kept(word), values) for word in command.run] if starts_command(job) else [*job.deploy.command]
    told: dict[str, str] = {f"SIZEWRIGHT_{name.upper()}": str(value) for name, value in values.items()}
    del told["SIZEWRIGHT_INDEX"]
    told |= {"OMP_NUM_THREADS": str(-(-group.cpu // 1)).partition(".")[0], "PYTHONUNBUFFERED": "1"}
    if finds.host and command.rendezvous not in finds.gives:
        told |= _rendezvous(plan, role, finds.host)
    known = with_values(plain, os.environ)
    told |= {name: fill(_kept(known.get(name, "")), values) for name in command.env}
    needs_index = any(_INDEX in text for text in (*words, *told.values()))
    if needs_index and not label:
        raise InputError(
            f"The command of {job.name} uses {{index}}, and a {finds.kind} does not number its replicas.",
            "Take it out of command.run and command.env.",
        )
    if len(getattr(plan.target, role)) > 1 and needs_index:
        raise InputError(
            f"Plan {plan.id} has {role} of {len(getattr(plan.target, role))} sizes, and a {finds.kind} numbers each "
            "from 0, so that its command would see a number twice.",
            "Make the groups equal.",
        )
    env: list[dict[str, Any]] = []
    if label:
        reference = {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
        env.append({"name": "SIZEWRIGHT_INDEX", "valueFrom": reference})
    for name, value in told.items():
        env.append({"name": name, **(_from_secret(job, name) if name in secret else {"value": value})})
    return Start(words, env)


def secrets(plan: Plan) -> Sequence[str]:
    """Names of variables whose values are in no manifest."""
    return list(split(plan.job.command.env)[1]) if plan.job.command else []


def _from_secret(job: Job, name: str) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": job.name, "key": name}}}


def _kept(text: str) -> str:
    """Text that Kubernetes leaves as it is: it replaces `$(NAME)` and `$$`."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _rendezvous(plan: Plan, role: Role, host: str) -> dict[str, str]:
    """As `run` tells replicas of each other, with the platform's names for their hosts."""
    roles: tuple[Role, ...] = ("chief", "worker", "ps")
    hosts = {
        each: [host.format(job=plan.job.name, role=each, index=i) for i in range(plan.target.replicas(each))]
        for each in roles
    }
    cluster = {each: [f"{name}:{_PORT}" for name in names] for each, names in hosts.items() if names}
    assert plan.job.command is not None
    if plan.job.command.rendezvous == "torchrun":
        own = {"RANK": _INDEX, "WORLD_SIZE": str(len(hosts["worker"])), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
               "GROUP_RANK": _INDEX, "MASTER_ADDR": hosts["worker"][0], "MASTER_PORT": str(_TORCHRUN_PORT)}  # fmt: skip
        return own if role == "worker" else {}
    if plan.job.command.rendezvous == "tf_config":
        task = json.dumps({"type": role, "index": _INDEX}).replace(f'"{_INDEX}"', _INDEX)
        return {"TF_CONFIG": f'{{"cluster": {json.dumps(cluster)}, "task": {task}}}'}
    lists = {f"{each.upper()}_HOSTS": ",".join(addresses) for each, addresses in cluster.items()}
    return lists | {"JOB_NAME": role, "TASK_INDEX": _INDEX}
