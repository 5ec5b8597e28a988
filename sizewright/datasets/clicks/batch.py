"""The batch of samples that every source yields and every worker trains on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Batch(NamedTuple):
    """Samples in columns: `labels` (n,), `dense` (n, dense_features), `ids` (n, id columns)."""

    labels: NDArray[np.float32]
    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
