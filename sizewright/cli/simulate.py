"""`sizewright simulate`: replay a trace under several policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.choices import POLICIES, POLICY_GROUP, RECLAIMS, SPEEDS, TRACES, among, named
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
from sizewright.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.cli.progress import Bar
    from sizewright.cluster.simulator.scenario import Loans
    from sizewright.spec.simulation import SimulatedRun, SimulationAnswer


@examples(
    "sizewright simulate trace.csv --policy default,slope,aryl,fifo",
    "sizewright simulate trace.csv --load 0.7,0.9,1.1 --seeds 5 --parallel",
    "sizewright simulate trace.csv --inference 520 --elastic 0.05 --figure out.png",
)
def simulate(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="A CSV, JSON or Parquet file: a plain table, or a trace of Philly, Alibaba, Helios or Acme.",
        ),
    ],
    policy: Annotated[
        str,
        typer.Option("--policy", help=POLICY_HELP, autocompletion=among((*POLICIES, "all"), POLICY_GROUP)),
    ] = "default,slope,sjf,fifo",
    load: Annotated[
        Text, typer.Option("--load", help="One or several loads, from which the capacity follows. Default: 0.9.")
    ] = None,
    cluster: ClusterFile = None,
    mixes: MixGpus = False,
    jobs: Annotated[
        Count,
        typer.Option(
            "--jobs",
            metavar="N",
            parser=read_count(1),
            help="Number of jobs to draw from the trace. Default: its own jobs.",
        ),
    ] = None,
    days: Annotated[Text, typer.Option("--days", help="A range of days of the trace, such as 30-45.")] = None,
    kind: Annotated[
        Text,
        typer.Option(
            "--kind",
            help=f"Format of the trace: {named(TRACES)}. Default: recognised by its columns.",
            autocompletion=among(TRACES),
        ),
    ] = None,
    map_: ColumnMap = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help=SEEDS_HELP)] = 1,
    elastic: Annotated[float, typer.Option("--elastic", min=0, max=1, help="Share of jobs that are elastic.")] = 1.0,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Sizes of elastic jobs, relative to their requests.")
    ] = "0.25,0.5,1,2,4",
    error: Annotated[
        float, typer.Option("--error", min=0, help="Lognormal error of the durations that policies know.")
    ] = 0.5,
    curves: Annotated[
        Text,
        typer.Option(
            "--curves",
            help="Speeds: a table (size, throughput, and job, gpu_kind), or a recommendation (JSON).",
        ),
    ] = None,
    speeds: Annotated[
        str,
        typer.Option(
            "--speeds",
            help="What policies know of speeds: known, or learned as a job runs.",
            autocompletion=among(SPEEDS),
        ),
    ] = "known",
    speed_error: Annotated[
        float, typer.Option("--speed-error", min=0, help="Lognormal error of speeds that are not learned yet.")
    ] = 0.1,
    spread: Annotated[
        float,
        typer.Option("--spread", min=0, max=1, help="Factor of a job's speed for each host more than it needs."),
    ] = 1.0,
    every: Annotated[
        float,
        typer.Option(
            "--every", metavar="TIME", parser=read_seconds(), help="Minimum time between decisions, such as 5m."
        ),
    ] = 300.0,
    clock: Annotated[
        Number,
        typer.Option(
            "--clock", metavar="TIME", parser=read_seconds(), help="Decide at multiples of this time only, such as 6m."
        ),
    ] = None,
    start_up: Annotated[
        float,
        typer.Option(
            "--start-up", metavar="TIME", parser=read_seconds(), help="Time until a job trains after its first start."
        ),
    ] = 0.0,
    change: Annotated[
        float,
        typer.Option("--change", metavar="TIME", parser=read_seconds(), help="Pause of a job whose size changes."),
    ] = 10.0,
    restart: Annotated[
        float,
        typer.Option(
            "--restart", metavar="TIME", parser=read_seconds(), help="Pause of a job that starts again, or has failed."
        ),
    ] = 63.0,
    until: Annotated[
        Number,
        typer.Option("--until", metavar="TIME", parser=read_days, help="End after this time: 30d, 36h, or days."),
    ] = None,
    keeps: Annotated[bool, typer.Option("--no-preemption", help="Never suspend running jobs.")] = False,
    failures: Annotated[
        float, typer.Option("--failures", min=0, help="Failures per day of each GPU or core in use.")
    ] = 0.0,
    inference: Annotated[
        Count, typer.Option("--inference", min=1, help="Number of inference servers that can be lent.")
    ] = None,
    server: Annotated[
        float, typer.Option("--server", min=0.01, help="GPUs or cores of each server, own and lent.")
    ] = 8.0,
    demand: Annotated[
        Text, typer.Option("--demand", help="CSV file of the inference servers needed, every 5 minutes.")
    ] = None,
    reclaim: Annotated[
        str,
        typer.Option(
            "--reclaim",
            help=f"How lent servers are chosen to go back: {named(RECLAIMS)}.",
            autocompletion=among(RECLAIMS),
        ),
    ] = "least-cost",
    lent_speed: Annotated[
        float,
        typer.Option("--lent-speed", min=0.01, help="Speed of a replica on a lent server; on an own one it is 1."),
    ] = 1.0,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Run simulations in parallel on all cores, with Ray.")
    ] = False,
    address: RayAddress = None,
    decisions: DecisionsFile = None,
    outcomes: Annotated[
        Text,
        typer.Option(
            "--outcomes", metavar="FILE", help="Write what became of each job to this .csv, .json or .parquet file."
        ),
    ] = None,
    figure: Annotated[
        Text, typer.Option("--figure", help="Draw the results into this file (.png, .svg, .pdf).")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Replay a trace of jobs under several policies, and compare queueing, completion times, use and fairness.

    The capacity is that of the servers of --cluster, or follows from --load.
    """
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar
    from sizewright.cluster.allocators import allocator_names
    from sizewright.cluster.simulator.curves import Elasticity
    from sizewright.cluster.simulator.engine import Settings
    from sizewright.datasets.trials.column_names import read_mapping

    if figure:
        _check_figure(figure)
    if outcomes:
        _check_table(outcomes)
    with Bar("simulating") as bar:
        answer = api.simulate(
            trace,
            policies=allocator_names() if policy == "all" else _list(policy),
            loads=_numbers(load, "--load"),
            seeds=seeds,
            jobs=jobs,
            kind=kind,
            columns=read_mapping(map_ or []),
            days=_days(days),
            cluster=cluster,
            mixes=mixes,
            curves=curves,
            elasticity=Elasticity(
                share=elastic,
                multiples=tuple(_numbers(sizes, "--sizes") or ()),
                error=error,
                start_up_s=start_up,
                change_s=change,
                restart_s=restart,
                spread=spread,
            ),
            settings=Settings(
                every_s=every,
                clock_s=clock,
                until_s=until * 86400 if until is not None else None,
                preempts=not keeps,
                failures_a_day=failures,
                speeds=speeds,
                speed_error=speed_error,
            ),
            loans=_loans(inference, server, demand, reclaim, lent_speed),
            decisions=bool(decisions),
            outcomes=bool(outcomes),
            parallel=parallel,
            address=address,
            progress=_RunPrinter(bar),
        )
    if figure:
        _draw(answer, figure)
    if decisions:
        answer = _write_decisions(answer, decisions)
    if outcomes:
        answer = _write_outcomes(answer, outcomes)
    show(answer, output, lambda console: _print(console, answer))


class _RunPrinter:
    """Prints each run on stderr as it ends."""

    def __init__(self, bar: Bar) -> None:
        self.bar = bar
        self.number = 0

    def __call__(self, run: SimulatedRun, count: int) -> None:
        from sizewright.formatting import format_seconds

        self.number += 1
        name = f"{run.policy}, load {run.load:g}, seed {run.seed}"
        self.bar.line(f"{self.number}/{count} {name}: mean completion time {format_seconds(run.figures['jct_s'])}")


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _numbers(text: str | None, option: str) -> list[float] | None:
    from sizewright.errors import InputError

    if text is None:
        return None
    try:
        return [float(part) for part in _list(text)]
    except ValueError:
        raise InputError(
            f"{option} must be a list of numbers, got {text}.", f"Write for example {option} 0.7,0.9."
        ) from None


def _days(text: str | None) -> tuple[float, float] | None:
    from sizewright.errors import InputError

    if text is None:
        return None
    first, _, last = text.partition("-")
    try:
        return float(first), float(last)
    except ValueError:
        raise InputError(f"--days must be a range, got {text}.", "Write for example --days 30-45.") from None


def _loans(servers: int | None, units: float, demand: str | None, reclaim: str, lent_speed: float) -> Loans | None:
    from sizewright.cluster.simulator.scenario import Loans
    from sizewright.datasets.traces import read_demand
    from sizewright.errors import InputError

    if servers is None:
        given = {
            "--demand": demand is not None,
            "--reclaim": reclaim != "least-cost",
            "--lent-speed": lent_speed != 1.0,
        }
        for option, is_set in given.items():
            if is_set:
                raise InputError(f"{option} needs inference servers.", "Give their number, such as --inference 520.")
        return None
    return Loans(servers, units, read_demand(demand) if demand else None, reclaim=reclaim, speed=lent_speed)


def _write_decisions(answer: SimulationAnswer, path: str) -> SimulationAnswer:
    """Write the decisions to a file, and return the answer without them."""
    import json

    from sizewright.cli.output import stderr, write_file

    lines = [
        json.dumps({"policy": run.policy, "load": run.load, "seed": run.seed, **each.model_dump(mode="json")})
        for run in answer.runs
        for each in run.decisions
    ]
    write_file(path, "".join(line + "\n" for line in lines))
    stderr().print(f"{format_count(len(lines), 'decision')} in {path}")
    runs = tuple(run.model_copy(update={"decisions": ()}) for run in answer.runs)
    return answer.model_copy(update={"runs": runs})


def _write_outcomes(answer: SimulationAnswer, path: str) -> SimulationAnswer:
    """Write the outcomes of the jobs to a table, and return the answer without them."""
    from pathlib import Path

    from sizewright.cli.output import stderr, writing

    table = answer.outcomes_frame()
    with writing(path) as file:
        match Path(path).suffix.lower():
            case ".csv":
                table.to_csv(file, index=False)
            case ".json":
                table.to_json(file, orient="records", indent=1)
            case _:
                table.to_parquet(file, index=False)
    stderr().print(f"{format_count(len(table), 'outcome')} in {path}")
    runs = tuple(run.model_copy(update={"outcomes": ()}) for run in answer.runs)
    return answer.model_copy(update={"runs": runs})


def _check_table(path: str) -> None:
    """Raise an error before the simulation, which may take long, if the table cannot be written."""
    from pathlib import Path

    from sizewright.errors import InputError

    if Path(path).suffix.lower() not in (".csv", ".json", ".parquet"):
        raise InputError(
            f"The table {path} has an unsupported format.", "Use a name that ends in .csv, .json or .parquet."
        )
    _check_parents(path)


def _check_figure(path: str) -> None:
    """Raise an error before the simulation, which may take long, if the figure cannot be drawn."""
    import importlib.util
    from pathlib import Path

    from sizewright.errors import InputError, MissingExtraError

    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"The figure {path} has an unsupported format.", "Use a name that ends in .png, .svg or .pdf.")
    _check_parents(path)
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("plots", "matplotlib")


def _check_parents(path: str) -> None:
    from pathlib import Path

    from sizewright.errors import InputError

    if any(each.exists() and not each.is_dir() for each in Path(path).expanduser().absolute().parents):
        raise InputError(f"Cannot write {path}: its parent is not a folder.", "Name another file.")


def _draw(answer: SimulationAnswer, path: str) -> None:
    from sizewright.cli.output import stderr, writing
    from sizewright.plots import simulation

    with writing(path) as file:
        simulation(answer).savefig(file, dpi=150)
    stderr().print(f"The figure is in {path}")


def _print(console: Console, answer: SimulationAnswer) -> None:
    from sizewright.cli.cluster_tables import simulation_table, unfinished

    console.print(simulation_table(answer))
    for text in answer.assumptions:
        console.print(f"assumes: {text}", style="dim")
    for text in (*unfinished(answer), *answer.notes):
        console.print(text, style="yellow")
