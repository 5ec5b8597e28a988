"""Best fit of equal replicas, for many jobs at once that each have servers of their own.

n jobs, N servers for each of them, R resources.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints

Counts = NDArray[np.int32]
SPECIAL = 1e3
"""Weight of the free amount of a special resource, such as GPUs, when replicas without need for it choose a server."""


def best_fit(
    free: Floats,
    count: Ints,
    need: Floats,
    allowed: Bools,
    scale: Floats,
    special: Bools,
    current: Counts | None = None,
) -> tuple[Counts, Bools]:
    """Return how many of its `count` (n,) replicas each job places on each server (n, N), and which jobs (n,) fit.

    A replica needs `need` (n, R); `free` (R, n, N) is reduced by what is placed. Replicas stay on their `current`
    servers (n, N) if they can. The others go to the fullest server with room for all of them; where there is none, to
    the servers with the most room until one has room for the rest. Only `allowed` servers (n, N) are used. `scale` (R,)
    makes amounts of different resources comparable. Of the `special` resources (R,), as few as possible are left over
    on servers of replicas that do not need them.
    """
    room = np.where(allowed, count[:, None], 0.0)
    needed = need > 0
    one_over_need = np.divide(1.0, need, out=np.full(need.shape, np.inf), where=needed)
    for r in np.flatnonzero(needed.any(axis=0)).tolist():
        np.fmin(room, (free[r] + ROUNDING * scale[r]) * one_over_need[:, r, None], out=room)
    fits = np.maximum(room, 0.0).astype(np.int32)
    amount = np.einsum("rjs,jr->js", free, np.where(special & ~needed, SPECIAL, 1.0) / scale)
    placed = np.zeros_like(fits)
    remaining = count.astype(np.int32)
    if current is not None:
        runs = current.any(axis=1)
        placed[runs] = _stay(np.minimum(current[runs], fits[runs]), remaining[runs], amount[runs])
        fits -= placed
        remaining -= placed.sum(axis=1, dtype=np.int32)
    more = _fill(fits, remaining, amount)
    placed += more
    remaining -= more.sum(axis=1, dtype=np.int32)
    i, server = np.nonzero(placed)
    free[:, i, server] -= placed[i, server] * need[i].T
    return placed, remaining == 0


def _stay(staying: Counts, remaining: Counts, amount: Floats) -> Counts:
    """Return `staying` (n, N) cut to the `remaining` replicas (n,).

    Servers with few replicas lose theirs first, and of these the emptiest, by the free `amount` (n, N).
    """
    order = np.lexsort((amount, -staying), axis=1)
    largest_first = np.take_along_axis(staying, order, axis=1)
    before = np.cumsum(largest_first, axis=1, dtype=np.int32) - largest_first
    kept = np.clip(remaining[:, None] - before, 0, largest_first)
    np.put_along_axis(staying, order, kept, axis=1)
    return staying


def _fill(fits: Counts, remaining: Counts, amount: Floats) -> Counts:
    """Return how many of the `remaining` replicas (n,) each server takes; it `fits` (n, N) of them at most.

    `amount` (n, N) is how much is free on each server.
    """
    taken = np.zeros_like(fits)
    rest = remaining.copy()
    split = np.flatnonzero(fits.max(axis=1, initial=0) < rest)
    if len(split):
        order = np.argsort(-fits[split], axis=1, kind="stable")
        most_first = np.take_along_axis(fits[split], order, axis=1)
        before = np.cumsum(most_first, axis=1, dtype=np.int32) - most_first
        # the servers with the most room are taken up, until one has room for the rest
        full = np.where(most_first < rest[split, None] - before, most_first, 0)
        taken[split[:, None], order] = full
        rest[split] -= full.sum(axis=1, dtype=np.int32)
        fits = fits - taken
    last = np.where(fits >= rest[:, None], amount, np.inf).argmin(axis=1)
    jobs = np.arange(len(last))
    taken[jobs, last] += np.where(fits[jobs, last] >= rest, rest, 0)
    return taken
