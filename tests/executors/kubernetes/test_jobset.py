"""What is JobSet's own: the number of a role is that of a Job's pods, or of Jobs of one pod each."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sizewright.errors import InputError
from sizewright.executors.kubernetes.jobset import JobSetExecutor
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Job, Plan
from tests.helpers.crds import validator

POD = """\
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: trainer
              image: ours:1
              resources: {requests: {cpu: CORES, memory: 1Gi}}
"""
BASE = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  generateName: ctr-
  labels: {{kueue.x-k8s.io/queue-name: ads}}
spec:
  suspend: true   # Kueue's
  replicatedJobs:
  - name: Workers
    replicas: %s   # ours
    template:
      spec:
        parallelism: %s
        completions: %s
{POD.replace("CORES", "2")}\
  - name: ps
    template:
      spec:
{POD.replace("CORES", "1")}"""
PLAN = Plan(
    id="p-1", kind="launch", job=Job(name="ctr"), target=Allocation.of(4, 2, 1.5, 0.5, 512, GIB, GIB), reason="best"
)


def sized(tmp_path: Path, *counts: object) -> str:
    base = tmp_path / "base.yaml"
    base.write_text(BASE % counts, encoding="utf-8")
    return JobSetExecutor(base=base).render(PLAN)


@pytest.mark.parametrize(
    ("before", "after"),
    [((1, 8, 8), (1, 4, 4)), ((8, 1, 1), (4, 1, 1)), ((1, 1, 1), (1, 4, 4)), ((0, 3, 3), (0, 4, 4))],
)
def test_the_counter_that_the_base_uses_is_written(
    tmp_path: Path, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    text = sized(tmp_path, *before)
    expected = (BASE % after).replace("cpu: 2", "cpu: 1500m").replace("cpu: 1,", "cpu: 500m,")
    ps_before = "  - name: ps\n    template:\n      spec:\n"
    assert text.startswith(expected[: expected.index("  - name: ps")])
    assert text.count("  parallelism: 2") == text.count("  completions: 2") == 1
    assert ps_before in text
    assert "suspend: true   # Kueue's" in text
    read = JobSetExecutor().parse(text).target
    assert (read.replicas("worker"), read.replicas("ps")) == (4, 2)


def test_jobs_of_several_pods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"spec.replicatedJobs\[Workers\] has 2 replicas of 3 pods each") as caught:
        sized(tmp_path, 2, 3, 3)
    assert "parallelism: 1" in caught.value.remedy


def test_the_job_ends_with_its_workers_and_every_change_restarts_it() -> None:
    document = yaml.safe_load(JobSetExecutor().render(PLAN))
    validator("JobSet").validate(document)
    assert document["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["worker"]}
    assert not JobSetExecutor.scales


@pytest.mark.parametrize(
    ("condition", "status"),
    [({"type": "Completed", "status": "True"}, "finished"), ({"type": "Failed", "status": "True"}, "failed"),
     ({"type": "Failed", "status": "False"}, None), ({"type": "Suspended", "status": "True"}, None)],
)  # fmt: skip
def test_its_conditions_say_how_it_ended(condition: dict[str, str], status: str | None) -> None:
    assert JobSetExecutor().end_status({"status": {"conditions": [condition]}}) == status
