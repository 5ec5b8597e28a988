"""Finding executors by name: those that come with Sizewright, and those that other packages register."""

from __future__ import annotations

import difflib
import importlib
import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sizewright.errors import InputError, UnsupportedError
from sizewright.spec import Executor

ENTRY_POINTS = "sizewright.executors"

_EXECUTORS = {
    "dlrover": "sizewright.executors.dlrover:DlroverExecutor",
    "file": "sizewright.executors.file:FileExecutor",
    "kubeflow": "sizewright.executors.kubeflow:KubeflowExecutor",
    "kuberay": "sizewright.executors.kuberay:KuberayExecutor",
    "local": "sizewright.executors.local:LocalExecutor",
    "ray": "sizewright.executors.ray_cluster:RayExecutor",
    "volcano": "sizewright.executors.volcano:VolcanoExecutor",
}


def executor_names() -> list[str]:
    """The names that `get_executor` knows, sorted."""
    return sorted({*_EXECUTORS, *_registered()})


def get_executor(name: str, **options: Any) -> Executor:
    """The executor of that name, made with its options (`get_executor("ray", address="10.0.0.7:6379")`).

    Raises InputError for an unknown name, listing the known ones, and for an option that it does not take.
    """
    make = _find(name)
    try:
        inspect.signature(make).bind(**options)
    except TypeError:
        taken = sorted(inspect.signature(make).parameters)
        raise InputError(
            f"The {name} executor cannot be made with the options {', '.join(sorted(options)) or 'none'}.",
            f"It takes: {', '.join(taken) or 'none'}.",
        ) from None
    made: Executor = make(**options)
    return made


def unsupported(executor: str, capability: str) -> UnsupportedError:
    """The error of an executor that lacks a capability; it names those of Sizewright's own that have it."""
    able = [name for name in sorted(_EXECUTORS) if _load(name).capabilities.model_dump()[capability]]
    what = "plans" if capability == "render" else "jobs"
    return UnsupportedError(
        f"The {executor} executor cannot {capability} {what}.", f"Executors that can: {', '.join(able)}."
    )


def _find(name: str) -> Any:
    if name in _EXECUTORS:
        return _load(name)
    registered = _registered()
    if name not in registered:
        close = difflib.get_close_matches(name, executor_names(), n=1, cutoff=0.5)
        hint = f"; did you mean '{close[0]}'?" if close else "."
        raise InputError(f"There is no executor '{name}'{hint}", f"Known: {', '.join(executor_names())}.")
    try:
        return registered[name].load()
    except Exception as error:  # whatever another package's import raises
        raise InputError(
            f"The executor '{name}' cannot be loaded from {registered[name].value}: {error}.",
            "Mend or remove the package that registers it.",
        ) from error


def _load(name: str) -> Any:
    module, _, attribute = _EXECUTORS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
