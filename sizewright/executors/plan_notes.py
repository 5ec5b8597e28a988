"""The plan of a manifest, in its annotations: which it is, why, who asked, and all of it, so that it is read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.redaction import may_be_secret
from sizewright.spec import Plan
from sizewright.spec._base import checked_json
from sizewright.spec._faults import explain_first

PLAN_ID, APPLIED_AT, _PLAN = "sizewright/plan", "sizewright/applied-at", "sizewright/plan-record"
BASED = "sizewright/base"
RECORDS = (APPLIED_AT, _PLAN, BASED)
"""Annotations that are for programs to read."""
_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")
_NAMES = (
    r"(?:\w*(?:passw(?:or)?d|secret|token|credentials?|api[-_]?key|access[-_]?key|private[-_]?key)|\w+[-_](?:pass|pwd))"
)
_FLAG = re.compile(rf"--?(?:[\w-]*[-_])?{_NAMES}", re.IGNORECASE)
"""A word whose value is the next one."""
_GIVEN = re.compile(
    rf"(?:^|[\s;&|'\"])(?:--?)?(?:[\w-]*[-_])?{_NAMES}(?:=|\s+(?=\S))['\"]?(?![-$\s=])\S"
    r"|authorization['\"]?\s*[:=]|\bbearer\s+[^\s$]",
    re.IGNORECASE,
)
"""A value with its name in one word, perhaps a line for a shell. What the environment tells ($NAME) is no value."""
HIDDEN = "hidden"


def notes(plan: Plan) -> dict[str, str]:
    """Annotations; what looks like a secret is not among them."""
    told = {PLAN_ID: plan.id, "sizewright/reason": plan.reason}
    if plan.asked_by:
        told["sizewright/asked-by"] = plan.asked_by
    return told | {_PLAN: without_secrets(plan).model_dump_json(exclude_defaults=True)}


def has_notes(document: Mapping[str, Any]) -> bool:
    """Whether a manifest carries a plan."""
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and _PLAN in annotations


def read_notes(document: Mapping[str, Any]) -> Plan:
    """The plan as it was made. Raises InputError for a manifest without one."""
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(_PLAN) if isinstance(annotations, Mapping) else None
    if not text:
        raise InputError(
            "The manifest carries no plan of Sizewright's.", "Pass one that `sizewright recommend --out` wrote."
        )
    try:
        return checked_json(Plan, str(text))
    except ValidationError as error:
        raise InputError(
            f"The plan in the manifest cannot be read: {explain_first(error)}.", "Render it anew."
        ) from None


def without_secrets(plan: Plan) -> Plan:
    """Values of variables that are named as secrets are, and passwords in addresses, are hidden."""
    job = plan.job
    data = job.data.model_copy(update={"path": _shown(job.data.path)}) if job.data.path else job.data
    command = job.command
    if command:
        env = {name: _shown_value(name, value) for name, value in command.env.items()}
        command = command.model_copy(update={"env": env, "run": tuple(map(_shown, command.run))})
    return plan.model_copy(update={"job": job.model_copy(update={"data": data, "command": command})})


def check_no_secrets(plan: Plan) -> None:
    """Raises InputError where the words of a command hold what looks like one: a manifest would carry it."""
    for name, words in (("deploy.command", plan.job.deploy.command), ("command.run", _run_of(plan))):
        for word, following in zip(words, (*words[1:], "-"), strict=False):
            named = _FLAG.fullmatch(word) and not following.startswith(("-", "$"))
            if _IN_URL.search(word) or _GIVEN.search(word) or named:
                raise InputError(
                    f"job.{name} holds what looks like a secret ({word[:4]}…).",
                    "Have the training code read it from its environment, which the platform fills from a secret.",
                )


def is_hidden(value: str) -> bool:
    """Whether `without_secrets` has put that there."""
    return value == HIDDEN or f"://{HIDDEN}@" in value


def _run_of(plan: Plan) -> tuple[str, ...]:
    return plan.job.command.run if plan.job.command else ()


def _shown_value(name: str, value: str) -> str:
    """An address keeps what is no password in it."""
    shown = _shown(value)
    return HIDDEN if may_be_secret(name, shown) else shown


def _shown(text: str) -> str:
    return _IN_URL.sub(HIDDEN, text)
