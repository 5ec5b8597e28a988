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
MOST_SAMPLES = 10**18
Objective = Literal["balanced", "cost", "time", "deadline"]


def _device(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"cuda:\d+|gpus?(:\d+)?", value.strip(), re.IGNORECASE):
        raise ValueError(f"must be cpu or cuda, got {value!r} (write cuda: each replica is given a GPU of its own)")
    return value


DEVICE = BeforeValidator(_device)


class Data(Record):
    """Where samples come from."""

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
    """How it is trained."""

    batch_size: BatchSize = Field(default=512, description="samples per step of one worker")
    samples: Count | None = Field(
        default=None, ge=1, le=MOST_SAMPLES,
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
    """Currency per hour."""

    core_hour: Number = Field(default=1.0, ge=0, description="of a core")
    gib_hour: Number = Field(default=0.13, ge=0, description="of a GiB of memory")
    gpu_hour: Number = Field(default=10.0, ge=0, description="of a GPU")


class Deploy(Record):
    """What a manifest needs to know of the container; used by executors that render one."""

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
    """A training job as its submitter describes it."""

    name: Annotated[str, JOB_NAME] = Field(default="job", description="small letters, digits, hyphens")
    model: Model = Model()
    data: Data = Data()
    command: Command | None = Field(default=None, description="your own training code, in place of model and data")
    training: Training = Training()
    bounds: Bounds = Bounds()
    prices: Prices = Prices()
    objective: Objective = Field(
        default="balanced", description="least time × cost, cost, or time; or least cost that meets the deadline"
    )
    deadline: Seconds | None = Field(default=None, gt=0, description="for objective: deadline, such as 4h")
    deploy: Deploy = Deploy()

    @model_validator(mode="after")
    def _deadline_given(self) -> Job:
        if self.objective == "deadline" and self.deadline is None:
            raise ValueError("objective deadline needs a `deadline`, such as 4h")
        if self.objective == "deadline" and self.samples is None:
            raise ValueError("objective deadline needs `training.samples`, since the command's are unknown")
        return self

    @model_validator(mode="after")
    def _command_alone(self) -> Job:
        without_ps = self.bounds.ps.replicas == NO_REPLICAS
        if self.command is None:
            if without_ps:
                raise ValueError("bounds.ps.replicas is 0, and a built-in model keeps its tables on at least 1 PS")
            return self
        for key in ("model", "data"):
            if key in self.model_fields_set and getattr(self, key) != type(getattr(self, key))():
                raise ValueError(f"a job with a command has no `{key}`: its code has its own")
        asks_for_ps = "ps" in self.bounds.model_fields_set and self.bounds.ps != Bounds().ps and not without_ps
        if asks_for_ps and not self.command.may_have_ps:
            raise ValueError("bounds.ps is for commands with PS: set command.rendezvous to tf_config or hosts")
        if self.bounds.batch_size and not self.command.takes_batch_size:
            raise ValueError("bounds.batch_size needs {batch_size} in the command")
        return self

    @property
    def samples(self) -> int | None:
        """Samples to train in all; None where a command trains a number that nobody said."""
        return self.training.samples or (None if self.command else _CRITEO_SAMPLES)

    def samples_left(self, trained: int) -> int | None:
        """Samples still to be trained after so many, where that is known."""
        return None if self.samples is None else max(0, self.samples - trained)

    @property
    def has_ps(self) -> bool:
        """Whether there are parameter servers."""
        return self.command is None or (self.command.may_have_ps and self.bounds.ps.replicas != NO_REPLICAS)

    @classmethod
    def load(cls, path: str | Path) -> Job:
        """Read a job file; relative paths in it count from its folder. Raises JobError with one sentence for every
        mistake."""
        return parse(cls, load_yaml(path, "job"), str(path)).with_absolute_path(folder_of(path))

    @property
    def hash(self) -> str:
        """Twelve hex digits of what is trained and how; name, samples, bounds, prices and folders do not count."""
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
        """The allocation with the chief and the evaluator that the command has."""
        command = self.command
        sides = {"chief": command.chief, "evaluator": command.evaluator} if command else {}
        groups = {
            role: (Group(replicas=1, cpu=side.cpu, memory_bytes=side.memory_bytes),)
            for role, side in sides.items()
            if side and not allocation.replicas(role)  # type: ignore[arg-type]
        }
        return allocation.model_copy(update=groups)

    def with_absolute_path(self, folder: str | Path = "") -> Job:
        """The same job for processes that run in another folder; relative paths count from `folder`, or from here."""
        if self.command:
            command = self.command.model_copy(update={"folder": absolute(self.command.folder, folder)})
            return self.model_copy(update={"command": command})
        if not self.data.path:
            return self
        data = self.data.model_copy(update={"path": absolute_pattern(self.data.path, folder)})
        return self.model_copy(update={"data": data})

    def with_data(self, path: str | Path) -> Job:
        """The same job over a click log, relative to here, instead of its own data."""
        data = self.data.model_dump() | {"format": "criteo", "path": absolute_pattern(path)}
        return self.model_copy(update={"data": Data.model_validate(data)})

    def with_rows(self, rows: tuple[int, ...]) -> Job:
        """The same job with counted tables."""
        tables = self.model.tables.model_copy(update={"counted": rows})
        return self.model_copy(update={"model": self.model.model_copy(update={"tables": tables})})

    def with_settings(self, known: Mapping[str, str]) -> Job:
        """The same job with these values of variables of its command; others are passed over."""
        if not self.command:
            return self
        env = {name: known.get(name, value) for name, value in self.command.env.items()}
        return self.model_copy(update={"command": self.command.model_copy(update={"env": env})})

    def with_samples(self, samples: int) -> Job:
        """The same job over another number of samples."""
        return self.model_copy(update={"training": self.training.model_copy(update={"samples": samples})})

    def with_batch_size(self, batch_size: int) -> Job:
        """The same job with another batch size per worker."""
        return self.model_copy(update={"training": self.training.model_copy(update={"batch_size": batch_size})})

    def with_objective(self, objective: str | None, deadline: str | None = None) -> Job:
        """The same job with another objective, deadline, or both. Raises JobError for one that cannot be."""
        change = {"objective": objective or "deadline"} | ({"deadline": deadline} if deadline else {})
        changed = parse(Job, self.model_dump(by_alias=True) | change, OPTIONS)
        return changed.model_copy(update={"command": self.command, "deploy": self.deploy})  # which no dump has whole
