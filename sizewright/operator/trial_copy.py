"""Make a trial job of a suspended job: a copy at other sizes, under a name of its own, which reports on its output."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import QUEUE_LABEL
from sizewright.executors.kubernetes.merge_patch import merged
from sizewright.executors.plan_annotations import plan_annotations
from sizewright.operator import labels
from sizewright.operator.job_kinds import JobKind
from sizewright.operator.labels import annotations_of
from sizewright.progress import STDOUT, TRIAL_VARIABLE, VARIABLE
from sizewright.spec import Plan

_MAX_STEM = 28
"""Characters of a job's name in that of its copies, to which a platform adds the numbers of pods."""
_STARTED = ("command", "args", "env", "entrypoint")
"""Keys of what a container starts, where hosts of other pods may be named."""


def trial_copy(kind: JobKind, job_object: Mapping[str, Any], plan: Plan, number: int, limit_s: float) -> dict[str, Any]:
    """Return the trial job of a number, which the cluster ends after `limit_s` seconds at the latest.

    It belongs to the job, so that the cluster deletes both together. Raises InputError if it would talk to the replicas
    of the job itself, or the object cannot express the plan.
    """
    meta, executor = job_object["metadata"], kind.executor
    job_name, uid = str(meta["name"]), str(meta["uid"])
    own_piece = hashlib.sha256(uid.encode()).hexdigest()[:5]  # of two jobs whose names begin alike
    name = f"{job_name[:_MAX_STEM].rstrip('-.')}-{own_piece}-trial-{number}"
    sized = kind.with_deadline(merged(executor.with_sizes(dict(job_object), plan, name=name), kind.resumed()), limit_s)
    network = sized["spec"].get("network")
    if isinstance(network, dict) and network.get("subdomain") == job_name:
        network["subdomain"] = name  # of a JobSet, by which its replicas find each other
    for role in executor.sizes_of(sized):
        for spec in executor.places(sized, role):
            _set_variables(spec.container, {TRIAL_VARIABLE: "1", VARIABLE: STDOUT})
    _check_hosts(sized["spec"], job_name, name)
    copy = executor.as_created(sized)
    of_copy = {key: value for key, value in copy["metadata"].get("labels", {}).items() if key != labels.SIZE}
    if queue := annotations_of(job_object).get(labels.QUEUE):
        of_copy[QUEUE_LABEL] = queue
    owner = {"apiVersion": job_object["apiVersion"], "kind": job_object["kind"], "name": job_name, "uid": uid}
    copy["metadata"] |= {
        "name": name,
        "namespace": meta["namespace"],
        "labels": of_copy | {labels.TRIAL_OF: uid},
        "annotations": {**plan_annotations(plan), labels.TRIAL_NUMBER: str(number)},
        "ownerReferences": [owner],
    }
    return copy


def is_copy(candidate: Mapping[str, Any]) -> bool:
    """Return whether an object that has the label of a trial job is one: it belongs to the job that the label names."""
    uid = candidate["metadata"]["labels"].get(labels.TRIAL_OF)
    owners = candidate["metadata"].get("ownerReferences") or []
    return any(isinstance(owner, Mapping) and owner.get("uid") == uid for owner in owners)


def number_of(copy: Mapping[str, Any]) -> int:
    """Return the number of a trial job; 0 if somebody has changed it."""
    text = annotations_of(copy).get(labels.TRIAL_NUMBER, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _set_variables(container: Any, variables: Mapping[str, str]) -> None:
    others = [each for each in container.get("env") or [] if each.get("name") not in variables]
    container["env"] = [*others, *({"name": name, "value": value} for name, value in variables.items())]


def _check_hosts(spec: Mapping[str, Any], job_name: str, own_name: str) -> None:
    host = re.compile(rf"(?<![\w./-])(?!{re.escape(own_name)}\b){re.escape(job_name)}-[\w-]*\d\b")
    for text in _started_texts(spec):
        if found := host.search(text):
            raise InputError(
                f"A trial job cannot be made of it: its replicas find each other by {found[0]}, a host of the job.",
                "Have Sizewright render its variables, or leave the sizes: --without-data leave.",
            )


def _started_texts(value: Any, *, is_started: bool = False) -> Iterator[str]:
    """Yield the texts of commands, arguments and variables."""
    if isinstance(value, str) and is_started:
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _started_texts(inner, is_started=is_started or key in _STARTED)
    elif isinstance(value, list):
        for inner in value:
            yield from _started_texts(inner, is_started=is_started)
