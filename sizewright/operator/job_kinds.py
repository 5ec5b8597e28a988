"""The kinds of suspended jobs that the operator sizes, and where each of them says that it is suspended."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.errors import InputError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.jobset import JobSetExecutor
from sizewright.executors.kubernetes.kuberay import KuberayExecutor
from sizewright.executors.kubernetes.pytorchjob import PyTorchJobExecutor
from sizewright.executors.kubernetes.trainjob import TrainJobExecutor
from sizewright.operator.batch_job import BatchJobs
from sizewright.operator.labels import ROLES, annotations_of

_IN_SPEC = ("spec", "suspend")
_SWITCHES: Mapping[type[ClusterExecutor], tuple[str, ...]] = {
    TrainJobExecutor: _IN_SPEC,
    JobSetExecutor: _IN_SPEC,
    KuberayExecutor: _IN_SPEC,
    PyTorchJobExecutor: ("spec", "runPolicy", "suspend"),
    BatchJobs: _IN_SPEC,
}


_DEADLINE = "activeDeadlineSeconds"


class JobKind(NamedTuple):
    """A kind of jobs: the executor that reads and changes them, and the path of the field that suspends one."""

    executor: ClusterExecutor
    switch: tuple[str, ...]

    def is_suspended(self, job_object: Mapping[str, Any]) -> bool:
        """Return whether a job is suspended."""
        value: Any = job_object
        for key in self.switch:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value is True

    def for_job(
        self,
        job_object: Mapping[str, Any],
        api: KubeApi,
        base: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> JobKind:
        """Return the kind with an executor for one job, with the names of roles that its annotation maps.

        `base` is the job's manifest, which changes of it need, and `clock` the time of day. Raises InputError for a
        wrong annotation.
        """
        text = annotations_of(job_object).get(ROLES)
        roles = dict(pair.strip().partition("=")[::2] for pair in text.split(",")) if text else {}
        if not all(roles.values()):
            raise InputError(f"Its annotation {ROLES} is '{text}'.", "Write ROLE=NAME, with commas between several.")
        return self._replace(executor=type(self.executor)(api=api, roles=roles, base=base, clock=clock))

    def with_deadline(self, job_object: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return a copy of a job which the cluster ends after some seconds, where the kind has a field for that."""
        ended = copy.deepcopy(dict(job_object))
        if self.executor.kind == "JobSet":
            specs = [each["template"]["spec"] for each in ended["spec"]["replicatedJobs"]]
        else:
            specs = [ended["spec"]["runPolicy"] if self.switch[1:-1] else ended["spec"]]
        for spec in specs:
            spec[_DEADLINE] = max(1, round(min(seconds, spec.get(_DEADLINE, seconds))))
        return ended

    def resumed(self) -> dict[str, Any]:
        """Return the change that resumes a job."""
        change: Any = False
        for key in reversed(self.switch):
            change = {key: change}
        return dict(change)


def resource_of(executor: type[ClusterExecutor]) -> tuple[str, str]:
    """Return the API group and the plural name of a kind, as permissions name it."""
    return executor.api_version.partition("/")[0], f"{executor.kind.lower()}s"


RESOURCES = tuple(map(resource_of, _SWITCHES))
"""API group and plural name of each kind."""


def job_kinds(api: KubeApi) -> list[JobKind]:
    """Return all kinds, for the cluster of a client."""
    return [JobKind(executor(api=api), switch) for executor, switch in _SWITCHES.items()]
