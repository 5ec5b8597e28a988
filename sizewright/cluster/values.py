"""What candidates are worth, told by speeds and work left: (J, K) each, column 0 included."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Bools, Floats, Ints


def trained_s(facts: Facts, current: Ints) -> Floats:
    """(J, K): seconds of the next window in which a job trains: all but those of its restart, where it gets another
    candidate than `current` (J,)."""
    changed = np.arange(facts.speed.shape[1]) != current[:, None]
    left = np.maximum(facts.window_s - facts.restart_s, 0.0)
    return np.where(changed, left[:, None], facts.window_s)


def progress(facts: Facts, current: Ints) -> Floats:
    """(J, K): share of each job's work that is done in the next window.

    A reconstruction of the objective of arXiv 2109.03389: p_jk = min(r_j, s_j(k)·max(0, T − d_j(k))) / W_j.
    """
    done = np.minimum(facts.remaining[:, None], facts.speed * trained_s(facts, current))
    return np.asarray(done / np.maximum(facts.work, 1e-300)[:, None])


WEIGHT = 0.25
"""Power of the work left by which a job counts less: 0 would be throughput alone, which starves what scales badly; 1 is
Huawei's progress. Of 0 to 1, tried in simulation at loads of 0.7 to 1.1, 0.2 to 0.3 end jobs soonest."""
HORIZON_S = 900.0
"""Over which the time that a change costs is spread."""


def weighted_progress(facts: Facts, current: Ints, units: Floats, least: Ints) -> Floats:
    """(J, K): work done a second over the power `WEIGHT` of the work left, both in units × seconds of the job's least
    candidate that needs anything; `units` (J, K) are what a candidate takes: its dominant share, or a resource's units.

    v_jk = (n_j·ε_j)^-WEIGHT · s_jk·ε_j · (1 − min(restart_j / HORIZON_S, 1) where k is not what it has), with s_jk work
    a second, n_j work left and ε_j the least candidate's units over its speed (ours).

    Jobs that could share units of one size are so compared by what a unit brings in each.
    """
    rows = np.arange(len(least))
    needing = np.where((units > 0) & (facts.speed > 0), units, np.inf).argmin(axis=1)
    first = np.where(units[rows, least] > 0, least, needing)
    unit = np.maximum(units[rows, first], 1e-300) / np.maximum(facts.speed[rows, first], 1e-300)
    left = np.maximum(facts.remaining * unit, 1e-300)
    changed = np.arange(facts.speed.shape[1]) != current[:, None]
    trains = 1.0 - np.minimum(facts.restart_s / HORIZON_S, 1.0)[:, None] * changed
    return np.asarray(left[:, None] ** -WEIGHT * facts.speed * trains * unit[:, None])


def completion_saved(facts: Facts, base: Ints) -> Floats:
    """(J, K): seconds by which each candidate is done earlier than the one in `base` (J,); 0 with nothing.

    The value of the knapsack of Aryl (arXiv 2202.07896): T(base) − T(base + k).
    """
    left = facts.seconds_left()
    at_base = left[np.arange(len(base)), base]
    with np.errstate(invalid="ignore"):
        saved = at_base[:, None] - left
    return np.where(np.isfinite(saved), saved, 0.0)


def goodput(facts: Facts, current: Ints, offered: Bools) -> Floats:
    """(J, K): speed over that of the slowest candidate `offered` (J, K), restarts counted by the share of its age that
    a job loses.

    As Sia (SOSP 2023) normalises: restart factor (age − restarts·delay) / (age + delay), here of the next restart
    alone, since those of before are the same for all that a job may get.
    """
    slowest = np.where((facts.speed > 0) & offered, facts.speed, np.inf).min(axis=1)
    age = np.maximum(facts.now_s - np.where(np.isfinite(facts.started_s), facts.started_s, facts.now_s), 0.0)
    factor = np.where(facts.restart_s > 0, age / np.maximum(age + facts.restart_s, 1e-300), 1.0)
    running = current > 0
    changed = running[:, None] & (np.arange(facts.speed.shape[1]) != current[:, None])
    relative = facts.speed / np.where(np.isfinite(slowest), slowest, 1.0)[:, None]
    return np.asarray(relative * np.where(changed, factor[:, None], 1.0))
