"""What the losses that a session tells leave at the servers, for proofs that count there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.routing import DENSE_PARTS, PARTS, dense_runs
from sizewright.training.replicas.account import Loss


def updates_lost(losses: Sequence[Loss], batch_sizes: Sequence[int]) -> tuple[int, int]:
    """The fewest and the most batches of these sizes that losses may be told as: each part alone, and each loss by
    itself."""
    samples = np.zeros(PARTS, np.int64)
    for loss in losses:
        samples[loss.parts] += loss.samples.total
    most = sum(math.ceil((end - start) / min(batch_sizes)) for loss in losses for start, end in loss.samples)
    return math.ceil(int(samples.max()) / max(batch_sizes)), most


def dense_counts(samples: int, losses: Sequence[Loss], size: int) -> NDArray[np.float32]:
    """How many samples each of `size` dense weights is to have seen."""
    seen = np.full(size, samples, np.float32)
    for loss in losses:
        lost = np.zeros(PARTS, bool)
        lost[loss.parts] = True
        for run in dense_runs(lost[DENSE_PARTS], size):
            seen[run] -= loss.samples.total
    return seen
