"""Tell SkyPilot how long a job trains on a machine, so that it chooses by the job's own price and time::

    import sizewright as sw
    task.set_time_estimator(sw.skypilot.time_estimator("job.yaml", store="trials.db"))

SkyPilot itself is not needed here: its `sky.Resources` are read by their properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sizewright.api.inputs import load_job
from sizewright.api.sizing import recommend
from sizewright.errors import InputError
from sizewright.formatting import GIB
from sizewright.spec import Cluster, Gpu, HostKind
from sizewright.spec.units import parse_number

if TYPE_CHECKING:
    from sizewright.api._records import JobLike, StoreLike, TrialsLike
    from sizewright.api.priors import PriorLike

__all__ = ["MachineLike", "time_estimator"]

_REMEDY = "Give the candidate an infra and an instance_type, or cpus and memory."


class MachineLike(Protocol):
    """The properties of `sky.Resources` that count here."""

    @property
    def cpus(self) -> str | None:
        """The vCPUs of an instance, such as `4`, or `4+` for at least 4."""

    @property
    def memory(self) -> str | None:
        """The memory of an instance in GiB, such as `16` or `16+`, or `4x` for 4 GiB per vCPU."""

    @property
    def accelerators(self) -> Mapping[str, int | float] | None:
        """The accelerators of an instance by their kind."""


def time_estimator(
    job: JobLike,
    *,
    num_nodes: int = 1,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    extrapolate: bool = False,
    prior: PriorLike = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
) -> Callable[[MachineLike], float]:
    """Return a function for `Task.set_time_estimator` of SkyPilot: the seconds that the job trains on a machine.

    The seconds are those of the fastest allocation within the job's bounds that fits on `num_nodes` machines, which is
    the `num_nodes` of the task. A vCPU counts as a core, and of "4+" vCPUs 4 count. Starting the machines takes further
    time. The other arguments are those of `recommend`.

    Raises JobError for the job file and InputError for `num_nodes` below 1. The returned function raises the errors of
    `recommend`, and InputError with the remedies of its answer where there is not enough data, or where the job does
    not fit on the machine; also for a machine whose vCPUs or memory are unknown, and for jobs that train on GPUs, since
    trials do not record their kind.
    """
    if num_nodes < 1:
        raise InputError(f"num_nodes must be at least 1, got {num_nodes}.", "Pass the num_nodes of the task.")
    described = load_job(job, data, samples=samples)

    @cache  # SkyPilot asks several times for each machine
    def seconds_on(name: str, host: HostKind) -> float:
        cluster = Cluster(name=name, hosts=(host,))
        answer = recommend(
            described,
            trials=trials,
            store=store,
            cluster=cluster,
            extrapolate=extrapolate,
            prior=prior,
            objective="time",
        )
        if answer.target is None or answer.predicted is None:
            raise InputError(" ".join(answer.reasons), " ".join(remedy.text for remedy in answer.remedies))
        if answer.target.gpus():
            raise InputError(
                f"{described.name} trains on GPUs, but its trials do not record their kind, so its time on {name} is "
                "unknown.",
                "Estimate it by a function of your own.",
            )
        if answer.predicted.completion_time_s is None:
            raise InputError(
                f"The number of samples of {described.name} is unknown, and so is its time.",
                "Pass samples, or set training.samples in the job file.",
            )
        return answer.predicted.completion_time_s.value

    return lambda machine: seconds_on(str(machine), _host_of(machine, num_nodes))


def _host_of(machine: MachineLike, count: int) -> HostKind:
    """Return the hosts that the candidate stands for."""
    name = str(machine)
    cores = _amount(machine.cpus, f"The number of vCPUs of {name}")
    memory = (machine.memory or "").rstrip("+")
    gib = _amount(memory.removesuffix("x"), f"The memory of {name}") * (cores if memory.endswith("x") else 1)
    gpus = int(sum((machine.accelerators or {}).values()))
    gpu = Gpu(count=gpus) if gpus else None
    return HostKind(kind=name, count=count, cpu=cores, memory_bytes=int(gib * GIB), gpu=gpu)


def _amount(text: str | None, what: str) -> float:
    """Return the number of `4` or `4+`. Raises InputError if it is unknown or not above 0."""
    try:
        amount = parse_number((text or "").rstrip("+"))
    except ValueError:
        raise InputError(f"{what} is unknown.", _REMEDY) from None
    if amount <= 0:
        raise InputError(f"{what} must be above 0, got {text}.", _REMEDY)
    return amount
