"""Show what a plan would change as a diff, without the fields that servers and plans use internally."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from sizewright.executors.plan_annotations import RECORDS

_SERVER_FIELDS = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Return the diff between two objects, or to a new one; empty where nothing changes."""
    return text_difference(_text(before) if before else "", _text(after))


def text_difference(before: str, after: str, names: tuple[str, str] = ("current", "planned")) -> str:
    """Return the unified diff between two texts."""
    lines: Iterable[str] = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _text(document: Mapping[str, Any]) -> str:
    meta = {key: value for key, value in document["metadata"].items() if key not in _SERVER_FIELDS}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in RECORDS}
    meta |= {"annotations": annotations} if "annotations" in meta else {}
    shown = {**{key: value for key, value in document.items() if key != "status"}, "metadata": meta}
    return yaml.safe_dump(shown, sort_keys=True, allow_unicode=True, width=120)
