"""The label and the annotations by which jobs and the operator talk to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZE = "sizewright/size"
"""Label of a suspended job that asks for sizes: `start` to be resumed with them, `hold` to stay suspended."""
START, HOLD = "start", "hold"
JOB = "sizewright/job"
"""Annotation with the text of a job file."""
JOB_CONFIG_MAP = "sizewright/job-config-map"
"""Annotation with the name of a ConfigMap whose `job.yaml` is a job file."""
ROLES = "sizewright/roles"
"""Annotation with the names that a job's entries have, such as `ps=server,worker=trainer`."""
RECREATE = "sizewright/recreate"
"""Annotation `yes`: where the cluster does not let a job's sizes change, it is deleted and created again."""
TRIALS = "sizewright/trials"
"""Annotation `yes`: copies of the job may run at small sizes, to measure it. They have SIZEWRIGHT_TRIAL set."""
TRIALS_DONE = "sizewright/trials-done"
"""Annotation with the numbers of a job's trials that have ended and were started, and since when it waits."""
TRIAL_NUMBER = "sizewright/trial"
"""Annotation of a trial job with its number, from 1."""
TRIAL_OF = "sizewright/trial-of"
"""Label of a trial job with the uid of the job that it is a copy of."""
RESIZE = "sizewright/resize"
"""Annotation `no`: pods of the job are not resized while it runs."""
SCALE = "sizewright/scale"
"""Annotation `yes`: the job's code lets workers come and go, so that their number may change while it runs."""
SCALINGS = "sizewright/scalings"
"""Annotation with how often the number of a job's workers was changed while it ran."""
SIZED = "sizewright/sized"
"""Annotation with the uid of the object that was sized; a copy of the object has another uid."""
OUTCOME, TARGET, INTERVAL = "sizewright/outcome", "sizewright/target", "sizewright/interval"
QUEUE = "sizewright/queue"
"""Annotation with the queue of Kueue that a job enters once it is sized; with the label itself it may start before."""
FAILING_SINCE = "sizewright/failing-since"
"""Annotation with the time since when a job could not be sized."""

WAITS = "sizewright/waits"
"""Annotation that says why a sized job stays suspended: it waits for its share of the cluster."""


def annotations_of(job_object: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object; empty if it has none."""
    return job_object["metadata"].get("annotations") or {}


def name_of(job_object: Mapping[str, Any]) -> str:
    """Return kind, namespace and name of an object, for messages."""
    return f"{job_object['kind']} {job_object['metadata']['namespace']}/{job_object['metadata']['name']}"


def uid_of(job_object: Mapping[str, Any]) -> str:
    """Return the uid of an object."""
    return str(job_object["metadata"]["uid"])
