"""The command and the environment of a replica's container, by which it finds the other replicas.

Only the platform knows a replica's number: it is a label of the pod, which the container gets as a variable.
"""

from __future__ import annotations

import json
import math
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


class Discovery(NamedTuple):
    """The ways in which a platform's replicas can find each other."""

    kind: str
    """The platform's name for the job object, for messages."""
    provides: frozenset[Rendezvous] = frozenset()
    """The kinds of rendezvous whose variables the platform sets itself."""
    host: str = ""
    """The host name of a replica, such as `{job}-{role}-{index}`; empty if the platform gives replicas no names."""
    names: Mapping[Role, str] = {}
    """The roles' names in host names, where they are others."""
    unsupported: Mapping[Rendezvous, str] = {}
    """The kinds of rendezvous that the platform cannot serve, each with the reason."""


class ContainerCommand(NamedTuple):
    """The command line and the environment of a container."""

    words: list[str]
    env: list[dict[str, Any]]


def has_command(job: Job) -> bool:
    """Return whether the job file states the command of the containers."""
    return job.command is not None or job.deploy.command != Deploy().command


def runs_job_command(job: Job) -> bool:
    """Return whether the containers run `command.run`, which `deploy.command` overrides where the job file has it."""
    return job.command is not None and job.deploy.command == Deploy().command


def check_rendezvous(plan: Plan, discovery: Discovery) -> None:
    """Raise InputError if the platform cannot serve the rendezvous of the job's command."""
    command = plan.job.command
    if command and (reason := discovery.unsupported.get(command.rendezvous)):
        provided = discovery.provides - {"torchrun"}  # which has no PS
        other = f", or rendezvous {min(provided)}" if plan.job.has_ps and provided else ""
        raise InputError(
            f"{plan.job.name} is a command with rendezvous {command.rendezvous}, but {reason}.",
            f"Use an executor that supports it: jobset, trainjob, volcano or slurm{other}.",
        )


def container_command(
    plan: Plan, role: Role, group: Group, discovery: Discovery, index_label: str | None
) -> ContainerCommand:
    """Return what each replica of a role starts, with its number from the pod's `index_label`.

    Raises InputError if the command uses a number that the platform does not give its replicas.
    """
    job, command = plan.job, plan.job.command
    if command is None:
        return ContainerCommand(list(job.deploy.command), [])
    plain, secret = split(command.env)
    workers, ps = (plan.target.replicas(role) for role in ("worker", "ps"))
    values = placeholders(job, workers, ps, group.cpu, role, _INDEX, plan.target)
    words = [fill(_escape(word), values) for word in command.run] if runs_job_command(job) else [*job.deploy.command]
    variables = {f"SIZEWRIGHT_{name.upper()}": str(value) for name, value in values.items() if value is not None}
    del variables["SIZEWRIGHT_INDEX"]
    variables["OMP_NUM_THREADS"] = str(-(-group.cpu // 1)).partition(".")[0]
    variables["PYTHONUNBUFFERED"] = "1"
    processes = command.processes_of(group.gpu.count if group.gpu else 0) if role == "worker" else 1
    if processes > 1 and runs_job_command(job):
        words = [*_torchrun_words(plan, discovery, processes), *words]
        variables["OMP_NUM_THREADS"] = str(max(1, math.ceil(group.cpu / processes)))
    elif discovery.host and command.rendezvous not in discovery.provides:
        variables |= _rendezvous(plan, role, discovery)
    settings = with_values(plain, os.environ)
    variables |= {name: fill(_escape(settings.get(name, "")), values) for name in command.env}

    needs_index = any(_INDEX in text for text in (*words, *variables.values()))
    if needs_index and not index_label:
        raise InputError(
            f"The command of {job.name} uses {{index}}, but a {discovery.kind} does not number its replicas.",
            "Remove it from command.run and command.env.",
        )
    sizes = len(getattr(plan.target, role))
    if needs_index and sizes > 1:
        raise InputError(
            f"Plan {plan.id} has {role} of {sizes} sizes, and a {discovery.kind} numbers each from 0: two replicas "
            "would have the same number.",
            "Make the groups equal.",
        )
    env: list[dict[str, Any]] = []
    if index_label:
        reference = {"fieldRef": {"fieldPath": f"metadata.labels['{index_label}']"}}
        env.append({"name": "SIZEWRIGHT_INDEX", "valueFrom": reference})
    for name, value in variables.items():
        if name in secret:
            env.append({"name": name, "valueFrom": {"secretKeyRef": {"name": job.name, "key": name}}})
        else:
            env.append({"name": name, "value": value})
    return ContainerCommand(words, env)


def _torchrun_words(plan: Plan, discovery: Discovery, processes: int) -> list[str]:
    """Return the words by which torchrun starts the ranks of a worker, before those of the command.

    Raises InputError if the platform gives its replicas no names and numbers, or if the workers have several sizes.
    """
    if not discovery.host or "torchrun" in discovery.provides:
        raise InputError(
            f"{plan.job.name} starts {processes} ranks in each worker (command.processes), and a {discovery.kind} gets "
            "one from Sizewright.",
            "Use executor trainjob, jobset, volcano or slurm; or set command.processes to 1 and use more workers.",
        )
    if len(plan.target.worker) > 1:
        raise InputError(
            f"Plan {plan.id} has workers of {len(plan.target.worker)} sizes, and torchrun starts as many ranks on each "
            "node.",
            "Make the groups equal.",
        )
    host = _hosts(plan, "worker", discovery)[0]
    return [
        "torchrun",
        f"--nnodes={plan.target.replicas('worker')}",
        f"--nproc-per-node={processes}",
        f"--node-rank={_INDEX}",
        f"--master-addr={host}",
        f"--master-port={_TORCHRUN_PORT}",
        "--no-python",
    ]


def _hosts(plan: Plan, role: Role, discovery: Discovery) -> list[str]:
    name = discovery.names.get(role, role)
    return [discovery.host.format(job=plan.job.name, role=name, index=i) for i in range(plan.target.replicas(role))]


def secrets(plan: Plan) -> Sequence[str]:
    """Return the names of the variables whose values are secret, and therefore in no manifest."""
    return list(split(plan.job.command.env)[1]) if plan.job.command else []


def _escape(text: str) -> str:
    """Return text that Kubernetes does not expand: it would replace `$(NAME)` and `$$`."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _rendezvous(plan: Plan, role: Role, discovery: Discovery) -> dict[str, str]:
    """Return the rendezvous variables that the engine sets, too, with the platform's host names."""
    roles: tuple[Role, ...] = ("chief", "worker", "ps")
    hosts = {each: _hosts(plan, each, discovery) for each in roles}
    cluster = {each: [f"{name}:{_PORT}" for name in names] for each, names in hosts.items() if names}
    assert plan.job.command is not None
    if plan.job.command.rendezvous == "torchrun":
        if role != "worker":
            return {}
        return {
            "RANK": _INDEX,
            "WORLD_SIZE": str(len(hosts["worker"])),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": _INDEX,
            "MASTER_ADDR": hosts["worker"][0],
            "MASTER_PORT": str(_TORCHRUN_PORT),
        }
    if plan.job.command.rendezvous == "tf_config":
        task = json.dumps({"type": role, "index": _INDEX}).replace(f'"{_INDEX}"', _INDEX)
        return {"TF_CONFIG": f'{{"cluster": {json.dumps(cluster)}, "task": {task}}}'}
    lists = {f"{each.upper()}_HOSTS": ",".join(addresses) for each, addresses in cluster.items()}
    return lists | {"JOB_NAME": role, "TASK_INDEX": _INDEX}
