"""Arguments and options that several verbs share: what is the same has the same name and help everywhere."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Optional

import typer

from sizewright.cli.choices import EXECUTOR_GROUP, EXECUTORS, MODEL_GROUP, MODELS, POLICIES, POLICY_GROUP, among, named
from sizewright.cli.output import Format


def read_count(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers as files have them: 4.5e7, 45M or 45,000,000."""

    def read(text: str) -> int:
        from sizewright.spec.units import parse_count

        value = parse_count(text)
        if value < least or (most is not None and value > most):
            limit = f"at least {least:,}" if value < least else f"at most {most:,}"
            raise ValueError(f"must be {limit}, got {value:,}")
        return value

    return read


def read_seconds(least: float = 0.0) -> Callable[[str], float]:
    """Return a reader of durations as files have them: 90, 90s, 5m or 1h30m."""

    def read(text: str) -> float:
        from sizewright.spec.units import parse_seconds

        value = parse_seconds(text)
        if value < least:
            raise ValueError(f"must be at least {least:g} s, got {value:g}")
        return value

    return read


def read_days(text: str) -> float:
    """Read a duration as days: 30d, 36h, or a plain number of days."""
    from sizewright.spec.units import parse_number, parse_seconds

    try:
        value = parse_number(text)
    except ValueError:
        return parse_seconds(text) / 86400
    if value < 0:
        raise ValueError(f"must be at least 0, got {value:g}")
    return value


Text = Optional[str]  # noqa: UP045 (typer reads it at run time)
Count = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045

POLICY_HELP = f"{named(POLICIES)}, or one of your own; to simulate several, commas between, or `all`."
EXECUTOR_HELP = f"What carries the plan out: {', '.join(EXECUTORS)}, or one of your own."

SEEDS_HELP = "So many times, with other draws each time."

JobFile = Annotated[str, typer.Argument(metavar="JOB", help="The job file (sizewright init writes one).")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to print the result.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Decide and tell, but change nothing.")]
Out = Annotated[
    Text,
    typer.Option(
        "--out",
        metavar="PATH",
        help="Write it to this file, as its name says (.yaml, .json), or into this folder.",
    ),
]
Store = Annotated[
    Text,
    typer.Option(
        "--store", metavar="FILE_OR_URL", help="Trial store: a file or an SQLAlchemy URL.", envvar="SIZEWRIGHT_STORE"
    ),
]
TrialsFile = Annotated[
    Text, typer.Option("--trials", metavar="FILE", help="A CSV, JSON or Parquet file of trials instead of the store.")
]
ColumnMap = Annotated[
    Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
    typer.Option(
        "--map",
        metavar="THEIRS=OURS",
        help="A column of the file and what it is here: samples_per_sec=throughput, in a trace runtime=duration_s; "
        "`note=` leaves one out. May be given again.",
    ),
]
DescribedBy = Annotated[
    Text,
    typer.Option(
        "--job", metavar="FILE", help="The job file that describes what is brought along, where that does not."
    ),
]
ClusterFile = Annotated[Text, typer.Option("--cluster", metavar="FILE", help="Cluster file: hosts and quota.")]
RayAddress = Annotated[
    Text, typer.Option("--address", metavar="HOST:PORT", help="Of a running Ray cluster, instead of this host.")
]
Prior = Annotated[
    Text,
    typer.Option(
        "--prior",
        metavar="PRIOR",
        help="A prior learned from other jobs: `shipped`, or a file that `bank learn` wrote.",
    ),
]
BankFolder = Annotated[
    Text,
    typer.Option("--bank", metavar="FOLDER", help="A folder that `bank measure` wrote, instead of the shipped bank."),
]
Extrapolate = Annotated[bool, typer.Option("--extrapolate", help="Allow choices beyond twice the measured range.")]
executors = among(EXECUTORS, EXECUTOR_GROUP)
policies = among(POLICIES, POLICY_GROUP)
Executor = Annotated[Text, typer.Option("--executor", metavar="NAME", help=EXECUTOR_HELP, autocompletion=executors)]
MixGpus = Annotated[bool, typer.Option("--mix-gpus", help="Let one job have several kinds of GPUs.")]


class ObjectiveName(str, Enum):
    """What a choice is to be best at."""

    balanced = "balanced"
    cost = "cost"
    time = "time"
    deadline = "deadline"


Objective = Annotated[
    Optional[ObjectiveName],  # noqa: UP045
    typer.Option("--objective", case_sensitive=False, help="Instead of the job's own."),
]
Deadline = Annotated[
    Text, typer.Option("--deadline", metavar="TIME", help="Such as 4h: the least cost that meets it nine times of ten.")
]
Samples = Annotated[
    Count, typer.Option("--samples", metavar="N", parser=read_count(1), help="Train so many, not the job's own.")
]
Model = Annotated[
    Text,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A throughput model (`sizewright models list`) in place of the default one.",
        autocompletion=among(MODELS, MODEL_GROUP),
    ),
]
Base = Annotated[
    Text,
    typer.Option("--base", metavar="FILE", help="A manifest or script of your own: only its sizes are changed."),
]
Roles = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--role", metavar="ROLE=NAME", help="What the manifest calls a role, such as ps=pserver; may be given again."
    ),
]
RailsFile = Annotated[
    Text,
    typer.Option("--rails", metavar="FILE", help="Guard rails that plans are held to.", envvar="SIZEWRIGHT_RAILS"),
]
LedgerFile = Annotated[
    Text,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help="Where plans are recorded, with who asked for them.",
        envvar="SIZEWRIGHT_LEDGER",
    ),
]
DecisionsFile = Annotated[
    Text, typer.Option("--decisions", metavar="FILE", help="Keep every decision in this file, as JSON lines.")
]
DataPath = Annotated[
    Text,
    typer.Option(
        "--data",
        metavar="PATH",
        help="A click log (text or Parquet) or a glob of them, instead of the job's own data.",
    ),
]
Tracking = Annotated[
    Text,
    typer.Option(
        "--tracking-uri",
        metavar="URI",
        help="MLflow server, or sqlite:///FILE, of the learned priors.",
        envvar="SIZEWRIGHT_TRACKING_URI",
    ),
]
MetricsPortNumber = Annotated[
    Count,
    typer.Option("--metrics-port", min=1, max=65535, help="Tell a Prometheus of the job and its loop on this port."),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", metavar="HOST", help="Address of that port; 0.0.0.0 for all.")
]


def of_base(base: str | None, roles: list[str] | None) -> dict[str, object]:
    """Options of an executor that sizes a manifest of the user's. Raises InputError for a role without a name."""
    from sizewright.errors import InputError

    mapped = {}
    for text in roles or []:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise InputError(f"--role {text} names no role.", "Write ROLE=NAME, such as --role ps=pserver.")
        mapped[role] = name
    return {name: value for name, value in {"base": base, "roles": mapped}.items() if value}
