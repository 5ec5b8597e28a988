"""The C library's handling of large freed arrays."""

from __future__ import annotations

import ctypes


def keep_freed_memory() -> None:
    """Make the C library keep freed arrays instead of returning each to the system.

    Loops that make and drop arrays of megabytes otherwise spend half their time on page faults. Glibc raises its
    thresholds (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD) to the largest block that was freed; it holds for the process.
    """
    import numpy as np  # a replica that is only held to limits needs none

    np.empty(24 << 20, dtype=np.uint8)


def give_back_freed_memory() -> None:
    """Return what is kept to the system, where the C library can (glibc): it is charged to whoever keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
