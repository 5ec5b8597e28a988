"""Recommendations in the form of a VerticalPodAutoscaler's status, which any controller may write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sizewright.errors import InputError
from sizewright.formatting import cpu_quantity, memory_quantity
from sizewright.spec import ROLES, Allocation, Recommendation, Role


def vpa_status(answer: Recommendation) -> dict[str, Any]:
    """Return the status of `autoscaling.k8s.io/v1` for a recommendation, with one container for each role.

    A bound of an amount is the smallest or largest of the allocations `lower`, `target` and `upper`, since one with
    fewer replicas may have larger ones. Numbers of replicas have no place there. Raises InputError if a role has
    replicas of several sizes, or if nothing is recommended.
    """
    if answer.target is None:
        raise InputError(f"There is no recommendation for {answer.job}: {' '.join(answer.reasons)}")
    near = [each for each in (answer.lower, answer.target, answer.upper) if each]
    uncapped = answer.uncapped or answer.target
    containers = [
        {
            "containerName": role,
            "target": _amounts([answer.target], role, max),
            "lowerBound": _amounts(near, role, min),
            "upperBound": _amounts(near, role, max),
            "uncappedTarget": _amounts([uncapped], role, max),
        }
        for role in ROLES
        if answer.target.replicas(role)
    ]
    return {"recommendation": {"containerRecommendations": containers}}


def _amounts(allocations: list[Allocation], role: Role, choose: Callable[..., Any]) -> dict[str, str]:
    """Return the least or largest cores and bytes of a role's replicas, without bytes where none are known."""
    groups = [group for each in allocations for group in getattr(each, role) if group.replicas]
    if len(groups) > len(allocations):
        raise InputError(
            f"An autoscaler gives all replicas of a role one size, but {role} has several.", "Make the groups equal."
        )
    amounts = {"cpu": cpu_quantity(choose(group.cpu for group in groups))} if groups else {}
    known = [group.memory_bytes for group in groups if group.memory_bytes]
    return amounts | ({"memory": memory_quantity(choose(known))} if known else {})
