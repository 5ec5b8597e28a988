"""Validators from published custom resource definitions refuse what an API server would refuse or drop."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

FILES = {
    "ElasticJob": "dlrover-elasticjob.yaml",
    "ScalePlan": "dlrover-scaleplan-v0.4.0.yaml",
    "TFJob": "kubeflow-tfjob.yaml",
    "Job": "volcano-job.yaml",
    "RayJob": "kuberay-rayjob.yaml",
    "JobSet": "jobset.yaml",
    "TrainJob": "kubeflow-trainjob.yaml",
    "TrainingRuntime": "kubeflow-clustertrainingruntime.yaml",  # the same spec
    "PyTorchJob": "kubeflow-pytorchjob.yaml",
}


@cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a kind; skip the test if the definitions are missing."""
    shared = Path(__file__).resolve().parents[2].parent / "shared"
    path = Path(os.environ.get("SIZEWRIGHT_SHARED", shared)) / "crds" / FILES[kind]
    if not path.is_file():
        pytest.skip(f"the definition of {kind} is not at {path}; set SIZEWRIGHT_SHARED to the folder that has crds/")
    definition = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = [version for version in definition["spec"]["versions"] if version["storage"]]
    schema = strict(version["schema"]["openAPIV3Schema"])
    # The API server knows the metadata of every object; the definition only says that it is one.
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(schema)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an openAPIV3Schema as a JSON schema that refuses fields which the API server would drop as unknown."""
    result = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "description"}
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    if schema.get("nullable"):
        result["type"] = [result["type"], "null"]
    if "properties" in schema:
        result["properties"] = {name: strict(inner) for name, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = strict(result[key])
    return result
