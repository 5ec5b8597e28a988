"""The job file: what to train, within which bounds, at what prices, for which objective."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_serializer, model_validator

from sizewright.redaction import without_passwords
from sizewright.spec._base import OPTIONS, Record, load_yaml, parse
from sizewright.spec._paths import absolute, absolute_pattern, folder_of
from sizewright.spec._shorthand import JOB_NAME, NAMESPACE, PLATFORM_NAME
from sizewright.spec.allocation import Allocation, Group
from sizewright.spec.bounds import NO_REPLICAS, BatchSize, Bounds
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


class Training(Record):
    """Training settings."""

    batch_size: BatchSize = Field(default=512, description="samples per step of one worker")
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
    model: Model = Model()
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
            if self.data.format != "synthetic" and set(self.model.tables.poolings) != {1}:
                raise ValueError("model.tables.pooling needs data.format: synthetic, since a log has one id per column")
            return self
        for key in ("model", "data"):
            if key in self.model_fields_set and getattr(self, key) != type(getattr(self, key))():
                raise ValueError(f"a job with a command has no `{key}`: its code has its own")
        asks_for_ps = "ps" in self.bounds.model_fields_set and self.bounds.ps != Bounds().ps and not without_ps
        if asks_for_ps and not self.command.may_have_ps:
            raise ValueError("bounds.ps is for commands with PS: set command.rendezvous to tf_config or hosts")
        if self.command.processes == "gpu" and not self.bounds.worker.gpu:
            raise ValueError("command.processes is gpu, so bounds.worker.gpu must say how many GPUs a worker has")
        if self.bounds.batch_size and not self.command.takes_batch_size:
            raise ValueError("bounds.batch_size needs {batch_size} in the command")
        return self

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
