"""Effects of reported losses on what the servers counted, for tests that compare the two."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.routing import DENSE_PARTS, PARTS, dense_runs
from sizewright.training.replicas.account import Loss


def updates_lost(losses: Sequence[Loss], batch_sizes: Sequence[int]) -> tuple[int, int]:
    """Return the fewest and the most batches of these sizes that the losses can be reported as.

    The fewest count each part of the keys separately, the most each loss separately.
    """
    samples = np.zeros(PARTS, np.int64)
    for loss in losses:
        samples[loss.parts] += loss.samples.total
    largest = sum(math.ceil((end - start) / min(batch_sizes)) for loss in losses for start, end in loss.samples)
    return math.ceil(int(samples.max()) / max(batch_sizes)), largest


def dense_counts(samples: int, losses: Sequence[Loss], size: int) -> NDArray[np.float32]:
    """Return the number of samples that each of `size` dense weights should have seen."""
    counts = np.full(size, samples, np.float32)
    for loss in losses:
        lost = np.zeros(PARTS, bool)
        lost[loss.parts] = True
        for run in dense_runs(lost[DENSE_PARTS], size):
            counts[run] -= loss.samples.total
    return counts
