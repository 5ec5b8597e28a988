"""`sizewright run`: size a job or load its plan, train it with a live view, and print the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from sizewright.cli.options import (
    ClusterFile,
    DecisionsFile,
    DryRun,
    LedgerFile,
    MetricsHost,
    MetricsPortNumber,
    Output,
    Prior,
    PsCpu,
    PsMemory,
    RailsFile,
    RayAddress,
    Samples,
    Servers,
    Store,
    Text,
    Tracking,
    WorkerCpu,
    WorkerGpu,
    WorkerMemory,
    Workers,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.runtime.tuning import Tuning
    from sizewright.spec import Job, Outcome, Plan

_EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 130}


@examples(
    "sizewright run job.yaml            # size, train and adjust it",
    "sizewright run plan.yaml --folder snapshots --resume snapshots",
    "sizewright run job.yaml --workers 2 --ps 1 --worker-cpu 0.5 --ps-cpu 300m",
)
def run(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN_OR_JOB", help="A plan file, or a job file, which is sized first.")
    ],
    output: Output = Format.table,
    address: RayAddress = None,
    folder: Annotated[Text, typer.Option("--folder", help="Write snapshots to this folder.")] = None,
    resume: Annotated[Text, typer.Option("--resume", help="Resume from the snapshots in this folder.")] = None,
    hang_limit: Annotated[
        float,
        typer.Option(
            "--hang-limit",
            metavar="TIME",
            parser=read_seconds(1.0),
            help="Replace a replica that does not answer for this time. For jobs without a command.",
        ),
    ] = 30.0,
    samples: Samples = None,
    workers: Workers = None,
    ps: Servers = None,
    worker_cpu: WorkerCpu = None,
    worker_gpu: WorkerGpu = None,
    ps_cpu: PsCpu = None,
    worker_memory: WorkerMemory = None,
    ps_memory: PsMemory = None,
    store: Store = None,
    record: Annotated[bool, typer.Option(help="Keep the run in the history of the store.")] = True,
    tune: Annotated[
        Optional[bool],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--tune/--no-tune", help="Adjust the job while it trains. Default: only if this command sized it."
        ),
    ] = None,
    dry_run: DryRun = False,
    decisions: DecisionsFile = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    cluster: ClusterFile = None,
    rails: RailsFile = None,
    ledger: LedgerFile = None,
    metrics: Annotated[
        Text, typer.Option("--metrics", help="Append observed metrics to this file, for replays.")
    ] = None,
    metrics_port: MetricsPortNumber = None,
    metrics_host: MetricsHost = "127.0.0.1",
) -> None:
    """Train a job until all samples are trained.

    A plan is launched as it is. A job file takes sizes, with unlimited memory by default. Without them it is sized
    first, and the job is adjusted while it trains; in a dry run it keeps its first allocation. Exits with 1 if the job
    fails, and with 128 + n if signal n stops it: 130 after Ctrl-C, 143 after SIGTERM.
    """
    import sys
    from contextlib import redirect_stdout

    from sizewright import api
    from sizewright.cli.live import LiveView
    from sizewright.cli.output import show, stderr
    from sizewright.spec import Plan

    sizes = {
        "workers": workers,
        "ps": ps,
        "worker_cpu": worker_cpu,
        "worker_gpu": worker_gpu,
        "ps_cpu": ps_cpu,
        "worker_memory": worker_memory,
        "ps_memory": ps_memory,
    }
    loaded = _plan_or_job(plan, {name: size for name, size in sizes.items() if size is not None})
    job = loaded.job if isinstance(loaded, Plan) else loaded
    options: dict[str, Any] = {"samples": samples, "folder": folder, "resume": resume, "hang_s": hang_limit}
    if address:
        options["address"] = address
    with LiveView(stderr(), samples or job.samples) as view:
        try:
            with redirect_stdout(sys.stderr):  # Ray prints there when a replica dies
                outcome = api.run(
                    loaded,
                    executor="ray" if address else "local",
                    store=store,
                    record=record,
                    tune=_tuning(tune, dry_run, decisions),
                    prior=prior,
                    tracking_uri=tracking_uri,
                    cluster=cluster,
                    rails=rails,
                    ledger=ledger,
                    metrics=metrics,
                    metrics_port=metrics_port,
                    metrics_host=metrics_host,
                    progress=view.progressed,
                    decided=view.on_decision,
                    sized=view.sized,
                    **options,
                )
        except KeyboardInterrupt:
            stderr().print("Stopped before the job trained.")
            raise typer.Exit(_EXIT_CODES["stopped"]) from None
    show(outcome, output, lambda console: _print(console, outcome))
    raise typer.Exit(_EXIT_CODES[outcome.status])


def _plan_or_job(path: str, sizes: dict[str, Any]) -> Plan | Job:
    from sizewright.api import load_job
    from sizewright.runtime.plan_files import is_plan, plan_from_file

    return plan_from_file(path, sizes) if sizes or is_plan(path) else load_job(path)


def _tuning(tune: bool | None, dry_run: bool, decisions: str | None) -> bool | Tuning | None:
    """Return the settings of tuning; None for the default of a plan or a job."""
    from pathlib import Path

    from sizewright.runtime.tuning import Tuning

    if tune is False or not (dry_run or decisions):
        return tune
    return Tuning(dry_run=dry_run, decisions=Path(decisions) if decisions else None)


def _print(console: Console, outcome: Outcome) -> None:
    """Print an outcome, with its failures and changes."""
    from sizewright.formatting import format_count, format_seconds

    rate = f", {outcome.samples_per_s:,.0f} samples/s while it trained" if outcome.samples_per_s else ""
    text = f"{format_count(outcome.samples, 'sample')} in {format_seconds(outcome.duration_s)}{rate}"
    console.print(f"{outcome.status.capitalize()}: {text}", style="bold red" if outcome.status == "failed" else "bold")
    if outcome.message:
        console.print(outcome.message)
    if outcome.samples_repeated or outcome.updates_lost:
        console.print(
            f"{format_count(outcome.samples_repeated, 'sample')} repeated, "
            f"{format_count(outcome.updates_lost, 'update')} lost."
        )
    if outcome.snapshots or outcome.snapshot_faults:
        faults = f"; {outcome.snapshot_faults} could not be taken or written" if outcome.snapshot_faults else ""
        console.print(f"{format_count(outcome.snapshots, 'snapshot')}{faults}.")
    for f in outcome.failures:
        recovered = "not recovered" if f.recovered_s is None else f"recovered in {f.recovered_s:.1f} s"
        console.print(f"• at {f.at_s:.1f} s {f.replica}: {f.cause}, {recovered}. {f.action}".rstrip())
    for c in outcome.changes:
        console.print(f"• at {c.at_s:.1f} s {c.kind} in {c.seconds:.2f} s: {c.description}")
