"""Executors by name; other packages register theirs in the entry-point group `sizewright.executors`."""

from __future__ import annotations

import inspect
from pathlib import Path

from sizewright.errors import InputError, UnsupportedError
from sizewright.plugins import Plugins
from sizewright.spec import Capabilities, Executor
from sizewright.spec._paths import absolute

_PATHS = ("base", "folder", "resume")
"""Options of executors that are paths, relative to the user's folder."""
_METHODS = ("launch", "adjust", "observe", "wait", "stop", "render", "change_cost")
_EXECUTORS = Plugins(
    noun="executor",
    group="sizewright.executors",
    builtin={
        "dlrover": "sizewright.executors.kubernetes.dlrover:DlroverExecutor",
        "file": "sizewright.executors.file:FileExecutor",
        "jobset": "sizewright.executors.kubernetes.jobset:JobSetExecutor",
        "kubeflow": "sizewright.executors.kubernetes.kubeflow:KubeflowExecutor",
        "kuberay": "sizewright.executors.kubernetes.kuberay:KuberayExecutor",
        "local": "sizewright.executors.session.local:LocalExecutor",
        "pytorchjob": "sizewright.executors.kubernetes.pytorchjob:PyTorchJobExecutor",
        "ray": "sizewright.executors.session.ray_cluster:RayExecutor",
        "slurm": "sizewright.executors.slurm.executor:SlurmExecutor",
        "trainjob": "sizewright.executors.kubernetes.trainjob:TrainJobExecutor",
        "volcano": "sizewright.executors.kubernetes.volcano:VolcanoExecutor",
    },
    contract="ExecutorContract",
)


def executor_names() -> list[str]:
    """Return the names that `get_executor` knows, sorted.

    A plug-in that cannot be loaded is left out, with a warning.
    """
    return sorted(_EXECUTORS.names())


def get_executor(name: str, **options: object) -> Executor:
    """Return the executor of that name, made with its options (`get_executor("ray", address="10.0.0.7:6379")`).

    Raises InputError for an unknown name, with the known ones, and for an option that it does not take.
    """
    make = _EXECUTORS.find(name)
    paths = {key: absolute(path) for key, path in options.items() if key in _PATHS and isinstance(path, str | Path)}
    options |= paths
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
        raise _EXECUTORS.invalid(name, f"it has no {', '.join(missing) or 'capabilities'}")
    return made


def unsupported(executor: str, capability: str) -> UnsupportedError:
    """Return the error of an executor that lacks a capability; it names the built-in executors that have it."""
    capable = [
        name for name in sorted(_EXECUTORS.builtin) if _EXECUTORS.find(name).capabilities.model_dump()[capability]
    ]
    noun = "plans" if capability == "render" else "jobs"
    return UnsupportedError(
        f"The {executor} executor cannot {capability} {noun}.", f"Executors that can: {', '.join(capable)}."
    )
