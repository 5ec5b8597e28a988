"""Finding executors by name: those that come with Sizewright, and those that other packages register."""

from __future__ import annotations

import difflib
import importlib
import inspect
import logging
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sizewright.errors import InputError, UnsupportedError
from sizewright.spec import Capabilities, Executor

ENTRY_POINTS = "sizewright.executors"
_LOG = logging.getLogger(__name__)

_METHODS = ("launch", "adjust", "observe", "wait", "stop", "render", "change_cost")
_EXECUTORS = {
    "dlrover": "sizewright.executors.dlrover:DlroverExecutor",
    "file": "sizewright.executors.file:FileExecutor",
    "kubeflow": "sizewright.executors.kubeflow:KubeflowExecutor",
    "kuberay": "sizewright.executors.kuberay:KuberayExecutor",
    "local": "sizewright.executors.local:LocalExecutor",
    "ray": "sizewright.executors.ray_cluster:RayExecutor",
    "slurm": "sizewright.executors.slurm:SlurmExecutor",
    "volcano": "sizewright.executors.volcano:VolcanoExecutor",
}


def executor_names() -> list[str]:
    """The names that `get_executor` knows, sorted. One of another package that cannot be loaded is warned of, and is
    not among them."""
    return sorted({*_EXECUTORS, *(name for name, point in _registered().items() if _loads(name, point))})


def get_executor(name: str, **options: object) -> Executor:
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
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing or not isinstance(getattr(made, "capabilities", None), Capabilities):
        raise InputError(
            f"The executor '{name}' is none: it lacks {', '.join(missing) or 'capabilities'}.",
            "Hold it against sizewright.testing.ExecutorContract.",
        )
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


def _loads(name: str, point: EntryPoint) -> bool:
    try:
        point.load()
    except Exception as error:  # whatever another package's import raises
        _LOG.warning("The executor '%s' of %s cannot be loaded, and is left out: %s", name, point.value, error)
        return False
    return True


def _registered() -> dict[str, EntryPoint]:
    """Of other packages; a name of ours stays ours."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
