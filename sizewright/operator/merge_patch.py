"""The difference of two objects as a merge patch (RFC 7396)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that turns `before` into `after`; lists that differ are replaced as wholes."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        previous = before.get(key)
        if isinstance(previous, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(previous, value):
                patch[key] = inner
        elif key not in before or previous != value:
            patch[key] = value
    return patch
