"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from sizewright.cli.output import Format

JobFile = Annotated[str, typer.Argument(metavar="JOB", help="The job file (sizewright init writes one).")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to print the result.")]
Store = Annotated[
    Optional[str],  # noqa: UP045 (typer reads it at run time)
    typer.Option("--store", help="Trial store: a file or an SQLAlchemy URL.", envvar="SIZEWRIGHT_STORE"),
]
ClusterFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--cluster", help="Cluster file: hosts and quota."),
]
Prior = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--prior", help="A prior learned from other jobs: `shipped`, or a file that `bank learn` wrote."),
]
Model = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--model", help="A throughput model (`sizewright models list`) in place of the default one."),
]
Base = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--base", help="A manifest or script of your own: only its sizes are changed."),
]
RailsFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--rails", help="Guard rails that plans are held to.", envvar="SIZEWRIGHT_RAILS"),
]
LedgerFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--ledger", help="Where plans are recorded, with who asked for them.", envvar="SIZEWRIGHT_LEDGER"),
]
DataPath = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--data", help="A Criteo click log, or a glob of them, instead of the job's own data."),
]
Tracking = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--tracking-uri",
        help="MLflow server, or sqlite:///FILE, of the learned priors.",
        envvar="SIZEWRIGHT_TRACKING_URI",
    ),
]
MetricsPortNumber = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--metrics-port", min=1, max=65535, help="Tell a Prometheus of the job and its loop on this port."),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", help="Address of that port; 0.0.0.0 for all.")]
