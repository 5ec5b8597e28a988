"""The least that a manifest must be for any API server to take it: checked of whatever is rendered, where no schema of
its kind is at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.slots import Node, Slot, node
from sizewright.spec.units import read_bytes, read_cores

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_READ = {"cpu": read_cores, "memory": read_bytes}


def check_manifest(document: Node, slots: Iterable[Slot], name: str) -> None:
    """Raises InputError that names the field of what is missing or cannot be."""
    meta = node(document.get("metadata"), f"{name}: metadata")
    if "name" in meta or not meta.get("generateName"):
        _check_label(meta.get("name"), f"{name}: metadata.name")
    else:
        _check_label(str(meta["generateName"]).rstrip("-"), f"{name}: metadata.generateName")
    if "namespace" in meta:
        _check_label(meta["namespace"], f"{name}: metadata.namespace")
    for slot in slots:
        _check_label(slot.container.get("name"), f"{slot.field}: the name of its container")
        if not isinstance(slot.container.get("image"), str):
            raise InputError(f"{slot.field}: its container has no image.", "Write the image that it runs.")
        _check_resources(slot)


def _check_label(value: Any, field: str) -> None:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        told = "missing" if value is None else f"'{value}'"
        raise InputError(f"{field} is {told}.", "Use at most 63 small letters, digits and inner dashes.")


def _check_resources(slot: Slot) -> None:
    """A request above its limit is refused by every API server."""
    resources = slot.container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for amount, read in _READ.items():
        if amount in requests and amount in limits:
            field = f"{slot.field}: resources"
            asked, most = (read(each[amount], f"{field}.{amount}") for each in (requests, limits))
            if asked > most:
                raise InputError(
                    f"{field} request {requests[amount]} of {amount}, above the limit of {limits[amount]}.",
                    "Raise the limit, or leave it out.",
                )
