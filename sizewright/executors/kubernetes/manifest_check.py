"""Checks that every rendered manifest must pass, since no API server accepts one that does not.

They need no schema of the manifest's kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import ContainerSpec, YamlMap, expect_mapping
from sizewright.spec.units import read_bytes, read_cores

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_manifest(document: YamlMap, specs: Iterable[ContainerSpec], name: str) -> None:
    """Raise InputError with the field that is missing or invalid."""
    meta = expect_mapping(document.get("metadata"), f"{name}: metadata")
    if "name" in meta or not meta.get("generateName"):
        _check_label(meta.get("name"), f"{name}: metadata.name")
    else:
        _check_label(str(meta["generateName"]).rstrip("-"), f"{name}: metadata.generateName")
    if "namespace" in meta:
        _check_label(meta["namespace"], f"{name}: metadata.namespace")
    for spec in specs:
        if spec.has_pod:
            _check_label(spec.container.get("name"), f"{spec.field}: the name of its container")
        if not isinstance(spec.container.get("image", None if spec.has_pod else ""), str):
            raise InputError(f"{spec.field}: its container has no image.", "Add the image that it runs.")
        _check_resources(spec)


def _check_label(value: Any, field: str) -> None:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        problem = "missing" if value is None else f"'{value}'"
        raise InputError(f"{field} is {problem}.", "Use at most 63 lower-case letters, digits and inner dashes.")


def _check_resources(spec: ContainerSpec) -> None:
    """Raise InputError if a request exceeds its limit."""
    resources = spec.container.get(spec.resources) or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    field = f"{spec.field}: {spec.resources}"
    for amount, read in (("cpu", read_cores), ("memory", read_bytes)):
        if amount not in requests or amount not in limits:
            continue
        if read(requests[amount], f"{field}.{amount}") > read(limits[amount], f"{field}.{amount}"):
            raise InputError(
                f"{field} request {requests[amount]} of {amount}, above the limit of {limits[amount]}.",
                "Raise the limit, or leave it out.",
            )
