from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.spec import Allocation, Job, Plan

GIB = 1 << 30
PLAN = Plan(
    id="p-1", kind="launch", job=Job(name="ctr"), target=Allocation.of(2, 1, 1.0, 1.0, 512, GIB, GIB), reason=""
)
WORKER = ("spec", "tfReplicaSpecs", "Worker", "template", "spec", "containers", 0)


def changed(path: tuple[Any, ...], value: Any) -> str:
    document = yaml.safe_load(get_executor("kubeflow").render(PLAN))
    at = document
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return yaml.safe_dump(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("metadata",), None, "metadata must be a mapping, got None"),
        (("metadata", "name"), None, r"metadata\.name is missing"),
        (("metadata", "name"), "My_Job", r"metadata\.name is 'My_Job'"),
        (("metadata", "namespace"), "a b", r"metadata\.namespace is 'a b'"),
        ((*WORKER, "image"), None, r"tfReplicaSpecs\.Worker: its container has no image"),
        ((*WORKER, "name"), "", r"Worker has no container named tensorflow"),
        ((*WORKER, "resources"), {"requests": {"memory": "1Gi"}, "limits": {"memory": "1x"}}, "is '1x', which is not"),
    ],
)  # fmt: skip
def test_invalid_manifest_is_refused_before_it_is_applied(
    path: tuple[Any, ...], value: Any, message: str, tmp_path: Path
) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(changed(path, value))
    executor = get_executor("kubeflow", base=base)
    unknown = PLAN.model_copy(update={"target": Allocation.of(2, 1, 1.0, 1.0, 512)})  # leaves memory as it is
    with pytest.raises(InputError, match=message) as caught:
        executor.render(unknown)
    assert caught.value.remedy


def test_request_above_the_limit_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(changed((*WORKER, "resources"), {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}))
    unknown = PLAN.model_copy(update={"target": Allocation.of(2, 1, 1.0, 1.0, 512)})
    with pytest.raises(InputError, match="request 2Gi of memory, above the limit of 1Gi"):
        get_executor("kubeflow", base=base).render(unknown)
    assert get_executor("kubeflow", base=base).render(PLAN), "where the memory is known both are mended"
