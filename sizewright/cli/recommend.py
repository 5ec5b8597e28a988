"""`sizewright recommend`: what to ask for, and the manifest that asks for it."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from sizewright.cli.options import Base, ClusterFile, DataPath, JobFile, Model, Output, Prior, Store, Tracking
from sizewright.cli.output import Format

_EXIT_CODES = {"ok": 0, "infeasible": 3, "not_enough_data": 4}


def recommend(
    job: JobFile,
    output: Output = Format.table,
    store: Store = None,
    trials: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--trials", help="A CSV or Parquet file of trials instead of the store."),
    ] = None,
    cluster: ClusterFile = None,
    data: DataPath = None,
    model: Model = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    objective: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--objective", help="balanced, cost, time or deadline, instead of the job's own."),
    ] = None,
    deadline: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--deadline", help="Such as 4h, with objective deadline."),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Allow choices beyond twice the measured range.")
    ] = False,
    executor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--executor",
            help="Render the plan for this executor (dlrover, kubeflow, volcano, kuberay, slurm, file, local); "
            "without --out it is printed.",
        ),
    ] = None,
    base: Base = None,
    out: Annotated[Optional[str], typer.Option("--out", help="Write the plan to this file.")] = None,  # noqa: UP045
) -> None:
    """Say what a job should ask for, from its trials. Exits 3 when infeasible, 4 without enough data."""
    from sizewright import api
    from sizewright.cli.output import show, stderr, write_file
    from sizewright.cli.tables import print_recommendation
    from sizewright.errors import InputError
    from sizewright.executors import get_executor

    if base and not executor:
        raise InputError("A base manifest is of some executor's platform.", "Name it: --executor kubeflow.")
    renderer = get_executor(executor or "local", **({"base": base} if base else {})) if executor or out else None
    described = api.load_job(job, data)
    described = described.with_objective(objective, deadline) if objective or deadline else described
    given = None
    if trials:
        from sizewright.datasets.trial_files import import_trials

        given = import_trials(trials)
    answer = api.recommend(
        described, trials=given, store=store, cluster=cluster, extrapolate=extrapolate, model=model, prior=prior,
        tracking_uri=tracking_uri,
    )  # fmt: skip
    manifest = renderer.render(api.plan(described, answer)) if renderer and answer.target else None
    if manifest and out:
        write_file(out, manifest)
    if manifest and not out:
        typer.echo(manifest, nl=False)
    else:
        show(answer, output, lambda console: print_recommendation(console, answer, described))
    if manifest and out:
        stderr().print(f"The {executor or 'local'} plan is in {out}")
    raise typer.Exit(_EXIT_CODES[answer.status])
