from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

from sizewright.errors import InputError
from sizewright.executors.kubernetes.dlrover import DlroverExecutor
from sizewright.formatting import MIB
from sizewright.spec import Allocation, Deploy, Gpu, Group, Job, Plan
from tests.helpers.crds import validator
from tests.helpers.random_plans import plans

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


def test_manifest_carries_the_plan() -> None:
    manifest = rendered()
    assert (manifest["apiVersion"], manifest["kind"]) == ("elastic.iml.github.io/v1alpha1", "ElasticJob")
    assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == ("ctr", "ads")
    notes = manifest["metadata"]["annotations"]
    assert (notes["sizewright/plan"], notes["sizewright/reason"]) == ("p-1", "best of 14: 3 workers")
    assert manifest["spec"]["distributionStrategy"] == "ParameterServerStrategy"
    specs = manifest["spec"]["replicaSpecs"]
    assert {role: spec["replicas"] for role, spec in specs.items()} == {"worker": 3, "ps": 2}
    assert not any(spec["autoScale"] for spec in specs.values())


def test_container_requests_at_least_the_plan() -> None:
    manifest = rendered()
    worker, ps = container(manifest, "worker"), container(manifest, "ps")
    assert (worker["name"], worker["image"], worker["command"]) == ("main", "me/ctr:1", ["python", "-m", "ctr"])
    assert worker["resources"]["requests"] == {"cpu": "500m", "memory": "701Mi"}
    assert ps["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    env = {each["name"]: each["value"] for each in worker["env"]}
    assert env == {"SIZEWRIGHT_BATCH_SIZE": "256", "SIZEWRIGHT_PROGRESS": "stdout"}


def test_header_lists_what_the_manifest_leaves_open() -> None:
    gpu = Group(replicas=1, cpu=8, memory_bytes=MIB, gpu=Gpu(kind="a100", count=2))
    text = DlroverExecutor().render(plan(worker=(gpu,)))
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert any("Why: best of 14: 3 workers" in line for line in header)
    assert any("memory of ps is unknown" in line for line in header)
    assert any("worker are of kind a100" in line for line in header)


def test_cores_survive_dlrovers_rounding_to_tenths() -> None:
    manifest = rendered(ps=(Group(replicas=1, cpu=0.25, memory_bytes=0),))
    assert container(manifest, "ps")["resources"]["limits"]["cpu"] == "300m"


def test_chief_evaluator_and_gpus_are_rendered() -> None:
    gpu = Group(replicas=1, cpu=8, memory_bytes=MIB, gpu=Gpu(kind="a100", count=2))
    manifest = rendered(chief=(gpu,), evaluator=(WORKER, Group(replicas=0, cpu=1, memory_bytes=0)))
    assert set(manifest["spec"]["replicaSpecs"]) == {"worker", "ps", "chief", "evaluator"}
    assert container(manifest, "chief")["resources"]["limits"]["nvidia.com/gpu"] == 2


def test_plan_that_an_elasticjob_cannot_express_is_refused() -> None:
    cases = {
        "one size per role, and the plan has 2 for ps": plan(ps=(PS, WORKER)),
        "needs at least one ps": plan(ps=()),
        "needs at least one worker": plan(worker=(Group(replicas=0, cpu=1, memory_bytes=0),)),
        "keeps the job as it is": plan(kind="keep"),
        "too long for ElasticJobs": plan().model_copy(update={"job": JOB.model_copy(update={"name": "a" * 40})}),
    }
    for message, invalid in cases.items():
        with pytest.raises(InputError, match=message) as caught:
            DlroverExecutor().render(invalid)
        assert caught.value.remedy


GPU = Group(replicas=1, cpu=8, memory_bytes=MIB, gpu=Gpu(count=1))


@pytest.mark.parametrize("groups", [{}, {"chief": (GPU,), "evaluator": (WORKER,)}], ids=["two roles", "four roles"])
def test_manifest_is_valid(groups: dict[str, tuple[Group, ...]]) -> None:
    validator("ElasticJob").validate(rendered(**groups))


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
def test_misspelt_manifest_is_invalid(right: str, wrong: str) -> None:
    text = DlroverExecutor().render(plan())
    assert right in text
    with pytest.raises(jsonschema.ValidationError):
        validator("ElasticJob").validate(yaml.safe_load(text.replace(right, wrong)))


OLD = DlroverExecutor(version="0.4.0")


@settings(max_examples=100, deadline=None)
@given(plans(kind="adjust").filter(lambda p: len(p.job.name) <= OLD.max_name_length))
def test_old_releases_use_scale_plans(plan: Plan) -> None:
    if any(group.gpu or not group.memory_bytes for _, group in plan.target.groups):
        with pytest.raises(InputError, match="ScalePlan"):
            OLD.render(plan)
        return
    text = OLD.render(plan)
    assert OLD.parse(text) == plan
    document = yaml.safe_load(text)
    validator("ScalePlan").validate(document)
    assert document["spec"]["ownerJob"] == plan.job.name
    labels = document["metadata"]["labels"]
    assert (labels["elasticjob.dlrover/name"], labels["scale-type"]) == (plan.job.name, "manual")


def test_scale_plan_names_are_unique() -> None:
    sized = Group(replicas=2, cpu=2, memory_bytes=MIB)
    first = plan("adjust", worker=(sized,), ps=(sized,))
    names = {
        yaml.safe_load(OLD.render(first.model_copy(update={"id": name})))["metadata"]["name"]
        for name in ("p-1", "p-2", f"{JOB.name}-3")
    }
    assert {name[:-9] for name in names} == {"ctr-p-1", "ctr-p-2", "ctr-3"}
    long = [first.model_copy(update={"id": "p" * 70 + last}) for last in "ab"]
    assert len({yaml.safe_load(OLD.render(each))["metadata"]["name"] for each in long}) == 2
    assert yaml.safe_load(OLD.render(first.model_copy(update={"kind": "launch"})))["kind"] == "ElasticJob"
    assert yaml.safe_load(DlroverExecutor(version="v0.5.1").render(first))["kind"] == "ElasticJob"


def test_invalid_release_is_refused() -> None:
    for version in ("", "new", "1", "0.x"):
        with pytest.raises(InputError, match="not a release of DLRover"):
            DlroverExecutor(version=version)
