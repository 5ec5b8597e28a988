"""Arguments and options that several verbs share, with the same name and help everywhere."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Optional

import typer

from sizewright.cli.choices import EXECUTOR_GROUP, EXECUTORS, MODEL_GROUP, MODELS, POLICIES, POLICY_GROUP, among, named
from sizewright.cli.output import Format, RecommendationFormat
from sizewright.settings import EnvironmentSettings

_VARIABLES = EnvironmentSettings.variables()


def read_count(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers such as 4.5e7, 45M or 45,000,000."""

    def read(text: str) -> int:
        from sizewright.spec.units import parse_count

        value = parse_count(text)
        if value < minimum or (maximum is not None and value > maximum):
            limit = f"at least {minimum:,}" if value < minimum else f"at most {maximum:,}"
            raise ValueError(f"must be {limit}, got {value:,}")
        return value

    return read


def read_seconds(minimum: float = 0.0) -> Callable[[str], float]:
    """Return a parser of durations such as 90, 90s, 5m or 1h30m."""

    def read(text: str) -> float:
        from sizewright.spec.units import parse_seconds

        value = parse_seconds(text)
        if value < minimum:
            raise ValueError(f"must be at least {minimum:g} s, got {value:g}")
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


def _setting_option(option: str, metavar: str, setting: str) -> Any:
    """Return an option whose default is a variable of the environment, with the meaning of that variable."""
    variable = _VARIABLES[setting]
    return typer.Option(option, metavar=metavar, help=variable.meaning, envvar=variable.name)


Text = Optional[str]  # noqa: UP045 (typer reads it at run time)
Count = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045

POLICY_HELP = (
    f"The allocation policy: {named(POLICIES)}, or one of your own. To simulate several: a list with commas, or `all`."
)
EXECUTOR_HELP = (
    f"The executor that carries out the plan: {', '.join(EXECUTORS)}, or one of your own. "
    "The TFJobs of kubeflow and PyTorchJobs are legacy."
)

SEEDS_HELP = "Number of runs, each with a different random seed."

JobFile = Annotated[str, typer.Argument(metavar="JOB", help="The job file (sizewright init writes one).")]
Output = Annotated[Format, typer.Option("-o", "--output", help="Format of the result.")]
RecommendationOutput = Annotated[RecommendationFormat, typer.Option("-o", "--output", help="Format of the result.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the decision, but change nothing.")]
Out = Annotated[
    Text,
    typer.Option(
        "--out",
        metavar="PATH",
        help="Write the output to this file, in the format of its name (.yaml, .json), or into this folder.",
    ),
]
Store = Annotated[Text, _setting_option("--store", "FILE_OR_URL", "store")]
TrialsFile = Annotated[
    Text,
    typer.Option(
        "--trials", metavar="FILE", help="Use the trials in this CSV, JSON or Parquet file instead of the store."
    ),
]
ColumnMap = Annotated[
    Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
    typer.Option(
        "--map",
        metavar="THEIRS=OURS",
        help="Map a column of the file to a column of Sizewright, such as samples_per_sec=throughput, or in a trace "
        "runtime=duration_s; `note=` leaves a column out. Repeatable.",
    ),
]
DescribedBy = Annotated[
    Text,
    typer.Option(
        "--job", metavar="FILE", help="Job file that describes the imported data if the data itself does not."
    ),
]
ClusterFile = Annotated[Text, typer.Option("--cluster", metavar="FILE", help="The cluster file: hosts and quota.")]
Machine = Annotated[
    Text, typer.Option("--machine", metavar="KIND", help="Use only this kind of hosts. Default: the best of all.")
]
Spot = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option("--spot/--on-demand", help="Use spot hosts only, or none. Default: whichever is better."),
]
RayAddress = Annotated[
    Text, typer.Option("--address", metavar="HOST:PORT", help="Address of a running Ray cluster. Default: this host.")
]
Prior = Annotated[
    Text,
    typer.Option(
        "--prior",
        metavar="PRIOR",
        help="A prior learned from other jobs: `shipped`, or a file written by `bank learn`.",
    ),
]
BankFolder = Annotated[
    Text,
    typer.Option("--bank", metavar="FOLDER", help="A folder written by `bank measure`. Default: the shipped bank."),
]
Extrapolate = Annotated[bool, typer.Option("--extrapolate", help="Allow allocations beyond twice the measured range.")]
executors = among(EXECUTORS, EXECUTOR_GROUP)
policies = among(POLICIES, POLICY_GROUP)
Executor = Annotated[Text, typer.Option("--executor", metavar="NAME", help=EXECUTOR_HELP, autocompletion=executors)]
MixGpus = Annotated[bool, typer.Option("--mix-gpus", help="Allow several kinds of GPUs in one job.")]


class ObjectiveName(str, Enum):
    """The objective that a recommendation minimises."""

    balanced = "balanced"
    cost = "cost"
    time = "time"
    deadline = "deadline"


Objective = Annotated[
    Optional[ObjectiveName],  # noqa: UP045
    typer.Option("--objective", case_sensitive=False, help="The objective to minimise. Default: the job's own."),
]
Deadline = Annotated[
    Text,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="Minimise the cost such that the deadline, such as 4h, is met with a probability of 0.9.",
    ),
]
Samples = Annotated[
    Count,
    typer.Option(
        "--samples", metavar="N", parser=read_count(1), help="Number of samples to train. Default: the job's own."
    ),
]
Workers = Annotated[Count, typer.Option("--workers", metavar="N", parser=read_count(1), help="Number of workers.")]
Servers = Annotated[Count, typer.Option("--ps", metavar="N", parser=read_count(1), help="Number of PS.")]
WorkerCpu = Annotated[Text, typer.Option("--worker-cpu", help="Cores of each worker: 2, 0.5 or 500m.")]
PsCpu = Annotated[Text, typer.Option("--ps-cpu", help="Cores of each PS.")]
WorkerGpu = Annotated[Count, typer.Option("--worker-gpu", metavar="N", parser=read_count(0), help="GPUs of a worker.")]
WorkerMemory = Annotated[Text, typer.Option("--worker-memory", help="Memory of each worker, such as 2Gi.")]
PsMemory = Annotated[Text, typer.Option("--ps-memory", help="Memory of each PS.")]
Model = Annotated[
    Text,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The throughput model to use (see `sizewright models list`).",
        autocompletion=among(MODELS, MODEL_GROUP),
    ),
]
Base = Annotated[
    Text,
    typer.Option(
        "--base", metavar="FILE", help="A manifest or script of your own, in which only the sizes are changed."
    ),
]
Roles = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--role", metavar="ROLE=NAME", help="Name of a role in the manifest, such as ps=pserver. Repeatable."),
]
RailsFile = Annotated[Text, _setting_option("--rails", "FILE", "rails")]
LedgerFile = Annotated[Text, _setting_option("--ledger", "FILE", "ledger")]
DecisionsFile = Annotated[
    Text, typer.Option("--decisions", metavar="FILE", help="Write every decision to this file, as JSON lines.")
]
DataPath = Annotated[
    Text,
    typer.Option(
        "--data",
        metavar="PATH",
        help="A click log (text or Parquet), or a glob of several. Default: the job's own data.",
    ),
]
Tracking = Annotated[Text, _setting_option("--tracking-uri", "URI", "tracking_uri")]
MetricsPortNumber = Annotated[
    Count,
    typer.Option(
        "--metrics-port",
        min=1,
        max=65535,
        help="Serve metrics of the job and its control loop to Prometheus on this port.",
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", metavar="HOST", help="Address on which metrics are served; 0.0.0.0 for all.")
]

KubeContext = Annotated[
    Text, typer.Option("--context", help="Context of your kubeconfig. Default: its current context.")
]


def manifest_options(base: str | None, roles: list[str] | None) -> dict[str, object]:
    """Return the options of an executor that sizes a user's manifest. Raises InputError for a malformed role."""
    from sizewright.errors import InputError

    mapped = {}
    for text in roles or []:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise InputError(f"--role {text} is not of the form ROLE=NAME.", "Write for example --role ps=pserver.")
        mapped[role] = name
    return {name: value for name, value in {"base": base, "roles": mapped}.items() if value}
