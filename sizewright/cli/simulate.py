"""`sizewright simulate`: a trace replayed under several policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.choices import POLICIES, POLICY_GROUP, RECLAIMS, TRACES, among, named
from sizewright.cli.options import (
    POLICY_HELP,
    SEEDS_HELP,
    ClusterFile,
    ColumnMap,
    Count,
    DecisionsFile,
    MixGpus,
    Number,
    Output,
    RayAddress,
    Text,
    read_count,
    read_days,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.cli.progress import Bar
    from sizewright.cluster.simulator.scenario import Loans
    from sizewright.spec.simulation import SimulatedRun, Simulation


@examples(
    "sizewright simulate trace.csv --policy default,slope,aryl,fifo",
    "sizewright simulate trace.csv --load 0.7,0.9,1.1 --seeds 5 --parallel",
    "sizewright simulate trace.csv --inference 520 --elastic 0.05 --figure out.png",
)
def simulate(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="CSV, JSON or Parquet: plain, of Philly, Alibaba, Helios or Acme.")
    ],
    policy: Annotated[
        str,
        typer.Option("--policy", help=POLICY_HELP, autocompletion=among((*POLICIES, "all"), POLICY_GROUP)),
    ] = "default,slope,sjf,fifo",
    load: Annotated[
        Text, typer.Option("--load", help="One or several: the capacity follows from it; absent, 0.9.")
    ] = None,
    cluster: ClusterFile = None,
    mixes: MixGpus = False,
    jobs: Annotated[
        Count, typer.Option("--jobs", metavar="N", parser=read_count(1), help="Draw so many jobs of the trace.")
    ] = None,
    days: Annotated[Text, typer.Option("--days", help="A part of the trace, such as 30-45.")] = None,
    kind: Annotated[
        Text,
        typer.Option("--kind", help=f"{named(TRACES)}, if its columns do not tell.", autocompletion=among(TRACES)),
    ] = None,
    map_: ColumnMap = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help=SEEDS_HELP)] = 1,
    elastic: Annotated[float, typer.Option("--elastic", min=0, max=1, help="Share of jobs that are elastic.")] = 1.0,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Of elastic jobs, over what their users asked for.")
    ] = "0.25,0.5,1,2,4",
    error: Annotated[float, typer.Option("--error", min=0, help="Of the known durations, lognormal.")] = 0.5,
    curves: Annotated[
        Text, typer.Option("--curves", help="Speeds: CSV (size, throughput), or an answer's JSON.")
    ] = None,
    every: Annotated[
        float,
        typer.Option("--every", metavar="TIME", parser=read_seconds(), help="Time between decisions, such as 5m."),
    ] = 300.0,
    until: Annotated[
        Number,
        typer.Option("--until", metavar="TIME", parser=read_days, help="End after this time: 30d, 36h, or days."),
    ] = None,
    keeps: Annotated[bool, typer.Option("--no-preemption", help="Running jobs are never put off.")] = False,
    failures: Annotated[float, typer.Option("--failures", min=0, help="A day, of each GPU or core in use.")] = 0.0,
    inference: Annotated[Count, typer.Option("--inference", min=1, help="Inference servers that are lent.")] = None,
    server: Annotated[float, typer.Option("--server", min=0.01, help="GPUs or cores of one, own and lent.")] = 8.0,
    demand: Annotated[Text, typer.Option("--demand", help="CSV: inference servers needed, every 5 minutes.")] = None,
    reclaim: Annotated[
        str, typer.Option("--reclaim", help=f"{named(RECLAIMS)}.", autocompletion=among(RECLAIMS))
    ] = "least-cost",
    parallel: Annotated[bool, typer.Option("--parallel", help="Side by side on all cores, by Ray.")] = False,
    address: RayAddress = None,
    decisions: DecisionsFile = None,
    figure: Annotated[Text, typer.Option("--figure", help="Draw it into this file (.png, .svg, .pdf).")] = None,
    output: Output = Format.table,
) -> None:
    """Replay a trace of jobs under several policies, side by side: queueing, completion times, use, fairness.

    On the servers of --cluster, or on a capacity that follows from --load.
    """
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar
    from sizewright.cluster.allocators import allocator_names
    from sizewright.cluster.simulator.curves import Elasticity
    from sizewright.cluster.simulator.engine import Settings
    from sizewright.datasets.column_names import read_mapping

    if figure:
        _check_figure(figure)
    with Bar("simulating") as bar:
        told = api.simulate(
            trace, policies=allocator_names() if policy == "all" else _list(policy), loads=_numbers(load, "--load"),
            seeds=seeds, jobs=jobs, kind=kind, columns=read_mapping(map_ or []), days=_days(days),
            cluster=cluster, mixes=mixes, curves=curves,
            elasticity=Elasticity(share=elastic, multiples=tuple(_numbers(sizes, "--sizes") or ()), error=error),
            settings=Settings(
                every_s=every, until_s=until * 86400 if until is not None else None, preempts=not keeps,
                failures_a_day=failures,
            ),
            loans=_loans(inference, server, demand, reclaim), decisions=bool(decisions),
            parallel=parallel, address=address, progress=_Shown(bar),
        )  # fmt: skip
    if figure:
        _draw(told, figure)
    if decisions:
        told = _apart(told, decisions)
    show(told, output, lambda console: _print(console, told))


class _Shown:
    """Each run on stderr as it ends."""

    def __init__(self, bar: Bar) -> None:
        self.bar, self.number = bar, 0

    def __call__(self, run: SimulatedRun, count: int) -> None:
        from sizewright.spec.units import format_seconds

        self.number += 1
        took = format_seconds(run.figures["jct_s"])
        self.bar.line(f"{self.number}/{count} {run.policy}, load {run.load:g}, seed {run.seed}: jobs take {took}")


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _numbers(text: str | None, option: str) -> list[float] | None:
    from sizewright.errors import InputError

    if text is None:
        return None
    try:
        return [float(part) for part in _list(text)]
    except ValueError:
        raise InputError(f"{option} {text} holds what is no number.", f"Write it like {option} 0.7,0.9.") from None


def _days(text: str | None) -> tuple[float, float] | None:
    from sizewright.errors import InputError

    if text is None:
        return None
    first, _, last = text.partition("-")
    try:
        found = float(first), float(last)
    except ValueError:
        raise InputError(f"--days {text} is no range.", "Write it like --days 30-45.") from None
    return found


def _loans(servers: int | None, units: float, demand: str | None, reclaim: str) -> Loans | None:
    from sizewright.cluster.simulator.scenario import Loans
    from sizewright.datasets.traces import read_demand
    from sizewright.errors import InputError

    if servers is None:
        if demand:
            raise InputError("--demand is of inference servers.", "Say how many there are: --inference 520.")
        if reclaim != "least-cost":
            raise InputError("--reclaim is of inference servers.", "Say how many there are: --inference 520.")
        return None
    return Loans(servers, units, read_demand(demand) if demand else None, reclaim=reclaim)


def _apart(told: Simulation, path: str) -> Simulation:
    """The same without its decisions, which are written."""
    import json

    from sizewright.cli.output import stderr, write_file

    lines = [
        json.dumps({"policy": run.policy, "load": run.load, "seed": run.seed, **each.model_dump(mode="json")})
        for run in told.runs
        for each in run.decisions
    ]
    write_file(path, "".join(line + "\n" for line in lines))
    stderr().print(f"{format_count(len(lines), 'decision')} in {path}")
    return told.model_copy(update={"runs": tuple(run.model_copy(update={"decisions": ()}) for run in told.runs)})


def _check_figure(path: str) -> None:
    """Before the simulation, which may take long."""
    import importlib.util
    from pathlib import Path

    from sizewright.errors import InputError, MissingExtraError

    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"{path} is no picture that can be drawn.", "Name it .png, .svg or .pdf.")
    if any(each.exists() and not each.is_dir() for each in Path(path).expanduser().absolute().parents):
        raise InputError(f"Cannot write {path}: what is above it is no folder.", "Name another file.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("plots", "matplotlib")


def _draw(told: Simulation, path: str) -> None:
    from sizewright.cli.output import stderr, writing
    from sizewright.plots import simulation

    with writing(path) as file:
        simulation(told).savefig(file, dpi=150)
    stderr().print(f"The figure is in {path}")


def _print(console: Console, told: Simulation) -> None:
    from sizewright.cli.cluster_tables import simulation_table, unfinished

    console.print(simulation_table(told))
    for text in told.assumptions:
        console.print(f"assumes: {text}", style="dim")
    for text in (*unfinished(told), *told.notes):
        console.print(text, style="yellow")
