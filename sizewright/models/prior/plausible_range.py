"""The largest distance of throughputs from a prediction, or from one another, at which they are no outliers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_LOG_OFFSET = float(np.log(20.0))
"""Of a job from the prediction: no host is faster than another by a larger factor."""
MAX_LOG_DEVIATION = float(np.log(4.0))
"""Of one throughput from the median of the others."""
MIN_FOR_MEDIAN = 3
"""Number of trials, or of jobs, from which their median is trusted more than the prediction."""


def plausible_range(residuals: Sequence[float] | NDArray[np.float64], count: int) -> tuple[float, float]:
    """Return the centre of plausible residuals (log ratios to a prediction), and the largest distance from it.

    `count` is the number of independent trials or jobs. Few are compared with the prediction itself, more with their
    own median, which hosts shift alike.
    """
    if count < MIN_FOR_MEDIAN:
        return 0.0, MAX_LOG_OFFSET
    return float(np.median(residuals)), MAX_LOG_DEVIATION
