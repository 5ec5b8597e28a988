"""Prices of the resources: the Lagrangian dual of the allocation problem, minimised by cutting planes in a box.

At prices λ each job takes the candidate with the highest utility minus λ·need. The dual function
D(λ) = λ·capacity + Σ_j max_k (utility_jk − λ·need_jk) bounds the utility of every choice within the capacity, and its
minimum equals the bound of the linear relaxation (Geoffrion 1974). D is convex and has as many variables as there are
resources. With many jobs, a sample of them is priced first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import highspy
import numpy as np

from sizewright.cluster.allocators._greedy_upgrades import apply_steps, hull, ranked_steps
from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints, Problem

TOLERANCE = 1e-5
"""Relative tolerance of the dual's minimum, small enough for a gap of a thousandth."""
MAX_CUTS = 80
SAMPLE = 3000
"""Number of jobs that are priced first if there are more than twice as many."""
_INFINITY = highspy.kHighsInf


@dataclass(frozen=True)
class DualPrices:
    """Prices λ, the bound that they prove, and the choice that maximises utility minus λ·need."""

    prices: Floats
    """(R,): utility per unit of each resource."""
    bound: float
    choice: Ints
    """(J,)."""


def open_candidates(problem: Problem, prices: Floats, bound: float, value: float) -> Bools:
    """Return the candidates (J, K) that a choice with a utility above `value` may contain (pegging).

    A candidate whose loss at the `prices` (R,) exceeds the difference between `bound` and `value` is in no such choice.
    """
    net = problem.utilities - problem.needs @ prices
    loss = net.max(axis=1, keepdims=True) - net
    return np.asarray(problem.offered & (loss <= (bound - value) * (1 + 1e-9)))


def solve_dual(problem: Problem, until: float, seed: int = 0) -> DualPrices:
    """Return the prices of the lowest bound, or the best that are found by `until` (`time.perf_counter`)."""
    needs = problem.needs
    utilities = problem.utilities
    capacity = problem.capacity
    if len(capacity) == 1:
        return _solve_one_resource(problem)
    J = len(utilities)
    finite = np.abs(utilities, where=np.isfinite(utilities), out=np.zeros_like(utilities))
    total = finite.max(axis=1).sum()
    start = total / np.maximum(capacity, 1e-300) if total > 0 else np.zeros(len(capacity))
    start = np.where(capacity > 0, start, _prohibitive_prices(problem))
    box = 1.0
    if J > 2 * SAMPLE:
        sample = np.random.default_rng(seed).choice(J, SAMPLE, replace=False)
        start = _minimise(needs[sample], utilities[sample], capacity * SAMPLE / J, start, box, until).prices
        box = 0.1
    return _minimise(needs, utilities, capacity, start, box, until)


def _solve_one_resource(problem: Problem) -> DualPrices:
    """Return the exact price of one resource: the slope of the step of the concave hulls at which the capacity ends."""
    need = np.where(problem.offered, problem.needs[:, :, 0], np.inf)
    cheapest = need == need.min(axis=1, keepdims=True)
    start = np.where(cheapest, problem.utilities, -np.inf).argmax(axis=1)
    upgrades = hull(problem, problem.needs[:, :, 0], start)
    jobs, levels = ranked_steps(problem, upgrades, problem.needs[:, :, 0])
    before, after = upgrades.columns[jobs, levels - 1], upgrades.columns[jobs, levels]
    more = problem.needs[jobs, after, 0] - problem.needs[jobs, before, 0]
    gain = problem.utilities[jobs, after] - problem.utilities[jobs, before]
    slack = problem.capacity[0] * (1 + ROUNDING) - problem.used(start)[0]
    count = int(np.searchsorted(np.cumsum(more), slack, side="right"))
    bound = problem.total(start) + float(gain[:count].sum())
    price = 0.0
    if count < len(jobs):
        price = float(gain[count] / more[count])
        bound += price * max(float(slack - more[:count].sum()), 0.0)
    return DualPrices(np.array([price]), bound, apply_steps(problem, upgrades, jobs, levels))


def _prohibitive_prices(problem: Problem) -> Floats:
    """Return prices (R,) at which no job takes a resource that the cluster does not have."""
    utilities = np.where(np.isfinite(problem.utilities), problem.utilities, 0.0)
    max_gain = np.ptp(utilities, axis=1).max(initial=0.0) + 1.0
    min_need = np.where(problem.needs > 0, problem.needs, np.inf).min(axis=(0, 1), initial=np.inf)
    return np.where(np.isfinite(min_need), max_gain / min_need, 0.0)


def _minimise(
    needs: Floats, utilities: Floats, capacity: Floats, start: Floats, box: float, until: float
) -> DualPrices:
    """Minimise the dual function from the prices `start` (R,), in a box whose size relative to `start` is `box`."""
    J, K = utilities.shape
    flat_needs = needs.reshape(J * K, -1)
    rows = np.arange(J) * K

    def dual(prices: Floats) -> tuple[float, Floats, Ints]:
        """Return the value, a subgradient (R,) and the maximising choice (J,)."""
        net = utilities - (flat_needs @ prices).reshape(J, K)
        choice = net.argmax(axis=1)
        taken = rows + choice
        value = float(prices @ capacity + net.ravel()[taken].sum())
        return value, capacity - flat_needs[taken].sum(axis=0), choice

    value, slope, choice = dual(start)
    best = DualPrices(start, value, choice)
    # a resource that seems to be free may have a price yet: a millionth of what all jobs are worth is looked at first
    scale = np.maximum(start, 1e-6 * J / np.where(capacity > 0, capacity, np.inf))
    size = scale * box
    cuts = _CuttingPlanes(np.where(scale > 0, scale, 1.0))
    unit = max(abs(value), 1e-300)
    cuts.add(start, value, slope, unit)
    for _ in range(MAX_CUTS):
        low, high = np.maximum(best.prices - size, 0.0), best.prices + size
        minimum = cuts.minimum(low, high, unit)
        if minimum is None:
            break
        prices, lower_bound = minimum
        is_inside = (((prices > low) | (low == 0)) & (prices < high)).all()
        if best.bound - lower_bound <= TOLERANCE * abs(best.bound) and is_inside:
            break
        if time.perf_counter() > until:
            break
        value, slope, choice = dual(prices)
        cuts.add(prices, value, slope, unit)
        if value >= best.bound:
            size = size * 0.5
        else:
            if best.bound - value > 0.25 * (best.bound - lower_bound):
                size = size * 1.5
            best = DualPrices(prices, value, choice)
    return best


class _CuttingPlanes:
    """A lower model of a convex function: the maximum of its cutting planes (Kelley 1960), a linear programme.

    HiGHS adds a row for each plane. The n variables are scaled by `scale` (n,).
    """

    def __init__(self, scale: Floats) -> None:
        self._scale = scale
        self._n = len(scale)
        self._model = highspy.Highs()  # type: ignore[no-untyped-call]
        self._model.setOptionValue("output_flag", False)
        self._model.setOptionValue("threads", 1)
        self._model.setOptionValue("presolve", "off")
        for _ in range(self._n):
            self._model.addVar(0.0, _INFINITY)
        self._model.addVar(-_INFINITY, _INFINITY)
        self._model.changeColCost(self._n, 1.0)
        self._columns = np.arange(self._n + 1, dtype=np.int32)

    def add(self, point: Floats, value: float, slope: Floats, unit: float) -> None:
        """Add the plane value + slope · (x − point); `unit` is the order of magnitude of the function."""
        row = np.append(slope * self._scale, -unit) / unit
        self._model.addRow(-_INFINITY, float(slope @ point - value) / unit, self._n + 1, self._columns, row)

    def minimum(self, low: Floats, high: Floats, unit: float) -> tuple[Floats, float] | None:
        """Return where the model has its minimum in a box, and the minimum; None if HiGHS finds no optimum."""
        self._model.changeColsBounds(self._n, self._columns[:-1], low / self._scale, high / self._scale)
        self._model.run()
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = np.array(self._model.getSolution().col_value)
        return np.clip(solution[:-1] * self._scale, low, high), float(solution[-1]) * unit
