"""`sizewright allocate`: one capacity divided over many jobs, a plan for each, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.choices import VALUES, among, named
from sizewright.cli.options import (
    POLICY_HELP,
    Executor,
    MixGpus,
    Out,
    Output,
    Prior,
    Store,
    Text,
    policies,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import Division


@examples(
    "sizewright allocate cluster.yaml jobs.yaml",
    "sizewright allocate cluster.yaml jobs.yaml --policy sia --output json",
    "sizewright allocate cluster.yaml jobs.yaml --out plans --executor volcano",
)
def allocate(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster file: its hosts.")],
    jobs: Annotated[str, typer.Argument(metavar="JOBS", help="The jobs file (`sizewright schema jobs`).")],
    policy: Annotated[str, typer.Option("--policy", help=POLICY_HELP, autocompletion=policies)] = "default",
    value: Annotated[
        Text,
        typer.Option(
            "--value", help=f"{named(VALUES)}; absent, the policy's own values.", autocompletion=among(VALUES)
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            parser=read_seconds(),
            help="For the search, such as 30s; a first answer takes its time.",
        ),
    ] = 10.0,
    window: Annotated[
        float,
        typer.Option(
            "--window",
            metavar="TIME",
            parser=read_seconds(1.0),
            help="Time that progress is counted over, such as 15m.",
        ),
    ] = 900.0,
    mixes: MixGpus = False,
    store: Store = None,
    prior: Prior = None,
    executor: Executor = None,
    out: Out = None,
    output: Output = Format.table,
) -> None:
    """Divide a cluster over jobs: what each gets and why, what the next unit of each resource would bring, and how far
    from the best it can be at most. Nothing is changed anywhere: `sizewright apply` carries out the plans, which --out
    writes."""
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar
    from sizewright.datasets.whole_files import folder_at
    from sizewright.errors import InputError

    if executor and not out:
        raise InputError("There is a plan for each job.", "Name a folder for them: --out plans.")
    if out:
        folder_at(out, "There is a plan for each job")
    with Bar("dividing"):
        division = api.allocate(
            cluster, jobs, policy=policy, values=value, time_limit_s=time_limit, window_s=window, mixes=mixes,
            store=store, prior=prior,
        )  # fmt: skip
    if out:
        _write(division, out, executor or "file")
    show(division, output, lambda console: _print(console, division))


def _write(division: Division, folder: str, executor: str) -> None:
    from pathlib import Path

    from sizewright import api
    from sizewright.cli.output import stderr, write_file
    from sizewright.executors import get_executor

    renderer = get_executor(executor)
    suffix = "sh" if executor == "slurm" else "yaml"
    texts = {
        plan.job.name: renderer.render(plan) for plan in division.plans if plan.kind != "keep"
    }  # all before any is written
    for remark in dict.fromkeys(r for plan in division.plans for r in api.remarks_on(renderer, plan)):
        stderr().print(remark, style="yellow", soft_wrap=True)
    for name, text in texts.items():
        write_file(str(Path(folder) / f"{name}.{suffix}"), text)
    stopped = ", ".join(share.job for share in division.shares if share.decision == "suspend")
    if stopped:
        stderr().print(f"To be stopped first, by hand: {stopped}", style="yellow")
    kept = len(division.plans) - len(texts)
    stderr().print(
        f"{format_count(len(texts), f'{executor} plan')} in {folder}"
        + (f"; unchanged: {format_count(kept, 'job')}" if kept else "")
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
