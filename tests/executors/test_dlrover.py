from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sizewright.errors import InputError
from sizewright.executors.dlrover import DlroverExecutor
from sizewright.spec import Allocation, Deploy, Gpu, Group, Job, Plan
from sizewright.spec.units import MIB

JOB = Job(name="ctr", deploy=Deploy(image="me/ctr:1", command=("python", "-m", "ctr"), namespace="ads"))
WORKER = Group(replicas=3, cpu=0.5, memory_bytes=700 * MIB + 1)
PS = Group(replicas=2, cpu=2, memory_bytes=0)


def plan(kind: str = "launch", **groups: tuple[Group, ...]) -> Plan:
    target = Allocation(**{"worker": (WORKER,), "ps": (PS,), **groups}, batch_size=256)  # type: ignore[arg-type]
    return Plan(id="p-1", kind=kind, job=JOB, target=target, reason="best of 14: 3 workers")  # type: ignore[arg-type]


def rendered(**groups: tuple[Group, ...]) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(DlroverExecutor().render(plan(**groups)))
    return manifest


def container(manifest: dict[str, Any], role: str) -> dict[str, Any]:
    (only,) = manifest["spec"]["replicaSpecs"][role]["template"]["spec"]["containers"]
    return only  # type: ignore[no-any-return]


def test_the_manifest_carries_the_plan() -> None:
    manifest = rendered()
    assert (manifest["apiVersion"], manifest["kind"]) == ("elastic.iml.github.io/v1alpha1", "ElasticJob")
    assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == ("ctr", "ads")
    notes = manifest["metadata"]["annotations"]
    assert notes == {"sizewright/plan": "p-1", "sizewright/reason": "best of 14: 3 workers"}
    assert manifest["spec"]["distributionStrategy"] == "ParameterServerStrategy"
    specs = manifest["spec"]["replicaSpecs"]
    assert {role: spec["replicas"] for role, spec in specs.items()} == {"worker": 3, "ps": 2}
    assert not any(spec["autoScale"] for spec in specs.values())


def test_the_container_asks_for_no_less_than_the_plan() -> None:
    manifest = rendered()
    worker, ps = container(manifest, "worker"), container(manifest, "ps")
    assert (worker["name"], worker["image"], worker["command"]) == ("main", "me/ctr:1", ["python", "-m", "ctr"])
    assert worker["resources"]["requests"] == {"cpu": "500m", "memory": "701Mi"}
    assert ps["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    assert worker["env"] == [{"name": "SIZEWRIGHT_BATCH_SIZE", "value": "256"}]


def test_what_the_manifest_leaves_open_is_said_above_it() -> None:
    gpu = Group(replicas=1, cpu=8, memory_bytes=MIB, gpu=Gpu(kind="a100", count=2))
    text = DlroverExecutor().render(plan(worker=(gpu,)))
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert any("Why: best of 14: 3 workers" in line for line in header)
    assert any("memory of ps is not known" in line for line in header)
    assert any("worker are of kind a100" in line for line in header)


def test_cores_survive_dlrovers_rounding_to_tenths() -> None:
    manifest = rendered(ps=(Group(replicas=1, cpu=0.25, memory_bytes=0),))
    assert container(manifest, "ps")["resources"]["limits"]["cpu"] == "300m"


def test_chief_evaluator_and_gpus_are_rendered_where_there_are_any() -> None:
    gpu = Group(replicas=1, cpu=8, memory_bytes=MIB, gpu=Gpu(kind="a100", count=2))
    manifest = rendered(chief=(gpu,), evaluator=(WORKER, Group(replicas=0, cpu=1, memory_bytes=0)))
    assert set(manifest["spec"]["replicaSpecs"]) == {"worker", "ps", "chief", "evaluator"}
    assert container(manifest, "chief")["resources"]["limits"]["nvidia.com/gpu"] == 2


def test_what_an_elasticjob_cannot_hold_is_refused() -> None:
    cases = {
        "one size per role, and the plan has 2 for ps": plan(ps=(PS, WORKER)),
        "needs at least one ps": plan(ps=()),
        "needs at least one worker": plan(worker=(Group(replicas=0, cpu=1, memory_bytes=0),)),
        "plan p-1 is of kind 'adjust'": plan(kind="adjust"),
        "plan p-1 is of kind 'keep'": plan(kind="keep"),
        "too long for DLRover": plan().model_copy(update={"job": JOB.model_copy(update={"name": "a" * 40})}),
    }
    for says, refused in cases.items():
        with pytest.raises(InputError, match=says) as caught:
            DlroverExecutor().render(refused)
        assert caught.value.remedy


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of an openAPIV3Schema that refuses what the API server would drop as unknown."""
    made = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "description"}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("anyOf", None)
        made["type"] = ["integer", "string"]
    if schema.get("nullable"):
        made["type"] = [made["type"], "null"]
    if "properties" in schema:
        made["properties"] = {name: strict(inner) for name, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = strict(made[key])
    return made


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    path = Path(os.environ.get("SIZEWRIGHT_SHARED", beside)) / "crds" / "dlrover-elasticjob.yaml"
    if not path.is_file():
        pytest.skip(f"the ElasticJob definition is not at {path}; set SIZEWRIGHT_SHARED to the folder that has crds/")
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    made = strict(version["schema"]["openAPIV3Schema"])
    # The API server knows the metadata of every object; the definition only says that it is one.
    made["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(made)


GPU = Group(replicas=1, cpu=8, memory_bytes=MIB, gpu=Gpu(count=1))


@pytest.mark.parametrize("groups", [{}, {"chief": (GPU,), "evaluator": (WORKER,)}], ids=["two roles", "four roles"])
def test_the_manifest_is_valid(
    validator: jsonschema.Draft202012Validator, groups: dict[str, tuple[Group, ...]]
) -> None:
    validator.validate(rendered(**groups))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("replicaSpecs:", "replicaSpec:"),
        ("autoScale:", "autoscale:"),
        ("restartCount:", "restartCounts:"),
        ("limits:", "limit:"),
        ("image:", "imgae:"),
        ("replicas: 3", "replicas: three"),
        ("cpu: 500m", "cpu: 500 millicores"),
    ],
)
def test_a_misspelt_manifest_is_not_valid(validator: jsonschema.Draft202012Validator, right: str, wrong: str) -> None:
    text = DlroverExecutor().render(plan())
    assert right in text
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(yaml.safe_load(text.replace(right, wrong)))
