"""`sizewright allocate`: one capacity divided over many jobs, a plan for each, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from sizewright.cli.options import Output, Prior, Store
from sizewright.cli.output import Format

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import Division

_Text = Optional[str]  # noqa: UP045


def allocate(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster file: its hosts.")],
    jobs: Annotated[str, typer.Argument(metavar="JOBS", help="The jobs file (`sizewright schema jobs`).")],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="default, fifo, sjf, doubling, slope, hull, dynamic, mip, lagrangian, weighted-greedy, progress-mip, "
            "elastic-tiresias, aryl or sia; or one that another package registers.",
        ),
    ] = "default",
    value: Annotated[
        _Text, typer.Option("--value", help="progress, completion or own; absent, the policy's own values.")
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for the decision.")] = 10.0,
    window: Annotated[float, typer.Option("--window", min=1, help="Seconds that progress is counted over.")] = 900.0,
    mixes: Annotated[bool, typer.Option("--mix-gpus", help="Let one job have several kinds of GPUs.")] = False,
    store: Store = None,
    prior: Prior = None,
    executor: Annotated[_Text, typer.Option("--executor", help="Render the plans for this executor.")] = None,
    out: Annotated[_Text, typer.Option("--out", help="Write one plan file for each job into this folder.")] = None,
    output: Output = Format.table,
) -> None:
    """Divide a cluster over jobs: what each gets and why, what the next unit of each resource would bring, and how far
    from the best it can be at most. Nothing is changed anywhere: `sizewright apply` carries out the plans."""
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.errors import InputError

    if executor and not out:
        raise InputError("There is a plan for each job.", "Name a folder for them: --out plans.")
    division = api.allocate(
        cluster, jobs, policy=policy, values=value, time_limit_s=time_limit, window_s=window, mixes=mixes, store=store,
        prior=prior,
    )  # fmt: skip
    if out:
        _write(division, out, executor or "file")
    show(division, output, lambda console: _print(console, division))


def _write(division: Division, folder: str, executor: str) -> None:
    from pathlib import Path

    from sizewright.cli.output import stderr, write_file
    from sizewright.executors import get_executor

    renderer = get_executor(executor)
    suffix = "sh" if executor == "slurm" else "yaml"
    texts = {
        plan.job.name: renderer.render(plan) for plan in division.plans if plan.kind != "keep"
    }  # all before any is written
    for name, text in texts.items():
        write_file(str(Path(folder) / f"{name}.{suffix}"), text)
    stopped = ", ".join(share.job for share in division.shares if share.decision == "suspend")
    if stopped:
        stderr().print(f"To be stopped first, by hand: {stopped}", style="yellow")
    kept = len(division.plans) - len(texts)
    stderr().print(
        f"{len(texts)} {executor} plans are in {folder}" + (f"; {kept} jobs stay as they are" if kept else "")
    )


def _print(console: Console, division: Division) -> None:
    from sizewright.cli.cluster_tables import resources_table, shares_table

    if division.shares:
        console.print(shares_table(division))
        console.print(resources_table(division))
    for share in division.shares:
        console.print(f"• {share.job}: {share.why}")
    for left in division.left_out:
        which = left.job if left.what == "the job" else f"{left.what} of {left.job}"
        console.print(f"left out: {which}: {left.why}", style="yellow")
    for note in division.notes:
        console.print(note, style="yellow")
    console.print(
        f"By {division.policy} in {division.seconds:.3f} s; counted by {division.valued_by}: {_proof(division)}."
    )


def _proof(division: Division) -> str:
    if division.gap is None:
        return "how far it is from the best is not proven"
    more = f"{division.gap:.2%}" if division.gap >= 1e-4 else "0.01%"
    return f"no division of these candidates is worth {more} more" if division.gap else "none is better"
