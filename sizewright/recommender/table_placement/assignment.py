"""Assign parts of tables to servers so that the largest load is as small as possible, within each server's memory.

This is the makespan problem with a capacity. The longest parts go first to the server with the least load (Graham
1969). Where memory is so tight that this does not fit, the largest go to the fullest server that has room (best fit
decreasing), in several orders, and small problems go to HiGHS, which asks only whether anything fits. Moves and swaps
with the fullest server improve the load; small problems that stay above their bound go to HiGHS again, which proves a
gap. The bounds are the mean load, the largest part, and the parts that must share a server because there
are more parts than servers.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GAP = 0.002
"""A gap that is good enough: measured loads are not known better."""
_MAX_CELLS = 6_000
"""Parts × servers up to which HiGHS is asked."""
_ORDERS = 30
"""Orders in which parts are packed before it is said that none was found that fits."""
_SHAKES = 60
"""Times that the search starts again from a shaken assignment."""


class Assignment(NamedTuple):
    """The server of each part (n,), and a lower bound of the largest load."""

    server: Ints
    bound: float


def assign(loads: Floats, sizes: Floats, servers: int, capacity: float, *, seconds: float = 1.0) -> Assignment | None:
    """Return an assignment of parts with `loads` (n,) and `sizes` (n,), or None where none was found that fits.

    `capacity` is that of each server. HiGHS gets at most `seconds`; with 0 only a quick search is made.
    """
    is_small = loads.size * servers <= _MAX_CELLS
    ends_at = time.monotonic() + seconds
    start = _greedy(loads, sizes, servers, capacity, by=loads)
    if start is None:
        start = _packed(loads, sizes, servers, capacity, orders=_ORDERS if seconds else 1)
    if start is None and seconds and is_small:
        start, _ = _solve(loads, sizes, servers, capacity, seconds, any_that_fits=True)
    if start is None:
        return None
    bound = lower_bound(loads, servers)
    best = _search(start, loads, sizes, servers, capacity, bound, shakes=_SHAKES if seconds else 0)
    left_s = ends_at - time.monotonic()
    if left_s > 0 and _peak(best, loads, servers) > (1 + _GAP) * bound and is_small:
        solved, proven = _solve(loads, sizes, servers, capacity, left_s)
        bound = max(bound, proven)
        if solved is not None and _peak(solved, loads, servers) < _peak(best, loads, servers):
            best = solved
    return Assignment(best, bound)


def lower_bound(loads: Floats, servers: int) -> float:
    """Return what the largest load cannot be below.

    Of the k·m + 1 largest parts, one of m servers has at least k + 1.
    """
    ordered = np.sort(loads)[::-1]
    together = [ordered[k * servers - k : k * servers + 1].sum() for k in range(1, (loads.size - 1) // servers + 1)]
    return float(max(loads.sum() / servers, ordered[0], *together))


def _greedy(
    loads: Floats, sizes: Floats, servers: int, capacity: float, *, by: Floats, fullest_first: bool = False
) -> Ints | None:
    """Put the parts, the largest `by` first, on the server with the least of it that has room, or the least room."""
    filled, used = np.zeros(servers), np.zeros(servers)
    server = np.empty(loads.size, dtype=np.int64)
    for part in np.argsort(-by, kind="stable"):
        has_room = used + sizes[part] <= capacity
        if not has_room.any():
            return None
        chosen = int(np.argmin(np.where(has_room, -used if fullest_first else filled, np.inf)))
        server[part] = chosen
        filled[chosen] += by[part]
        used[chosen] += sizes[part]
    return server


def _packed(loads: Floats, sizes: Floats, servers: int, capacity: float, *, orders: int) -> Ints | None:
    """Put the parts, the largest first, on the server with the least in use, or else on the fullest with room.

    What does not fit so is tried again in orders that are a little shuffled.
    """
    rng = np.random.default_rng(0)
    found = _greedy(loads, sizes, servers, capacity, by=sizes)
    for order in range(orders):
        if found is not None:
            break
        by = sizes * np.exp(rng.normal(0.0, 0.02 * order, sizes.size))
        found = _greedy(loads, sizes, servers, capacity, by=by, fullest_first=True)
    return found


def _search(
    start: Ints, loads: Floats, sizes: Floats, servers: int, capacity: float, bound: float, *, shakes: int
) -> Ints:
    """Improve an assignment by moves and swaps; where none helps, shake it and try again."""
    rng = np.random.default_rng(0)
    best = _descend(start.copy(), loads, sizes, servers, capacity)
    for _ in range(shakes):
        if _peak(best, loads, servers) <= (1 + _GAP) * bound:
            break
        tried = _descend(_shaken(best, sizes, servers, capacity, rng), loads, sizes, servers, capacity)
        if _peak(tried, loads, servers) < _peak(best, loads, servers):
            best = tried
    return best


def _descend(server: Ints, loads: Floats, sizes: Floats, servers: int, capacity: float) -> Ints:
    """Move or swap parts of the fullest server as long as the larger load of the two servers falls."""
    filled, used = (np.bincount(server, each, servers) for each in (loads, sizes))
    while True:
        full = int(np.argmax(filled))
        inside, outside = np.flatnonzero(server == full), np.flatnonzero(server != full)
        # Each other part may come in exchange; the last columns stand for a move to each server, with nothing back.
        back_load = np.concatenate([loads[outside], np.zeros(servers)])
        back_size = np.concatenate([sizes[outside], np.zeros(servers)])
        target = np.concatenate([server[outside], np.arange(servers)])
        load_change = loads[inside][:, None] - back_load
        size_change = sizes[inside][:, None] - back_size
        larger = np.maximum(filled[full] - load_change, filled[target] + load_change)
        fits = (used[full] - size_change <= capacity) & (used[target] + size_change <= capacity) & (target != full)
        larger = np.where(fits, larger, np.inf)
        if not larger.size or larger.min() >= filled[full] * (1 - 1e-9):
            return server
        i, j = np.unravel_index(int(np.argmin(larger)), larger.shape)
        other = int(target[j])
        if j < outside.size:
            server[outside[j]] = full
        server[inside[i]] = other
        filled, used = (np.bincount(server, each, servers) for each in (loads, sizes))


def _shaken(server: Ints, sizes: Floats, servers: int, capacity: float, rng: np.random.Generator) -> Ints:
    """Return the assignment with some parts on other servers that have room."""
    shaken, used = server.copy(), np.bincount(server, sizes, servers)
    for part in rng.choice(server.size, size=min(server.size, 2 + servers // 2), replace=False):
        other = int(rng.integers(servers))
        if used[other] + sizes[part] <= capacity:
            used[shaken[part]] -= sizes[part]
            used[other] += sizes[part]
            shaken[part] = other
    return shaken


def _solve(
    loads: Floats, sizes: Floats, servers: int, capacity: float, seconds: float, *, any_that_fits: bool = False
) -> tuple[Ints | None, float]:
    """Return the assignment that HiGHS finds within some seconds, if any, and the bound that it proves.

    With `any_that_fits` loads do not matter, and the bound is 0.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_array, csr_array, eye_array, kron

    parts, scale = loads.size, loads.sum() / servers
    share_of_memory = sizes / capacity if np.isfinite(capacity) else np.zeros(parts)
    on_each: Any = eye_array(servers)
    largest, nothing = csr_array(-np.ones((servers, 1))), csr_array((servers, 1))
    rows: Any = block_array(
        [
            [kron(eye_array(parts), np.ones((1, servers))), None],  # each part is on one server
            [kron((loads / scale)[None, :], on_each), largest],  # loads, below the largest
            [kron(share_of_memory[None, :], on_each), nothing],
        ]
    )
    low = np.concatenate([np.ones(parts), np.full(2 * servers, -np.inf)])
    high = np.concatenate([np.ones(parts), np.zeros(servers), np.ones(servers)])
    cost = np.zeros(parts * servers + 1)
    cost[-1] = 0.0 if any_that_fits else 1.0
    answer = milp(
        cost,
        constraints=LinearConstraint(rows, low, high),
        bounds=Bounds(0, np.concatenate([np.ones(parts * servers), [np.inf]])),
        integrality=np.concatenate([np.ones(parts * servers), [0]]),
        options={"time_limit": seconds, "mip_rel_gap": _GAP},
    )
    proven = float(answer.mip_dual_bound or 0.0) * scale
    if answer.x is None:
        return None, proven
    server = np.argmax(answer.x[:-1].reshape(parts, servers), axis=1).astype(np.int64)
    fits = np.bincount(server, sizes, servers).max() <= capacity  # HiGHS allows a millionth more
    return (server if fits else None), proven


def _peak(server: Ints, loads: Floats, servers: int) -> float:
    return float(np.bincount(server, loads, servers).max())
