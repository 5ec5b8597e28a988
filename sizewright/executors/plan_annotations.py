"""Keep the plan of a manifest in its annotations: its id, reason and requester, and the whole plan to read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sizewright.errors import InputError
from sizewright.redaction import has_hidden
from sizewright.spec import Plan
from sizewright.spec._base import validate_json
from sizewright.spec._faults import explain_first
from sizewright.spec.withheld import is_withheld, split, written_words

PLAN_ID = "sizewright/plan"
APPLIED_AT = "sizewright/applied-at"
PLAN_RECORD = "sizewright/plan-record"
_SETTINGS = "sizewright/settings"
"""Plain settings as in the job file; the containers have them with their placeholders filled."""
BASE_MARK = "sizewright/base"
REASON, _ASKED_BY = "sizewright/reason", "sizewright/asked-by"
OF_A_PLAN = (PLAN_ID, REASON, _ASKED_BY, _SETTINGS, PLAN_RECORD)
"""Annotations that `plan_annotations` may write."""
RECORDS = (APPLIED_AT, PLAN_RECORD, _SETTINGS, BASE_MARK)
"""Annotations that only programs read."""

SETTINGS = TypeAdapter(dict[str, str])


def plan_annotations(plan: Plan) -> dict[str, str]:
    """Return the annotations of a plan; of variables only plain settings, which the manifest has anyway."""
    annotations = {PLAN_ID: plan.id, REASON: plan.reason}
    if plan.asked_by:
        annotations[_ASKED_BY] = plan.asked_by
    plain = split(plan.job.command.env)[0] if plan.job.command else {}
    if known := {name: value for name, value in plain.items() if not is_withheld(value)}:
        annotations[_SETTINGS] = json.dumps(known)
    return annotations | {PLAN_RECORD: plan.model_dump_json(exclude_defaults=True)}


def has_plan(document: Mapping[str, Any]) -> bool:
    """Return whether a manifest carries a plan."""
    return PLAN_RECORD in _annotations(document)


def read_plan(document: Mapping[str, Any]) -> Plan:
    """Return the plan of a manifest. Raises InputError for a manifest without one."""
    annotations = _annotations(document)
    text = annotations.get(PLAN_RECORD)
    if not text:
        raise InputError(
            "The manifest carries no Sizewright plan.", "Pass one that `sizewright recommend --out` wrote."
        )
    try:
        plan = validate_json(Plan, str(text))
        known = SETTINGS.validate_json(annotations.get(_SETTINGS, "{}"))
    except ValidationError as error:
        raise InputError(
            f"The plan in the manifest cannot be read: {explain_first(error)}.", "Render the manifest again."
        ) from None
    return plan.model_copy(update={"job": plan.job.with_settings(known)})


def _annotations(document: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def check_no_secrets(plan: Plan) -> None:
    """Raise InputError where the words of a command contain what looks like a secret: a manifest would carry it."""
    run = plan.job.command.run if plan.job.command else ()
    for name, words in (("deploy.command", plan.job.deploy.command), ("command.run", run)):
        shown = list(written_words(words))
        for number, (word, written) in enumerate(zip(words, shown, strict=True)):
            if word != written or has_hidden([word]):
                where = " ".join(shown[max(0, number - 1) : number + 1])
                raise InputError(
                    f"job.{name} contains what looks like a secret ({where}).",
                    "Have the training code read it from its environment, which the platform fills from a secret.",
                )
