"""Sizes in Slurm's terms: whole cores, and memory per core in whole MiB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import round_up_cores
from sizewright.formatting import MIB
from sizewright.spec import ROLES, Allocation, Gpu, Group, Plan, Role
from sizewright.spec.units import is_count

_MEMORY = re.compile(r"(\d{1,18})([KMGT]?)B?", re.IGNORECASE | re.ASCII)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_GPUS = re.compile(r"(?:([A-Za-z][-\w.]*):)?(\d{1,9})", re.ASCII)
_ANY_GPU = Gpu(count=1).kind


class Component(NamedTuple):
    """One component of a heterogeneous job, which is one group of a plan's replicas."""

    role: Role
    first: int
    """The number of the group's first replica within its role."""
    group: Group


def whole_cores(group: Group) -> int:
    """Return the cores of a replica, rounded up, since Slurm allocates whole cores."""
    return round_up_cores(group.cpu)


def rounded(group: Group) -> Group:
    """Return a group as it reads back from a script: whole cores, and whole MiB for each of them."""
    memory = mib_per_core(group) * MIB * whole_cores(group)
    return group.model_copy(update={"cpu": float(whole_cores(group)), "memory_bytes": memory})


def rounded_allocation(allocation: Allocation) -> Allocation:
    """Return an allocation as Slurm runs it: rounded, and without groups that have no replicas."""
    groups: dict[str, tuple[Group, ...]] = {
        role: tuple(rounded(group) for group in getattr(allocation, role) if group.replicas) for role in ROLES
    }
    return allocation.model_copy(update=groups)


def components_of(plan: Plan) -> list[Component]:
    """Return the plan's groups that have replicas, in the order of a script's components."""
    components = []
    for role in ROLES:
        first = 0
        for group in getattr(plan.target, role):
            if group.replicas:
                components.append(Component(role, first, group))
                first += group.replicas
    return components


def with_sizes(plan: Plan, groups: Sequence[Group]) -> Plan:
    """Return the plan with these groups, given in the order of `components_of`."""
    groups_by_role: dict[str, tuple[Group, ...]] = {}
    for component, group in zip(components_of(plan), groups, strict=True):
        groups_by_role[component.role] = (*groups_by_role.get(component.role, ()), group)
    # A script has no groups without replicas, so these do not count as a difference.
    is_same = all(
        role_groups == tuple(group for group in getattr(plan.target, role) if group.replicas)
        for role, role_groups in groups_by_role.items()
    )
    if is_same:
        return plan
    return plan.model_copy(update={"target": plan.target.model_copy(update=groups_by_role)})


def mib_per_core(group: Group) -> int:
    """Return the memory per core in MiB, rounded up; 0 if the group has no memory limit."""
    return -(-group.memory_bytes // (MIB * whole_cores(group)))


def gpu_option(gpu: Gpu) -> str:
    """Return the value of `--gpus-per-task`: `2`, or `a100:2` if the plan names a kind."""
    return str(gpu.count) if gpu.kind == _ANY_GPU else f"{gpu.kind}:{gpu.count}"


def read_memory(value: str, field: str) -> int:
    """Return the bytes of an amount in Slurm's units, which are powers of 1024; MiB without a unit.

    Raises InputError with the field if it is not such an amount.
    """
    match = _MEMORY.fullmatch(value)
    if not match:
        raise InputError(
            f"{field} is '{value}', which Slurm does not accept as an amount of memory.",
            "Write a whole number with K, M, G or T (powers of 1024), such as 512M or 2G; without a unit it is MiB.",
        )
    scale: int = 1024 ** _POWERS[match[2].upper() or "M"]
    return int(match[1]) * scale


def read_count(value: str, field: str, minimum: int = 0) -> int:
    """Return a whole number. Raises InputError with the field if it is not one, or below the minimum."""
    if not (is_count(value) and int(value) >= minimum):
        raise InputError(
            f"{field} is '{value}', which is not a whole number of {minimum} or more.",
            "Correct it; Slurm allocates whole cores and tasks.",
        )
    return int(value)


def read_gpus(value: str, field: str) -> Gpu | None:
    """Return the GPUs of `2` or `a100:2`; None for 0. Raises InputError with the field for any other value."""
    match = _GPUS.fullmatch(value)
    if not match:
        raise InputError(f"{field} is '{value}', which is not a number of GPUs.", "Write it as 1 or a100:2.")
    return Gpu(kind=match[1] or _ANY_GPU, count=int(match[2])) if int(match[2]) else None
