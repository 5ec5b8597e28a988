"""`sizewright bank`: measure a bank of jobs, look at one, and learn a prior from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from sizewright.cli.options import Output
from sizewright.cli.output import Format

if TYPE_CHECKING:
    from sizewright.profiler.bank_series import BankStep

app = typer.Typer(help="Measure a bank of jobs, and learn a prior from it.", no_args_is_help=True)

_INTERRUPTED = 130
Folder = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--bank", metavar="FOLDER", help="A folder that `bank measure` wrote, instead of the shipped bank."),
]


@app.command("measure")
def measure(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where trials and card are written.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is missing.")] = False,
    sessions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--sessions", min=1, help="Stop after so many sessions (one a job and pass, about two minutes)."),
    ] = None,
) -> None:
    """Measure all jobs of the bank on this host: about two hours, in pieces if need be."""
    import sys
    from contextlib import redirect_stdout

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sizewright import api
    from sizewright.cli.output import stderr

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = stderr()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting", total=None)

        def advance(step: BankStep) -> None:
            bar.update(task, total=step.total, completed=step.done, description=_describe(step))

        try:
            with redirect_stdout(sys.stderr):
                card = api.measure_bank(folder, resume=resume, sessions=sessions, progress=advance)
        except KeyboardInterrupt:
            console.print("Stopped. Finished trials are kept; --resume goes on with the rest.")
            raise typer.Exit(_INTERRUPTED) from None
    console.print(f"{card['trials']} trials of {len(card['jobs'])} jobs in {folder}.", soft_wrap=True)
    console.print(f"Next: sizewright bank learn prior.json --bank {folder}", soft_wrap=True)


@app.command("show")
def show(folder: Folder = None, output: Output = Format.table) -> None:
    """Print a bank's data card: what was measured, how, on what, and how far trials repeat."""
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import print_bank
    from sizewright.datasets.bank.files import load_bank
    from sizewright.datasets.bank.noise import repeat_noise

    bank = load_bank(folder)
    noise = repeat_noise(bank.trials)
    told = {**bank.card, "repeat_noise": noise._asdict() if noise.pairs else None}
    show_data(told, output, lambda console: print_bank(console, bank.card, noise))


@app.command("learn")
def learn(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the prior is written, as JSON.")],
    folder: Folder = None,
    leave_out: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--leave-out", metavar="BASE", help="Not from this base shape; may be given several times."),
    ] = None,
) -> None:
    """Learn a prior: what the jobs of a bank tell of one that was not measured."""
    from sizewright import api
    from sizewright.cli.output import stderr
    from sizewright.errors import InputError

    if not file.endswith(".json"):
        raise InputError(f"{file} is not named .json, which a prior is.", "Name it such as prior.json.")
    prior = api.learn_prior(folder, leave_out=leave_out or ())
    prior.save(file)
    console = stderr()
    for reason in prior.flagged:
        console.print(f"left out: {reason}", style="yellow")
    known = prior.experience
    console.print(
        f"{file} has learned from {prior.trials} trials of {len(known.names)} jobs ({len(set(known.bases))} base "
        f"shapes). Next: sizewright recommend JOB --prior {file}",
        soft_wrap=True,
    )


def _describe(step: BankStep) -> str:
    trial = step.trial
    rate = f"{trial.throughput:,.0f} samples/s" if trial.usable else f"{trial.status}: {trial.message}"
    return f"{step.job}: {rate}"
