"""What is relied on of the objects that an API server answers with; all else in them is kept as it is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sizewright.errors import EngineError
from sizewright.spec._faults import explain_first


def _time(text: str) -> str:
    datetime.fromisoformat(text.replace("Z", "+00:00"))
    return text


Time = Annotated[str, AfterValidator(_time)]
Strings = dict[str, str]


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Meta(_Form):
    name: str = Field(min_length=1)
    uid: str = ""
    namespace: str | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    creationTimestamp: Time | None = None  # noqa: N815
    deletionTimestamp: Time | None = None  # noqa: N815


class _Status(_Form):
    phase: str | None = None
    conditions: list[dict[str, Any]] | None = None


class Object(_Form):
    """Of any kind."""

    metadata: _Meta
    spec: dict[str, Any] | None = None
    status: _Status | None = None


class _Resources(_Form):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(_Form):
    name: str = Field(min_length=1)
    resources: _Resources | None = None
    env: list[dict[str, Any]] | None = None


class _PodSpec(_Form):
    containers: list[_Container] = Field(min_length=1)


class Pod(Object):
    """A replica."""

    spec: _PodSpec  # type: ignore[assignment]


class _Usage(_Form):
    cpu: str
    memory: str


class _Measured(_Form):
    name: str
    usage: _Usage


class PodMetrics(Object):
    """What the containers of a pod used of late."""

    timestamp: Time
    window: str = "0s"
    containers: list[_Measured] = []


class Served(_Form):
    """A kind that the server has."""

    name: str
    kind: str
    namespaced: bool
    verbs: list[str]


FORMS: dict[str, type[_Form]] = {"Pod": Pod, "PodMetrics": PodMetrics}


def as_object(kind: str, found: Any, what: str) -> dict[str, Any]:
    """Return an answer as it came. Raises EngineError for one that is no object of a kind; `what` was asked for."""
    return _checked(FORMS.get(kind, Object), found, what)


def as_items(kind: str, found: Any, what: str, key: str = "items") -> list[dict[str, Any]]:
    """Return the objects of a list. Raises EngineError for what is none."""
    items = found.get(key) if isinstance(found, dict) else found
    if not isinstance(items, list | None):
        raise foreign(what, f"{key} must be a list")
    form = Served if key == "resources" else FORMS.get(kind, Object)
    return [_checked(form, each, what) for each in items or []]


def _checked(form: type[_Form], found: Any, what: str) -> dict[str, Any]:
    try:
        form.model_validate(found)
    except ValidationError as error:
        raise foreign(what, explain_first(error)) from None
    return found  # type: ignore[no-any-return]


def foreign(what: str, why: str) -> EngineError:
    """Return the error for an answer that cannot be used; `what` was asked for."""
    return EngineError(
        f"What the API server answered when asked to {what} cannot be used: {why[:200]}.",
        "See which server the kubeconfig names, and whether a proxy stands between.",
    )
