"""Utilities (J, K) of candidates, computed from speeds and remaining work; column 0 is nothing."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import Bools, Floats, Ints
from sizewright.cluster.problem.scheduler_state import SchedulerState


def trained_s(scheduler_state: SchedulerState, current: Ints) -> Floats:
    """Return the seconds (J, K) of the next window in which a job trains.

    That is the window, minus the restart if the candidate differs from `current` (J,).
    """
    changed = np.arange(scheduler_state.speed.shape[1]) != current[:, None]
    after_restart = np.maximum(scheduler_state.window_s - scheduler_state.restart_s, 0.0)
    return np.where(changed, after_restart[:, None], scheduler_state.window_s)


def progress(scheduler_state: SchedulerState, current: Ints) -> Floats:
    """Return the share (J, K) of each job's work that is done in the next window, more if it ends within it.

    A reconstruction of the objective of arXiv 2109.03389: with r_j the remaining work, W_j the work of the job and
    x = s_j(k)·max(0, T − d_j(k)) / r_j how often it could be done in the window, p_jk = x·r_j / W_j. A job that ends
    within the window (x > 1) counts (2 − 1/x)·r_j / W_j: that rises with the time that remains of the window, else
    nothing would be gained by a faster candidate. The slope at x = 1 is the same.
    """
    remaining = np.maximum(scheduler_state.remaining, 1e-300)[:, None]
    often = scheduler_state.speed * trained_s(scheduler_state, current) / remaining
    counted = np.where(often > 1, 2 - 1 / np.maximum(often, 1.0), often)
    return np.asarray(counted * scheduler_state.remaining[:, None] / np.maximum(scheduler_state.work, 1e-300)[:, None])


WEIGHT = 0.25
"""Power of the remaining work by which a job counts less.

0 maximises throughput, which starves jobs that scale badly; 1 is Huawei's progress. Of 0 to 1, simulated at loads of
0.7 to 1.1, 0.2 to 0.3 give the shortest completion times."""
HORIZON_S = 900.0
"""Time over which the cost of a change is spread."""


def weighted_progress(scheduler_state: SchedulerState, current: Ints, units: Floats, smallest: Ints) -> Floats:
    """Return the speed (J, K) divided by the power `WEIGHT` of the remaining work, in units that jobs have in common.

    v_jk = (n_j·ε_j)^-WEIGHT · s_jk·ε_j · (1 − min(restart_j / HORIZON_S, 1) if k is not the current candidate), with
    s_jk work per second, n_j remaining work, and ε_j the units of the job's smallest candidate over its speed (our own
    formula). `units` (J, K) is what a candidate takes: its dominant share, or the amount of one resource. `smallest`
    (J,) is each job's smallest candidate; if that takes no units, the smallest one that does is used.

    The factor ε_j makes jobs comparable: it expresses work as units × seconds with the job's smallest candidate.
    """
    rows = np.arange(len(smallest))
    smallest_with_units = np.where((units > 0) & (scheduler_state.speed > 0), units, np.inf).argmin(axis=1)
    base = np.where(units[rows, smallest] > 0, smallest, smallest_with_units)
    unit = np.maximum(units[rows, base], 1e-300) / np.maximum(scheduler_state.speed[rows, base], 1e-300)
    remaining = np.maximum(scheduler_state.remaining * unit, 1e-300)
    changed = np.arange(scheduler_state.speed.shape[1]) != current[:, None]
    training_share = 1.0 - np.minimum(scheduler_state.restart_s / HORIZON_S, 1.0)[:, None] * changed
    return np.asarray(remaining[:, None] ** -WEIGHT * scheduler_state.speed * training_share * unit[:, None])


def completion_saved(scheduler_state: SchedulerState, base: Ints) -> Floats:
    """Return by how many seconds (J, K) each candidate ends earlier than the one in `base` (J,); 0 with nothing.

    This is the value in the knapsack of Aryl (arXiv 2202.07896): T(base) − T(base + k).
    """
    seconds_left = scheduler_state.seconds_left()
    at_base = seconds_left[np.arange(len(base)), base]
    with np.errstate(invalid="ignore"):
        saved = at_base[:, None] - seconds_left
    return np.where(np.isfinite(saved), saved, 0.0)


def goodput(scheduler_state: SchedulerState, current: Ints, offered: Bools) -> Floats:
    """Return the speed (J, K) relative to the slowest `offered` (J, K) candidate, reduced by the cost of a restart.

    Sia (SOSP 2023) multiplies by the restart factor (age − restarts·delay) / (age + delay). Only the next restart is
    counted here, since earlier ones are the same for all candidates of a job.
    """
    slowest = np.where((scheduler_state.speed > 0) & offered, scheduler_state.speed, np.inf).min(axis=1)
    age = np.maximum(
        scheduler_state.now_s
        - np.where(np.isfinite(scheduler_state.started_s), scheduler_state.started_s, scheduler_state.now_s),
        0.0,
    )
    factor = np.where(scheduler_state.restart_s > 0, age / np.maximum(age + scheduler_state.restart_s, 1e-300), 1.0)
    running = current > 0
    changed = running[:, None] & (np.arange(scheduler_state.speed.shape[1]) != current[:, None])
    relative = scheduler_state.speed / np.where(np.isfinite(slowest), slowest, 1.0)[:, None]
    return np.asarray(relative * np.where(changed, factor[:, None], 1.0))
