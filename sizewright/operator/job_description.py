"""Find the description of a job on the cluster: in an annotation, in a ConfigMap, or in the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.yaml_documents import from_yaml
from sizewright.operator.labels import JOB, JOB_CONFIG_MAP, annotations_of, name_of
from sizewright.spec import Job
from sizewright.spec._base import parse

_KEY = "job.yaml"
_ADVICE = f"Annotate it with {JOB} (the text of a job file) or {JOB_CONFIG_MAP} (a ConfigMap with {_KEY})."


def describe_job(
    job_object: Mapping[str, Any], executor: ClusterExecutor, api: KubeApi, known: Callable[[], Sequence[Job]]
) -> Job:
    """Return the description of a job.

    The history knows a job by its name, or that of its owner, and by its image. Raises InputError if there is no
    description, or none that can be used.
    """
    meta = job_object["metadata"]
    annotations, name = annotations_of(job_object), name_of(job_object)
    if text := annotations.get(JOB):
        job = _parse(text, f"annotation {JOB} of {name}")
    elif config_map := annotations.get(JOB_CONFIG_MAP):
        job = _in_config_map(config_map, meta["namespace"], api)
    else:
        job = _in_history(job_object, executor, known(), name)
    if job.data.path and not job.model.tables.known:
        raise InputError(
            f"The description of {name} has its tables counted in {job.data.path}, which the operator does not read.",
            "Write the rows of its tables.",
        )
    return job


def _in_config_map(config_map: str, namespace: str, api: KubeApi) -> Job:
    found = api.get("v1", "ConfigMap", namespace, config_map)
    text = ((found or {}).get("data") or {}).get(_KEY)
    if text is None:
        missing = f"has no {_KEY}" if found else "does not exist"
        raise InputError(f"ConfigMap {namespace}/{config_map} {missing}.", f"Create it with {_KEY}, a job file.")
    return _parse(text, f"{_KEY} of ConfigMap {namespace}/{config_map}")


def _in_history(job_object: Mapping[str, Any], executor: ClusterExecutor, known: Sequence[Job], name: str) -> Job:
    meta = job_object["metadata"]
    owners = [str(owner.get("name")) for owner in meta.get("ownerReferences") or []]
    names = {meta["name"], str(meta.get("generateName") or "").rstrip("-"), *owners}
    document = dict(job_object)
    images = {spec.container.get("image") for role in executor.roles for spec in executor.places(document, role)}
    found = {job.hash: job for job in known if job.name in names and job.deploy.image in images}
    if len(found) != 1:
        what = f"knows {len(found)} jobs" if found else "knows no job"
        raise InputError(f"{name} has no description, and the history {what} of its name and image.", _ADVICE)
    return next(iter(found.values()))


def _parse(text: str, source: str) -> Job:
    documents = from_yaml(text, f"The {source}")
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError(f"The {source} is no mapping.", "Write a job file.")
    return parse(Job, documents[0], f"The {source}")
