"""The plan of a manifest, in its annotations: which it is, why, who asked, and all of it, so that it is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sizewright.errors import InputError
from sizewright.redaction import has_hidden
from sizewright.spec import Plan
from sizewright.spec._base import checked_json
from sizewright.spec._faults import explain_first
from sizewright.spec.withheld import is_withheld, split, written_words

PLAN_ID, APPLIED_AT, _PLAN = "sizewright/plan", "sizewright/applied-at", "sizewright/plan-record"
_SETTINGS = "sizewright/settings"
"""Plain settings as the job file has them: the containers have them with their placeholders filled."""
BASED = "sizewright/base"
RECORDS = (APPLIED_AT, _PLAN, _SETTINGS, BASED)
"""Annotations that are for programs to read."""

SETTINGS = TypeAdapter(dict[str, str])


def notes(plan: Plan) -> dict[str, str]:
    """Annotations; of variables they hold what the manifest has anyway: plain settings."""
    told = {PLAN_ID: plan.id, "sizewright/reason": plan.reason}
    if plan.asked_by:
        told["sizewright/asked-by"] = plan.asked_by
    plain = split(plan.job.command.env)[0] if plan.job.command else {}
    if known := {name: value for name, value in plain.items() if not is_withheld(value)}:
        told[_SETTINGS] = json.dumps(known)
    return told | {_PLAN: plan.model_dump_json(exclude_defaults=True)}


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
    if not text or not isinstance(annotations, Mapping):
        raise InputError(
            "The manifest carries no plan of Sizewright's.", "Pass one that `sizewright recommend --out` wrote."
        )
    try:
        plan = checked_json(Plan, str(text))
        known = SETTINGS.validate_json(annotations.get(_SETTINGS, "{}"))
    except ValidationError as error:
        raise InputError(
            f"The plan in the manifest cannot be read: {explain_first(error)}.", "Render it anew."
        ) from None
    return plan.model_copy(update={"job": plan.job.with_settings(known)})


def check_no_secrets(plan: Plan) -> None:
    """Raises InputError where the words of a command hold what looks like one: a manifest would carry it."""
    for name, words in (("deploy.command", plan.job.deploy.command), ("command.run", _run_of(plan))):
        shown = list(written_words(words))
        for number, (word, written) in enumerate(zip(words, shown, strict=True)):
            if word != written or has_hidden([word]):
                where = " ".join(shown[max(0, number - 1) : number + 1])
                raise InputError(
                    f"job.{name} holds what looks like a secret ({where}).",
                    "Have the training code read it from its environment, which the platform fills from a secret.",
                )


def _run_of(plan: Plan) -> tuple[str, ...]:
    return plan.job.command.run if plan.job.command else ()
