"""The candidates of the jobs of a simulation: their sizes and speeds, on each kind of GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sizewright.cluster.problem.problem import Bools, Floats, Ints
from sizewright.cluster.simulator.kinds import JobKinds
from sizewright.cluster.simulator.measured_curves import ANY, MeasuredCurve
from sizewright.datasets.traces import Trace


class JobCandidates(NamedTuple):
    """Candidates of N jobs on G kinds of GPUs, of M sizes each."""

    sizes: Floats
    """(N, G, M): in units of the resource in which the size of the job counts."""
    speed: Floats
    """(N, G, M): relative to that of the request."""
    offered: Bools
    """(N, G, M): True for sizes that are not padding, on kinds on which the job may run."""
    requested: Ints
    """(N,): the index of the requested size among the M sizes."""


def scaled_candidates(relative: Floats, size: Floats, requested: int, speed: Floats, kinds: JobKinds) -> JobCandidates:
    """Return candidates at sizes (N, M) `relative` to the requested `size` (N,), with these speeds (N, G, M).

    The `requested` size, an index, is always offered, and others if they are larger than the one before.
    """
    is_larger = np.diff(relative, axis=1, prepend=0.0) > 0
    is_larger[:, requested] = True
    offered = kinds.allowed[:, :, None] & is_larger[:, None]
    sizes = np.broadcast_to((relative * size[:, None])[:, None], offered.shape)
    return JobCandidates(sizes, speed, offered, np.full(len(size), requested))


def measured_candidates(
    trace: Trace, curves: Sequence[MeasuredCurve], size: Floats, names: Sequence[str], kinds: JobKinds
) -> JobCandidates:
    """Return the measured sizes of each job's own curve (N,), and its requested `size` (N,); `names` are the kinds.

    Raises InputError for a request that lies beyond the measured sizes.
    """
    known: dict[tuple[str, float, int], JobCandidates] = {}  # jobs of equal curves and requests are computed once
    keys = [(curve.name, float(size[row]), int(kinds.reference[row])) for row, curve in enumerate(curves)]
    for row, key in enumerate(keys):
        if key not in known:
            known[key] = _of_curve(
                trace.jobs[row], curves[row], key[1], names, kinds.reference[row], kinds.allowed[row]
            )
    most = max(each.sizes.shape[-1] for each in known.values())
    padded = {key: _padded(each, most) for key, each in known.items()}
    by_job = [padded[key] for key in keys]
    return JobCandidates(
        np.concatenate([each.sizes for each in by_job]),
        np.concatenate([each.speed for each in by_job]),
        np.concatenate([each.offered for each in by_job]),
        np.concatenate([each.requested for each in by_job]),
    )


def _of_curve(
    job: str, curve: MeasuredCurve, size: float, names: Sequence[str], reference: int, allowed: Bools
) -> JobCandidates:
    """Return the candidates (1, G, M) of one job."""
    names = names or (ANY,)
    at_request = curve.request_speed(job, size, names[reference])
    of_kinds = {k: curve.sizes(name) for k, name in enumerate(names) if allowed[k]}
    sizes = np.unique(np.concatenate([*of_kinds.values(), [size]]))
    speed, offered = np.zeros((len(names), len(sizes))), np.zeros((len(names), len(sizes)), dtype=bool)
    for k, measured in of_kinds.items():
        is_request = (sizes == size) & (measured[0] <= size <= measured[-1])
        offered[k] = np.isin(sizes, measured) | is_request
        speed[k] = np.where(offered[k], curve.speed(sizes, names[k]) / at_request, 0.0)
    requested = np.flatnonzero(sizes == size)
    return JobCandidates(np.tile(sizes, (1, len(names), 1)), speed[None], offered[None], requested)


def _padded(candidates: JobCandidates, sizes: int) -> JobCandidates:
    """Return candidates with this number of sizes; the last ones are not offered."""
    more = ((0, 0), (0, 0), (0, sizes - candidates.sizes.shape[-1]))
    return JobCandidates(
        np.pad(candidates.sizes, more),
        np.pad(candidates.speed, more),
        np.pad(candidates.offered, more),
        candidates.requested,
    )
