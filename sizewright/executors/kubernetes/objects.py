"""Schemas of the objects in an API server's answers: the fields that are used. All other fields are kept."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sizewright.errors import EngineError
from sizewright.redaction import beginning
from sizewright.spec._faults import explain_first

_LOG = logging.getLogger(__name__)


_FRACTION = re.compile(r"(\.[0-9]{1,6})[0-9]*")


def seconds_of(text: str | None) -> float | None:
    """Return a Kubernetes timestamp, of up to nanoseconds, on the clock of `time.time`; None if it is not one."""
    try:
        return _datetime(text or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _datetime(text: str) -> datetime:
    # Python 3.10 reads three or six digits of a second.
    return datetime.fromisoformat(_FRACTION.sub(lambda match: match[1].ljust(7, "0"), text).replace("Z", "+00:00"))


def _time(text: str) -> str:
    _datetime(text)
    return text


Time = Annotated[str, AfterValidator(_time)]
Strings = dict[str, str]


class _Schema(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Meta(_Schema):
    name: str = Field(min_length=1)
    uid: str = ""
    namespace: str | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    generation: int | None = None
    creationTimestamp: Time | None = None  # noqa: N815
    deletionTimestamp: Time | None = None  # noqa: N815


class _Condition(_Schema):
    type: str
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class _State(_Schema):
    phase: str | None = None


class _Status(_State):
    conditions: list[_Condition] | None = None


class _Listed(_Schema):
    metadata: _Meta
    status: _Status | None = None


class _ObjectMeta(_Meta):
    namespace: str


class Object(_Listed):
    """An object of any kind that is applied."""

    apiVersion: str  # noqa: N815
    kind: str
    metadata: _ObjectMeta
    spec: dict[str, Any]


class _Resources(_Schema):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(_Schema):
    name: str = Field(min_length=1)
    resources: _Resources | None = None
    env: list[dict[str, Any]] | None = None
    resizePolicy: list[dict[str, Any]] | None = None  # noqa: N815


class _PodSpec(_Schema):
    containers: list[_Container] = Field(min_length=1)


class _ContainerStatus(_Schema):
    name: str
    resources: _Resources | None = None


class _PodStatus(_Status):
    observedGeneration: int | None = None  # noqa: N815
    containerStatuses: list[_ContainerStatus] | None = None  # noqa: N815


class Pod(_Listed):
    """A pod, which is one replica."""

    spec: _PodSpec
    status: _PodStatus | None = None


class _Usage(_Schema):
    cpu: str
    memory: str


class _ContainerUsage(_Schema):
    name: str
    usage: _Usage


class PodMetrics(_Listed):
    """The recent usage of a pod's containers, of `metrics.k8s.io`."""

    timestamp: Time
    window: str = "0s"
    containers: list[_ContainerUsage] = []


class _VolcanoStatus(_Status):
    state: _State | None = None


class VolcanoJob(Object):
    """A job of Volcano, whose phase is that of its state, or of Kubernetes itself, which has no such state."""

    status: _VolcanoStatus | None = None


class _Metric(_Schema):
    name: str
    value: str


class _TrainerStatus(_Schema):
    progressPercentage: int | None = None  # noqa: N815
    metrics: list[_Metric] | None = None


class _TrainJobStatus(_Status):
    trainerStatus: _TrainerStatus | None = None  # noqa: N815


class TrainJob(Object):
    """A job of Kubeflow Trainer, whose pods push their progress into its status."""

    status: _TrainJobStatus | None = None


class ConfigMap(_Listed):
    """Texts by name."""

    data: Strings = {}


class Served(_Schema):
    """A kind that the server serves."""

    name: str
    kind: str
    namespaced: bool
    verbs: list[str]


_SCHEMAS: dict[str, type[_Schema]] = {
    "Pod": Pod, "PodMetrics": PodMetrics, "Job": VolcanoJob, "TrainJob": TrainJob, "ConfigMap": ConfigMap,
    "Secret": ConfigMap,
}  # fmt: skip


def check_object(kind: str, answer: Any, request: str) -> dict[str, Any]:
    """Return the answer to a request unchanged. Raises EngineError if it is not an object of the kind."""
    return _check(_SCHEMAS.get(kind, Object), answer, request)


def check_items(
    kind: str, answer: Any, request: str, key: str = "items", *, skip_odd: bool = False
) -> list[dict[str, Any]]:
    """Return the objects of a list unchanged. Raises EngineError if the answer is not a list of such objects.

    With `skip_odd` other objects are left out, with a warning.
    """
    items = answer.get(key) if isinstance(answer, dict) else answer
    if not isinstance(items, list | None):
        raise unusable_answer(request, f"{key} must be a list")
    schema = Served if key == "resources" else _SCHEMAS.get(kind, Object)
    found = []
    for each in items or []:
        try:
            found.append(_check(schema, each, request))
        except EngineError as error:
            if not skip_odd:
                raise
            _LOG.warning(str(error))
    return found


def _check(schema: type[_Schema], answer: Any, request: str) -> dict[str, Any]:
    try:
        schema.model_validate(answer)
    except ValidationError as error:
        raise unusable_answer(request, explain_first(error)) from None
    return answer  # type: ignore[no-any-return]


def unusable_answer(request: str, reason: str) -> EngineError:
    """Return the error for an answer that cannot be used."""
    return EngineError(
        f"The API server's answer to the request to {request} cannot be used: {beginning(reason, 200)}.",
        "Check which server the kubeconfig names, and whether a proxy stands in between.",
    )


def true_conditions(document: Mapping[str, Any]) -> set[str]:
    """Return the types of an object's conditions that are true; the object has been checked."""
    conditions = (document.get("status") or {}).get("conditions") or []
    return {condition["type"] for condition in conditions if condition.get("status") == "True"}
