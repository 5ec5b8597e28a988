"""The C library's handling of large freed arrays."""

from __future__ import annotations

import ctypes


def keep_freed_memory() -> None:
    """Make the C library keep freed arrays instead of returning each to the system.

    Loops that make and drop arrays of megabytes otherwise spend half their time on page faults. Glibc raises its
    thresholds (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD) to the largest block that was freed; it holds for the process.
    """
    import numpy as np  # imported late: a replica that only applies limits does not need it

    np.empty(24 << 20, dtype=np.uint8)


def release_freed_memory() -> None:
    """Return freed memory, which counts as used by this process, to the system where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
