"""Sizes as Slurm has them: whole cores, memory for each core in whole MiB."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from sizewright.errors import InputError
from sizewright.spec import ROLES, Allocation, Gpu, Group, Plan, Role
from sizewright.spec.units import MIB, is_count

_MEMORY = re.compile(r"(\d{1,18})([KMGT]?)B?", re.IGNORECASE | re.ASCII)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_GPUS = re.compile(r"(?:([A-Za-z][-\w.]*):)?(\d{1,9})", re.ASCII)
_ANY_GPU = Gpu(count=1).kind


def whole_cores(group: Group) -> int:
    """Slurm gives whole cores: rounded up."""
    return max(1, math.ceil(round(group.cpu, 6)))


def rounded(group: Group) -> Group:
    """As a script tells it again: whole cores, whole MiB for each of them."""
    memory = mib_per_core(group) * MIB * whole_cores(group)
    return group.model_copy(update={"cpu": float(whole_cores(group)), "memory_bytes": memory})


def rounded_allocation(allocation: Allocation) -> Allocation:
    """As it runs there; without groups that have no replicas."""
    groups: dict[str, tuple[Group, ...]] = {
        role: tuple(rounded(g) for g in getattr(allocation, role) if g.replicas) for role in ROLES
    }
    return allocation.model_copy(update=groups)


def groups_of(plan: Plan) -> list[tuple[Role, int, Group]]:
    """In the order of a script's components: role, the number of the first replica in its role, and size."""
    found = []
    for role in ROLES:
        first = 0
        for group in getattr(plan.target, role):
            if group.replicas:
                found.append((role, first, group))
                first += group.replicas
    return found


def regrouped(plan: Plan, groups: Sequence[Group]) -> Plan:
    """The plan with these sizes, in the order of `groups_of`."""
    told: dict[str, tuple[Group, ...]] = dict.fromkeys(ROLES, ())
    for (role, _, _), group in zip(groups_of(plan), groups, strict=True):
        told[role] += (group,)
    # Groups without replicas are in no script.
    changed = {role: of_role for role, of_role in told.items() if of_role}
    if all(of_role == tuple(g for g in getattr(plan.target, role) if g.replicas) for role, of_role in changed.items()):
        return plan
    return plan.model_copy(update={"target": plan.target.model_copy(update=changed)})


def mib_per_core(group: Group) -> int:
    """Rounded up; 0 where memory is not limited."""
    return -(-group.memory_bytes // (MIB * whole_cores(group)))


def gpu_option(gpu: Gpu) -> str:
    """`2`, or `a100:2` where the plan names a kind."""
    return str(gpu.count) if gpu.kind == _ANY_GPU else f"{gpu.kind}:{gpu.count}"


def read_memory(value: str, field: str) -> int:
    """Bytes; Slurm's units are powers of 1024, and MiB without one. Raises InputError that names the field."""
    found = _MEMORY.fullmatch(value)
    if not found:
        raise InputError(
            f"{field} is '{value}', which is no amount of memory to Slurm.",
            "Write a whole number with K, M, G or T (powers of 1024), such as 512M or 2G; without a unit it is MiB.",
        )
    scale: int = 1024 ** _POWERS[found[2].upper() or "M"]
    return int(found[1]) * scale


def read_count(value: str, field: str, least: int = 0) -> int:
    """A whole number. Raises InputError that names the field."""
    if not (is_count(value) and int(value) >= least):
        raise InputError(
            f"{field} is '{value}', which is not a whole number of {least} or more.",
            "Write one; Slurm gives whole cores and tasks.",
        )
    return int(value)


def read_gpus(value: str, field: str) -> Gpu | None:
    """`2` or `a100:2`; None for 0. Raises InputError that names the field."""
    found = _GPUS.fullmatch(value)
    if not found:
        raise InputError(f"{field} is '{value}', which is no number of GPUs.", "Write such as 1 or a100:2.")
    return Gpu(kind=found[1] or _ANY_GPU, count=int(found[2])) if int(found[2]) else None
