"""Values that options take, for help and completion: named here so that neither has to import what they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

EXECUTORS = ("dlrover", "file", "kubeflow", "kuberay", "local", "ray", "slurm", "volcano")
MODELS = ("default", "phases", "dlrover", "optimus", "ernest", "usl", "allreduce", "gp", "lightgbm")
POLICIES = (
    "default", "fifo", "sjf", "doubling", "slope", "hull", "dynamic", "mip", "lagrangian", "weighted-greedy",
    "progress-mip", "elastic-tiresias", "aryl", "sia",
)  # fmt: skip
EXECUTOR_GROUP, MODEL_GROUP, POLICY_GROUP = "sizewright.executors", "sizewright.models", "sizewright.allocators"
"""Where other packages register theirs."""
SCHEMAS = (
    "job", "cluster", "recommendation", "plan", "trial", "memory", "rails", "jobs", "division", "simulation", "checkup",
)  # fmt: skip
RECLAIMS = ("least-cost", "smallest-count", "random", "exact")
TRACES = ("plain", "philly", "alibaba", "openb", "helios")
VALUES = ("progress", "completion", "own")
VERSIONS = ("champion", "challenger")


def named(values: Iterable[str]) -> str:
    """`a, b or c`."""
    *first, last = values
    return f"{', '.join(first)} or {last}"


def among(values: Iterable[str], group: str = "") -> Callable[[str], list[str]]:
    """Completes one of them, or the last of several with commas between; with those that other packages register in an
    entry-point group."""

    def complete(incomplete: str) -> list[str]:
        before = incomplete[: incomplete.rfind(",") + 1]
        return [before + value for value in (*values, *_registered(group)) if value not in before.split(",")]

    return complete


def _registered(group: str) -> Iterable[str]:
    from importlib.metadata import entry_points

    return sorted(point.name for point in entry_points(group=group)) if group else ()
