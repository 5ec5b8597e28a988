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
    prefer: Bools | None = None,
) -> tuple[Counts, Bools]:
    """Return how many of its `count` (n,) replicas each job places on each server (n, N), and which jobs (n,) fit.

    A replica needs `need` (n, R); `free` (R, n, N) is reduced by what is placed. Replicas stay on their `current`
    servers (n, N) if they can. The others go to the fullest server with room for all of them; where there is none, to
    the servers with the most room until one has room for the rest. Of the `allowed` servers (n, N), those of `prefer`
    (n, N) come first. `scale` (R,) makes amounts of different resources comparable. Of the `special` resources (R,),
    as few as possible are left over on servers of replicas that do not need them.
    """
    room = np.where(allowed, count[:, None].astype(float), 0.0)
    for r in range(len(free)):
        if need[:, r].any():
            with np.errstate(divide="ignore", invalid="ignore"):
                most = (free[r] + ROUNDING * scale[r]) / need[:, r, None]
            np.fmin(room, most, out=room)  # 0 / 0 is no limit
    fits = np.maximum(room, 0.0).astype(np.int32)
    weight = np.where(special & (need == 0), SPECIAL, 1.0) / scale
    amount = sum(free[r] * weight[:, r, None] for r in range(len(free)))
    placed = np.zeros_like(fits)
    remaining = count.astype(np.int32)
    if current is not None:
        runs = current.any(axis=1)
        placed[runs] = _stay(np.minimum(current[runs], fits[runs]), remaining[runs], amount[runs])
        fits -= placed
        remaining -= placed.sum(axis=1, dtype=np.int32)
    for usable in (None,) if prefer is None else (prefer, ~prefer):
        more = _fill(fits if usable is None else fits * usable, remaining, amount)
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
        rows = split[:, None]
        taken[rows, order] = full
        rest[split] -= full.sum(axis=1, dtype=np.int32)
    whole = (fits - taken >= rest[:, None]) & (rest[:, None] > 0)
    last = np.where(whole, amount, np.inf).argmin(axis=1)
    jobs = np.flatnonzero(whole[np.arange(len(last)), last])
    taken[jobs, last[jobs]] += rest[jobs]
    return taken
