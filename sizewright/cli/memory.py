"""`sizewright memory`: the memory of the embedding tables, before anything runs."""

from __future__ import annotations

import typer

from sizewright.cli.options import ClusterFile, DataPath, JobFile, Output, Store
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

_INFEASIBLE = 3


@examples(
    "sizewright memory job.yaml",
    "sizewright memory job.yaml --data 'day_*.gz' --cluster cluster.yaml",
    "sizewright memory job.yaml --output json",
)
def memory(
    job: JobFile, store: Store = None, output: Output = Format.table, cluster: ClusterFile = None, data: DataPath = None
) -> None:
    """Show how much memory the job's tables need, per table and per number of PS.

    The tables of a command are those that `model.tables` describes beside it; without PS its workers share them.
    Measured peaks of the job's trials and runs in the store correct the calculation. Exits with 3 if the tables do not
    fit within the bounds.
    """
    from sizewright import api
    from sizewright.cli.output import describe_log, show, stderr
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import print_memory

    loaded_job = api.load_job(job, data)
    if log := api.check_log(loaded_job):
        stderr().print(describe_log(log))
    calculate = api.memory  # is imported before the bar starts
    with Bar("calculating"):
        report = calculate(loaded_job, store=store, cluster=cluster)
    show(report, output, lambda console: print_memory(console, report))
    raise typer.Exit(0 if report.fits else _INFEASIBLE)
