"""The C library's handling of large freed arrays."""

from __future__ import annotations

import numpy as np


def keep_freed_memory() -> None:
    """Make the C library keep freed arrays instead of returning each to the system.

    Loops that make and drop arrays of megabytes otherwise spend half their time on page faults. Glibc raises its
    thresholds (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD) to the largest block that was freed; it holds for the process.
    """
    np.empty(24 << 20, dtype=np.uint8)
