"""What would change, as people read it: the lines of a diff, without what servers and plans keep for themselves."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from sizewright.executors.plan_notes import RECORDS

_OF_THE_SERVER = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Between two objects, or to a new one; empty where nothing changes."""
    return text_difference(_text(before) if before else "", _text(after))


def text_difference(before: str, after: str, names: tuple[str, str] = ("there now", "as planned")) -> str:
    """Between two texts, with three lines around."""
    lines: Iterable[str] = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _text(document: Mapping[str, Any]) -> str:
    meta = {key: value for key, value in document["metadata"].items() if key not in _OF_THE_SERVER}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in RECORDS}
    meta |= {"annotations": annotations} if "annotations" in meta else {}
    told = {**{k: v for k, v in document.items() if k != "status"}, "metadata": meta}
    return yaml.safe_dump(told, sort_keys=True, allow_unicode=True, width=120)
