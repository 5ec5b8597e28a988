"""Concave-hull greedy (Sinha and Zoltners 1979): with one resource, at most one step from the optimum."""

from __future__ import annotations

from sizewright.cluster.allocators.slope import SlopeGreedy


class HullGreedy(SlopeGreedy):
    """Takes steps along the concave hull of each job's table, the greatest gain per dominant share first.

    With a scheduler state it has the utilities and the start of slope greedy.
    """

    name = "hull"
    steepest = True
