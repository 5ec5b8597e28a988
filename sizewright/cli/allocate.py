"""`sizewright allocate`: divide a cluster among many jobs, with a plan and a reason for each."""

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
from sizewright.formatting import format_count, format_percent

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import ClusterAllocation


@examples(
    "sizewright allocate cluster.yaml jobs.yaml",
    "sizewright allocate cluster.yaml jobs.yaml --policy sia --output json",
    "sizewright allocate cluster.yaml jobs.yaml --out plans --executor volcano",
)
def allocate(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster file, with its hosts.")],
    jobs: Annotated[str, typer.Argument(metavar="JOBS", help="The jobs file (see `sizewright schema jobs`).")],
    policy: Annotated[str, typer.Option("--policy", help=POLICY_HELP, autocompletion=policies)] = "default",
    value: Annotated[
        Text,
        typer.Option(
            "--value",
            help=f"The utility to maximise: {named(VALUES)}. Default: the policy's own.",
            autocompletion=among(VALUES),
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            parser=read_seconds(),
            help="Time limit of the search, such as 30s. The first solution is always finished.",
        ),
    ] = 10.0,
    window: Annotated[
        float,
        typer.Option(
            "--window",
            metavar="TIME",
            parser=read_seconds(1.0),
            help="Time window in which progress counts, such as 15m.",
        ),
    ] = 900.0,
    mixes: MixGpus = False,
    store: Store = None,
    prior: Prior = None,
    executor: Executor = None,
    out: Out = None,
    output: Output = Format.table,
) -> None:
    """Divide a cluster among jobs.

    The answer shows what each job gets and why, the gain of one more unit of each resource, and a bound on the distance
    to the best allocation. Nothing is changed: --out writes the plans, and `sizewright apply` carries them out.
    """
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar
    from sizewright.datasets.files.atomic_write import result_folder
    from sizewright.errors import InputError

    if executor and not out:
        raise InputError(
            "--executor needs --out, since there is a plan for each job.", "Name a folder for them: --out plans."
        )
    if out:
        result_folder(out, "There is a plan for each job")
    with Bar("allocating"):
        answer = api.allocate(
            cluster,
            jobs,
            policy=policy,
            values=value,
            time_limit_s=time_limit,
            window_s=window,
            mixes=mixes,
            store=store,
            prior=prior,
        )
    if out:
        _write(answer, out, executor or "file")
    show(answer, output, lambda console: _print(console, answer))


def _write(answer: ClusterAllocation, folder: str, executor: str) -> None:
    from pathlib import Path

    from sizewright import api
    from sizewright.cli.output import stderr, write_file
    from sizewright.executors import get_executor

    renderer = get_executor(executor)
    suffix = "sh" if executor == "slurm" else "yaml"
    # render all plans before writing any
    texts = {plan.job.name: renderer.render(plan) for plan in answer.plans if plan.kind != "keep"}
    for remark in dict.fromkeys(remark for plan in answer.plans for remark in api.remarks_on(renderer, plan)):
        stderr().print(remark, style="yellow", soft_wrap=True)
    for name, text in texts.items():
        write_file(str(Path(folder) / f"{name}.{suffix}"), text)
    stopped = ", ".join(share.job for share in answer.shares if share.decision == "suspend")
    if stopped:
        stderr().print(f"Stop these jobs first, by hand: {stopped}", style="yellow")
    unchanged = len(answer.plans) - len(texts)
    suffix_text = f"; unchanged: {format_count(unchanged, 'job')}" if unchanged else ""
    stderr().print(f"{format_count(len(texts), f'{executor} plan')} in {folder}{suffix_text}")


def _print(console: Console, answer: ClusterAllocation) -> None:
    from sizewright.cli.cluster_tables import resources_table, shares_table

    if answer.shares:
        console.print(shares_table(answer))
        console.print(resources_table(answer))
    for share in answer.shares:
        console.print(f"• {share.job}: {share.why}")
    for item in answer.left_out:
        name = item.job if item.what == "the job" else f"{item.what} of {item.job}"
        console.print(f"left out: {name}: {item.why}", style="yellow")
    for note in answer.notes:
        console.print(note, style="yellow")
    console.print(
        f"Policy {answer.policy}, {answer.seconds:.3f} s; utility: {answer.valued_by}; {_describe_gap(answer.gap)}."
    )


def _describe_gap(gap: float | None) -> str:
    if gap is None:
        return "there is no bound on the distance to the best allocation"
    if gap == 0:
        return "no other allocation of these candidates is better"
    return f"no allocation of these candidates is more than {format_percent(max(gap, 1e-4), 2)} better"
