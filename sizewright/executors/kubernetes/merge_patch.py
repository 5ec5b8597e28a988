"""Merge patches (RFC 7396): the one that turns an object into another, and an object with a patch merged into it."""

from __future__ import annotations

import copy
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


def merged(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with a patch merged into it."""
    result = {key: value for key, value in document.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            previous = document.get(key)
            result[key] = merged(previous if isinstance(previous, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return copy.deepcopy(result)
