"""The user's own training code: the command, how its replicas find each other, and how it reports progress."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_serializer, field_validator, model_validator

from sizewright.formatting import GIB
from sizewright.redaction import HIDDEN
from sizewright.spec._base import Record
from sizewright.spec._shorthand import Shorthand
from sizewright.spec.units import Bytes, Cores, Count, Seconds
from sizewright.spec.withheld import Words, check_words, with_values, written_value

Rendezvous = Literal["torchrun", "tf_config", "hosts"]
PLACEHOLDERS = ("batch_size", "samples", "loaders", "workers", "ps", "cores", "role", "index")
COUNTED = ("samples", "steps", "more")
"""Group names of a pattern: all samples so far, all steps so far, samples since the previous line."""


def _split(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


class Progress(Record):
    """The source of throughput measurements."""

    source: Literal["log_samples", "json", "regex"] = Field(
        default="log_samples", description="calls of sizewright.log_samples, or lines of standard output"
    )
    pattern: str | None = Field(default=None, description="for regex: with a group named samples, steps or more")
    counts: Literal["replica", "job"] = Field(
        default="replica",
        description="json, regex: whether each replica counts its own samples, or those of the whole job",
    )

    @property
    def log_counts_job(self) -> bool:
        """True if each replica's own log counts the samples of the whole job; `log_samples` counts those of one."""
        return self.counts == "job" and self.source != "log_samples"

    @model_validator(mode="after")
    def _has_pattern(self) -> Progress:
        if (self.source == "regex") != (self.pattern is not None):
            raise ValueError("a pattern goes with source regex, and source regex needs one")
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groupindex
            except re.error as error:
                raise ValueError(f"the pattern is not a regular expression: {error}") from None
            if len(groups.keys() & set(COUNTED)) != 1:
                raise ValueError(f"the pattern needs exactly one group named {', '.join(COUNTED)}: (?P<samples>...)")
        return self


# `json` stands for `{source: json}`.
_BY_SOURCE = Shorthand(
    expand=lambda value: {"source": value} if isinstance(value, str) else value, short=lambda _: {"type": "string"}
)


class Side(Record):
    """A chief or an evaluator, whose number and size are not optimised."""

    cpu: Cores = Field(default=0.5, gt=0, description="of the replica")
    memory_bytes: Bytes = Field(
        default=GIB, ge=0, validation_alias="memory", serialization_alias="memory", description="of the replica"
    )

    model_config = Record.model_config | {"populate_by_name": True}


class Command(Record):
    """A command that is started once for each replica of each role, in place of a built-in model family.

    In the words of `run`, and in the values of `env`, {batch_size}, {samples}, {loaders}, {workers}, {ps}, {cores},
    {role} and {index} are replaced; the environment has them too, as SIZEWRIGHT_BATCH_SIZE and so on.

    Dumps of this record contain no secrets and no values of `env` (`sizewright.spec.withheld`).
    """

    run: Annotated[Words, BeforeValidator(_split)] = Field(description="words of a command, or one string")
    rendezvous: Rendezvous = Field(
        default="torchrun",
        description="how replicas find each other: torchrun's variables (workers only), TF_CONFIG, "
        "or PS_HOSTS, WORKER_HOSTS, JOB_NAME and TASK_INDEX",
    )
    processes: Annotated[Count, Field(ge=1, le=1000)] | Literal["gpu"] = Field(
        default=1, description="torchrun: ranks that each worker starts; gpu: one for each GPU of the worker"
    )
    chief: Side | None = None
    evaluator: Side | None = None
    env: dict[str, str] = Field(
        default={},
        repr=False,
        json_schema_extra={"additionalProperties": {"type": ["string", "null"]}},
        description="variables to add to its environment; one without a value is taken from where the command starts",
    )
    folder: str = Field(default=".", description="where it runs; relative to the job file")
    progress: Annotated[Progress, _BY_SOURCE] = Progress()
    start_s: Seconds = Field(default=180.0, gt=0, description="time limit for its first report")
    silent_s: Seconds = Field(
        default=60.0, gt=0, description="time limit between reports, after which it counts as hung"
    )
    grace_s: Seconds = Field(
        default=10.0, ge=0, description="from SIGTERM, at which it may write a checkpoint, to SIGKILL"
    )

    @model_validator(mode="after")
    def _fits(self) -> Command:
        if not self.run or not self.run[0]:
            raise ValueError("run is empty; write the command of a replica, such as: python train.py")
        if self.rendezvous == "torchrun" and self.chief:
            raise ValueError("torchrun has no chief: rank 0 is one; use rendezvous tf_config or hosts")
        if self.processes != 1 and self.rendezvous != "torchrun":
            raise ValueError(f"processes is {self.processes}, but only ranks of rendezvous torchrun can share a worker")
        if self.processes != 1 and self.progress.source != "log_samples" and self.progress.counts == "replica":
            raise ValueError(
                f"processes is {self.processes}, and the ranks of a worker share one log, which mixes their counts: "
                "call log_samples, or set progress.counts to job"
            )
        return self

    @field_validator("env", mode="before")
    @classmethod
    def _name_alone(cls, env: Any) -> Any:
        return {k: HIDDEN if v is None else v for k, v in env.items()} if isinstance(env, Mapping) else env

    @field_serializer("env")
    def _written_env(self, env: dict[str, str]) -> dict[str, str]:
        return {name: written_value(name, value) for name, value in env.items()}

    def with_values(self, environ: Mapping[str, str]) -> Command:
        """Return the command ready to start: values that its record withholds are taken from `environ`.

        Raises InputError for values that are missing there, and for words from which a secret was removed.
        """
        check_words("command.run", self.run)
        return self.model_copy(update={"env": with_values(self.env, environ)})

    def processes_of(self, gpus: int) -> int:
        """Return the number of ranks that a worker starts that has `gpus`, a number of GPUs."""
        return max(1, gpus) if self.processes == "gpu" else self.processes

    @property
    def may_have_ps(self) -> bool:
        """Return whether the rendezvous supports parameter servers."""
        return self.rendezvous != "torchrun"

    @property
    def takes_batch_size(self) -> bool:
        """Return whether the batch size is passed to the command."""
        return self._takes("batch_size")

    @property
    def takes_samples(self) -> bool:
        """Return whether the number of samples is passed to the command."""
        return self._takes("samples")

    @property
    def takes_loaders(self) -> bool:
        """Return whether the number of loader processes is passed to the command."""
        return self._takes("loaders")

    def _takes(self, name: str) -> bool:
        return any(f"{{{name}}}" in text for text in (*self.run, *self.env.values()))
