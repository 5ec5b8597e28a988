"""Values of options, for help and completion. They are repeated here so that help does not import their modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable

EXECUTORS = (
    "dlrover",
    "file",
    "jobset",
    "kubeflow",
    "kuberay",
    "local",
    "pytorchjob",
    "ray",
    "slurm",
    "trainjob",
    "volcano",
)
MODELS = ("default", "phases", "dlrover", "optimus", "ernest", "usl", "allreduce", "gp", "lightgbm")
POLICIES = (
    "default", "fifo", "fifo-backfill", "sjf", "srsf", "tiresias", "doubling", "slope", "hull", "dynamic", "mip",
    "lagrangian", "weighted-greedy", "progress-mip", "elastic-tiresias", "aryl", "sia",
)  # fmt: skip
EXECUTOR_GROUP = "sizewright.executors"  # entry-point groups of other packages
MODEL_GROUP = "sizewright.models"
POLICY_GROUP = "sizewright.allocators"
SCHEMAS = (
    "job", "cluster", "recommendation", "plan", "trial", "memory", "prediction", "rails", "jobs", "division",
    "simulation", "checkup", "table-placement", "torchrec-calibration",
)  # fmt: skip
RECLAIMS = ("least-cost", "smallest-count", "random", "exact")
SPEEDS = ("known", "learned")
TRACES = ("plain", "philly", "alibaba", "openb", "helios")
VALUES = ("progress", "completion", "own")
VERSIONS = ("champion", "challenger")


def named(values: Iterable[str]) -> str:
    """Return the values as in a sentence: `a, b or c`."""
    *first, last = values
    return f"{', '.join(first)} or {last}"


def among(values: Iterable[str], group: str = "") -> Callable[[str], list[str]]:
    """Return a shell completion for one of the values, or for the last of several that are separated by commas.

    Values that other packages register in the entry-point `group` are completed as well.
    """

    def complete(incomplete: str) -> list[str]:
        before = incomplete[: incomplete.rfind(",") + 1]
        return [before + value for value in (*values, *_registered(group)) if value not in before.split(",")]

    return complete


def _registered(group: str) -> Iterable[str]:
    from importlib.metadata import entry_points

    return sorted(point.name for point in entry_points(group=group)) if group else ()
