"""Lagrangian prices with repair: near to the best for many jobs and several resources, with a proven gap."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator, in_units, normal
from sizewright.cluster.allocators._dual import prices_of
from sizewright.cluster.allocators._polish import polished
from sizewright.cluster.allocators._repair import repaired
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem


class Lagrangian(Allocator):
    """Prices at which the jobs themselves would take about what there is; what they take is made to fit.

    The least bound over all prices is that of the linear relaxation, in which no more jobs than there are resources
    are split: the gap falls as the jobs grow in number.
    """

    name = "lagrangian"
    origin = "Geoffrion 1974"
    by_value = True

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        scaled, unit = normal(problem)
        prices = prices_of(scaled, until)
        choice = repaired(scaled, prices.each, prices.choice)
        choice = polished(scaled, prices, choice, self.gap, until)
        return in_units(chosen(scaled, self.name, choice, bound=prices.bound, prices=prices.each), problem, unit)
