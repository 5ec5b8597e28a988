"""The job file: what to train, within which bounds, at what prices, for which objective."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_serializer, model_serializer, model_validator

from sizewright.errors import InputError, JobError
from sizewright.formatting import format_count
from sizewright.redaction import without_passwords
from sizewright.spec._base import OPTIONS, Record, load_yaml, parse
from sizewright.spec._paths import absolute, absolute_pattern, folder_of
from sizewright.spec._shorthand import BY_INTERVAL, JOB_NAME, NAMESPACE, PLATFORM_NAME
from sizewright.spec.allocation import ANY_GPU, Allocation, Group, same_kind
from sizewright.spec.bounds import MAX_REPLICAS, NO_REPLICAS, BatchSize, Bounds, Loaders
from sizewright.spec.cluster import HostKind
from sizewright.spec.command import Command
from sizewright.spec.identity import hashes
from sizewright.spec.model import FIRST_CRITEO_ROWS, Model
from sizewright.spec.units import Count, Number, Seconds
from sizewright.spec.withheld import Words

_CRITEO_SAMPLES = 45_840_617  # rows of Criteo Kaggle's train.txt
MAX_SAMPLES = 10**18
Objective = Literal["balanced", "cost", "time", "deadline"]


def _device(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"cuda:\d+|gpus?(:\d+)?", value.strip(), re.IGNORECASE):
        raise ValueError(f"must be cpu or cuda, got {value!r} (write cuda: each replica gets its own GPU)")
    return value


DEVICE = BeforeValidator(_device)


class Data(Record):
    """The source of the samples."""

    format: Literal["synthetic", "criteo"] = Field(default="synthetic", description="made up, or a click log")
    path: str | None = Field(
        default=None,
        description="a click log or a glob of them: text, compressed or not, or Parquet; relative to the job file",
    )
    zipf: Number = Field(default=1.05, ge=0, description="exponent of the id distribution of synthetic logs")
    max_broken_share: Number = Field(
        default=0.01, ge=0, le=1, description="share of broken rows above which a log is refused"
    )

    @field_serializer("path")
    def _written_path(self, path: str | None) -> str | None:
        return path and without_passwords(path)

    @model_validator(mode="after")
    def _path_for_logs(self) -> Data:
        if self.format == "criteo" and not self.path:
            raise ValueError("format criteo needs a path")
        if self.format == "synthetic" and self.path:
            raise ValueError("synthetic data takes no path; set format: criteo to read one")
        return self


class Checkpoint(Record):
    """Checkpoints, from which the job resumes after an interruption."""

    every: Seconds = Field(gt=0, description="time between two checkpoints, such as 30m")
    pause: Seconds = Field(
        default=0.0, ge=0, description="time for which training stops to write one, beyond what trials measured"
    )
    restart: Seconds = Field(
        default=63.0, ge=0, description="from an interruption until training continues on new hosts"
    )

    @model_validator(mode="after")
    def _trains_in_between(self) -> Checkpoint:
        if self.pause >= self.every:
            raise ValueError(f"pause ({self.pause:g} s) must be shorter than every ({self.every:g} s)")
        return self

    @property
    def time_factor(self) -> float:
        """The time of a job with the pauses of its checkpoints over its time without them."""
        return self.every / (self.every - self.pause)


class Training(Record):
    """Training settings."""

    batch_size: BatchSize = Field(default=512, description="samples per step of one worker")
    global_batch_size: BatchSize | None = Field(
        default=None, description="samples per step of all workers together, in place of batch_size"
    )
    loaders: Loaders = Field(
        default=0,
        description="processes that read for a worker (for each of its ranks), as {loaders} in a command",
    )
    samples: Count | None = Field(
        default=None, ge=1, le=MAX_SAMPLES,
        description="samples to train in all; absent: unknown with a command, else the 45,840,617 of Criteo Kaggle",
    )  # fmt: skip
    sync: Literal["async", "sync"] = Field(default="async", description="whether workers wait for each other")
    device: Annotated[Literal["cpu", "cuda"], DEVICE] = Field(default="cpu", description="where workers compute")
    embedding_device: Annotated[Literal["cpu", "cuda"], DEVICE] = Field(
        default="cpu", description="where a PS keeps its rows"
    )
    max_staleness: Count | None = Field(
        default=None, ge=0, description="async: steps by which a worker may be ahead of the slowest; unbounded without"
    )
    dense_sync_steps: Count = Field(default=1, ge=1, description="steps between exchanges of the dense weights")
    checkpoint: Annotated[Checkpoint | None, BY_INTERVAL] = Field(
        default=None, description="how often the job is saved, such as 30m; absent: an interruption loses all work"
    )

    @model_validator(mode="after")
    def _one_batch_size(self) -> Training:
        if self.global_batch_size is None:
            return self
        if "batch_size" in self.model_fields_set:
            raise ValueError("batch_size is that of one worker, so leave it out, or leave out global_batch_size")
        object.__setattr__(self, "batch_size", self.global_batch_size)  # that of a single worker
        return self

    @model_serializer(mode="wrap")
    def _drop_batch_of_one_worker(self, handler: Any):  # type: ignore[no-untyped-def]  # a type would replace the schema
        data: dict[str, Any] = handler(self)
        return {name: value for name, value in data.items() if name != "batch_size" or self.global_batch_size is None}


class Prices(Record):
    """Prices in currency per hour."""

    core_hour: Number = Field(default=1.0, ge=0, description="of a core")
    gib_hour: Number = Field(default=0.13, ge=0, description="of a GiB of memory")
    gpu_hour: Number = Field(default=10.0, ge=0, description="of a GPU")

    def describe(self, *, gpus: bool = False) -> str:
        """Return `"1 per core-hour and 0.13 per GiB-hour (the default prices)"`, the unit of every cost."""
        parts = [f"{self.core_hour:g} per core-hour", f"{self.gib_hour:g} per GiB-hour"]
        parts += [f"{self.gpu_hour:g} per GPU-hour"] if gpus else []
        default = " (the default prices)" if self == Prices() else ""
        return f"{', '.join(parts[:-1])} and {parts[-1]}{default}"


class Deploy(Record):
    """The container settings of executors that render a manifest."""

    image: str = Field(default="registry.example.com/your-training:latest", description="of every replica")
    command: Words = Field(default=("python", "train.py"), description="words that start a replica")
    folder: str | None = Field(
        default=None, pattern=r"^/", description="where the container starts it; absent: the image's own folder"
    )
    namespace: Annotated[str, NAMESPACE] = Field(default="default", description="of the platform")
    priority_class: Annotated[str, PLATFORM_NAME] | None = Field(
        default=None, description="of the platform, where it has such"
    )


class Job(Record):
    """A training job, as described in its job file."""

    name: Annotated[str, JOB_NAME] = Field(default="job", description="small letters, digits, hyphens")
    model: Model = Field(
        default=Model(), description="what is trained; beside a command a description, from which memory is computed"
    )
    data: Data = Data()
    command: Command | None = Field(default=None, description="your own training code, in place of model and data")
    training: Training = Training()
    bounds: Bounds = Bounds()
    prices: Prices = Prices()
    objective: Objective = Field(
        default="balanced", description="minimise time × cost, cost or time, or the cost subject to the deadline"
    )
    deadline: Seconds | None = Field(default=None, gt=0, description="for objective: deadline, such as 4h")
    deploy: Deploy = Deploy()

    @model_validator(mode="after")
    def _check_deadline(self) -> Job:
        if self.objective == "deadline" and self.deadline is None:
            raise ValueError("objective deadline needs a `deadline`, such as 4h")
        if self.objective == "deadline" and self.samples is None:
            raise ValueError(
                "objective deadline needs `training.samples`, since a command does not say how many it trains"
            )
        return self

    @model_validator(mode="after")
    def _command_alone(self) -> Job:
        without_ps = self.bounds.ps.replicas == NO_REPLICAS
        if self.command is None:
            if without_ps:
                raise ValueError("bounds.ps.replicas is 0, but a built-in model needs at least 1 PS for its tables")
            if self.bounds.worker.gpu and self.training.device != "cuda":
                raise ValueError("bounds.worker.gpu needs training.device: cuda, since workers compute on the CPU else")
            if self.bounds.loaders or self.training.loaders:
                raise ValueError("loaders are for a command with {loaders}; a built-in model reads with its workers")
            if self.data.format != "synthetic" and set(self.model.tables.poolings) != {1}:
                raise ValueError("model.tables.pooling needs data.format: synthetic, since a log has one id per column")
            return self
        if "data" in self.model_fields_set:  # as in older dumps, which have the default model of a command, too
            if self.data != Data():
                raise ValueError("a job with a command has no `data`: its code has its own")
            self.model_fields_set.difference_update({"data"} | ({"model"} if self.model == Model() else set()))
        if not self.model.tables.known:
            raise ValueError("model.tables.rows: from-data needs `data`, which a command reads itself")
        asks_for_ps = "ps" in self.bounds.model_fields_set and self.bounds.ps != Bounds().ps and not without_ps
        if asks_for_ps and not self.command.may_have_ps:
            raise ValueError("bounds.ps is for commands with PS: set command.rendezvous to tf_config or hosts")
        if self.command.processes == "gpu" and not self.bounds.worker.gpu:
            raise ValueError("command.processes is gpu, so bounds.worker.gpu must say how many GPUs a worker has")
        if self.bounds.batch_size and not self.command.takes_batch_size:
            raise ValueError("bounds.batch_size needs {batch_size} in the command")
        for key, asked in (("bounds.loaders", self.bounds.loaders), ("training.loaders", self.training.loaders)):
            if asked and not self.command.takes_loaders:
                raise ValueError(f"{key} needs {{loaders}} in the command")
        return self

    @model_validator(mode="after")
    def _check_global_batch(self) -> Job:
        if self.training.global_batch_size is None:
            return self
        if self.bounds.batch_size:
            raise ValueError("bounds.batch_size is for a batch per worker, and training.global_batch_size fixes it")
        gpu = self.bounds.worker.gpu
        if self.command and self.command.processes == "gpu" and gpu and gpu.count[0] != gpu.count[1]:
            raise ValueError("training.global_batch_size with processes: gpu needs one number in bounds.worker.gpu")
        if not self.worker_counts:
            raise ValueError(self._why_no_worker_counts())
        return self

    def batch_size_for(self, workers: int) -> int:
        """Return the samples per step of one of so many workers."""
        total = self.training.global_batch_size
        return self.training.batch_size if total is None else max(1, total // max(1, self._sharers(workers)))

    def splits_batch(self, workers: int) -> bool:
        """Return whether so many workers can share the global batch evenly; without one, any number can."""
        total = self.training.global_batch_size
        return total is None or (workers > 0 and total % self._sharers(workers) == 0)

    def _sharers(self, workers: int) -> int:
        """Return who shares a global batch: the ranks of the workers, and the chief of a command without PS."""
        if self.command is None:
            return workers
        gpus = self.bounds.worker.gpu.count[0] if self.bounds.worker.gpu else 0
        return workers * self.command.processes_of(gpus) + bool(self.command.chief and not self.has_ps)

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """The numbers of workers within the bounds that can share a global batch evenly."""
        low, high = self.bounds.worker.replicas
        return tuple(workers for workers in range(low, high + 1) if self.splits_batch(workers))

    def shared_batch(self) -> dict[int, int] | None:
        """Return the batch per worker of each of `worker_counts`, or None without a global batch.

        Raises JobError if there are none, which later limits of the bounds may cause.
        """
        if self.training.global_batch_size is None:
            return None
        if not self.worker_counts:
            raise JobError(f"{self._why_no_worker_counts()}.", "Change one of the two.")
        return {workers: self.batch_size_for(workers) for workers in self.worker_counts}

    def _why_no_worker_counts(self) -> str:
        """Return the sentence that no number of workers within the bounds shares the global batch, and which would."""
        low, high = self.bounds.worker.replicas
        fitting = [workers for workers in range(1, MAX_REPLICAS + 1) if self.splits_batch(workers)]
        below = [workers for workers in fitting if workers < low][-3:]
        above = [workers for workers in fitting if workers > high][:3]
        counts = format_count(low, "worker") if low == high else f"any number of workers from {low} to {high}"
        return (
            f"training.global_batch_size {self.training.global_batch_size:,} cannot be shared evenly by {counts} "
            f"(bounds.worker.replicas), but by {', '.join(map(str, below + above))}"
        )

    def check_workers(self, workers: int) -> None:
        """Raise InputError if so many workers cannot share the global batch evenly."""
        if not self.splits_batch(workers):
            counts = ", ".join(map(str, self.worker_counts))
            raise InputError(
                f"{format_count(workers, 'worker')} cannot share training.global_batch_size "
                f"{self.training.global_batch_size:,} evenly.",
                f"Of the numbers within the bounds, these can: {counts}.",
            )

    def with_shared_batch(self, allocation: Allocation) -> Allocation:
        """Return the allocation with the workers' share of the global batch, if there is one."""
        if self.training.global_batch_size is None:
            return allocation
        return allocation.model_copy(update={"batch_size": self.batch_size_for(allocation.replicas("worker"))})

    def gpus_on(self, host: HostKind) -> int:
        """Return the GPUs of a host that a worker may use: all of them, or 0 if the bounds name another kind."""
        wanted = self.bounds.worker.gpu
        if host.gpu is None or (
            wanted and ANY_GPU not in (wanted.kind, host.gpu.kind) and not same_kind(wanted.kind, host.gpu.kind)
        ):
            return 0
        return host.gpu.count

    def loaders_at(self, allocation: Allocation) -> int:
        """Return the loader processes of a worker at an allocation."""
        return self.training.loaders if allocation.loaders is None else allocation.loaders

    def check_trainable(self) -> None:
        """Raise JobError if the built-in engine cannot train the tables as they are described."""
        if self.command is None and (beyond := self.model.beyond_engine):
            raise JobError(
                f"{self.name} has {beyond}, but the built-in engine only trains float32 tables with model.optimizer "
                "and whole numbers of ids a sample.",
                "Leave model.tables.dtype and model.tables.optimizer out and round model.tables.pooling, or train your "
                "own code as a command.",
            )

    @property
    def describes_tables(self) -> bool:
        """Return whether the tables are known: always without a command, else by the description beside it."""
        return self.command is None or "model" in self.model_fields_set

    @model_serializer(mode="wrap")
    def _drop_what_is_unknown(self, handler: Any):  # type: ignore[no-untyped-def]  # a type would replace the schema
        data: dict[str, Any] = handler(self)
        unknown = set() if self.command is None else {"data"} | ({"model"} if not self.describes_tables else set())
        return {name: value for name, value in data.items() if name not in unknown}

    @property
    def samples(self) -> int | None:
        """Total samples to train; None for a command whose number of samples is unknown."""
        return self.training.samples or (None if self.command else _CRITEO_SAMPLES)

    def samples_left(self, trained: int) -> int | None:
        """Return the samples still to be trained after `trained` samples; None where the total is unknown."""
        return None if self.samples is None else max(0, self.samples - trained)

    @property
    def has_ps(self) -> bool:
        """Return whether the job has parameter servers."""
        return self.command is None or (self.command.may_have_ps and self.bounds.ps.replicas != NO_REPLICAS)

    @classmethod
    def load(cls, path: str | Path) -> Job:
        """Read a job file; its relative paths count from its folder. Raises JobError for an invalid file."""
        return parse(cls, load_yaml(path, "job"), str(path)).with_absolute_path(folder_of(path))

    @property
    def hash(self) -> str:
        """Twelve hex digits for what is trained and how; name, samples, bounds, prices and folders do not count."""
        return self.hashes[0]

    @property
    def hashes(self) -> tuple[str, ...]:
        """Its hash, and the one under which an older Sizewright kept its trials, where that is another."""
        return hashes(self)

    def known_as(self, key: str) -> Job | None:
        """The job that had this hash when its description was written; None where that was another job."""
        tables = self.model.tables
        described = [self]
        if tables.rows == "criteo-kaggle":
            first = tables.model_copy(update={"rows": FIRST_CRITEO_ROWS})
            described.append(self.model_copy(update={"model": self.model.model_copy(update={"tables": first})}))
        return next((job for job in described if key in job.hashes), None)

    def with_sides(self, allocation: Allocation) -> Allocation:
        """Return the allocation with the chief and the evaluator of the command."""
        command = self.command
        sides = {"chief": command.chief, "evaluator": command.evaluator} if command else {}
        groups = {
            role: (Group(replicas=1, cpu=side.cpu, memory_bytes=side.memory_bytes),)
            for role, side in sides.items()
            if side and not allocation.replicas(role)  # type: ignore[arg-type]
        }
        return allocation.model_copy(update=groups)

    def with_gpu_kind(self, allocation: Allocation) -> Allocation:
        """Return the allocation with GPUs of the kind that the bounds name."""
        gpu = self.bounds.worker.gpu
        if gpu is None:
            return allocation
        groups = tuple(
            group.model_copy(update={"gpu": group.gpu.model_copy(update={"kind": gpu.kind})}) if group.gpu else group
            for group in allocation.worker
        )
        return allocation.model_copy(update={"worker": groups})

    def with_absolute_path(self, folder: str | Path = "") -> Job:
        """Return the job with absolute paths; relative ones count from `folder`, or from the working folder."""
        if self.command:
            command = self.command.model_copy(update={"folder": absolute(self.command.folder, folder)})
            return self.model_copy(update={"command": command})
        if not self.data.path:
            return self
        data = self.data.model_copy(update={"path": absolute_pattern(self.data.path, folder)})
        return self.model_copy(update={"data": data})

    def with_data(self, path: str | Path) -> Job:
        """Return the job with a click log, relative to the working folder, instead of its own data."""
        data = self.data.model_dump() | {"format": "criteo", "path": absolute_pattern(path)}
        return self.model_copy(update={"data": Data.model_validate(data)})

    def with_rows(self, rows: tuple[int, ...]) -> Job:
        """Return the job with counted tables."""
        tables = self.model.tables.model_copy(update={"counted": rows})
        return self.model_copy(update={"model": self.model.model_copy(update={"tables": tables})})

    def with_settings(self, known: Mapping[str, str]) -> Job:
        """Return the job with these values for variables of its command; unknown names are ignored."""
        if not self.command:
            return self
        env = {name: known.get(name, value) for name, value in self.command.env.items()}
        return self.model_copy(update={"command": self.command.model_copy(update={"env": env})})

    def with_samples(self, samples: int) -> Job:
        """Return the job with another number of samples."""
        return self.model_copy(update={"training": self.training.model_copy(update={"samples": samples})})

    def with_batch_size(self, batch_size: int) -> Job:
        """Return the job with another batch size per worker."""
        return self.model_copy(update={"training": self.training.model_copy(update={"batch_size": batch_size})})

    def with_objective(self, objective: str | None, deadline: str | None = None) -> Job:
        """Return the job with another objective, deadline, or both. Raises JobError for invalid ones."""
        change = {"objective": objective or "deadline"} | ({"deadline": deadline} if deadline else {})
        changed = parse(Job, self.model_dump(by_alias=True) | change, OPTIONS)
        return changed.model_copy(update={"command": self.command, "deploy": self.deploy})  # dumps withhold secrets
