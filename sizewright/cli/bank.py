"""`sizewright bank`: measure a bank of jobs, show it, and learn a prior from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from sizewright.cli.options import BankFolder, Output
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples
from sizewright.formatting import format_count

if TYPE_CHECKING:
    from sizewright.profiler.series.bank_series import BankStep

app = Verbs(
    "Measure a bank of jobs, and learn a prior from it.",
    "sizewright bank measure my-bank",
    "sizewright bank learn my-prior.json --bank my-bank",
)

_INTERRUPTED = 130


@app.command("measure")
@examples("sizewright bank measure my-bank", "sizewright bank measure my-bank --resume --sessions 10")
def measure(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder for the trials and the data card.")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue an earlier measurement.")] = False,
    sessions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--sessions",
            min=1,
            help="Stop after this number of sessions, about two minutes each (one per job and pass).",
        ),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Measure all jobs of the bank on this host, in about two hours. The measurement can be resumed."""
    import sys
    from contextlib import redirect_stdout

    from sizewright import api
    from sizewright.cli.output import show_data, stderr
    from sizewright.cli.progress import Bar

    with Bar("starting", at_once=True) as bar:
        measured: list[BankStep] = []

        def advance(step: BankStep) -> None:
            measured.append(step)
            bar.at("trials", step.done, step.total, before=measured[0].done - 1, note=_describe(step))

        try:
            with redirect_stdout(sys.stderr):
                card = api.measure_bank(folder, resume=resume, sessions=sessions, progress=advance)
        except KeyboardInterrupt:
            stderr().print("Stopped. Finished trials are kept; continue with --resume.")
            raise typer.Exit(_INTERRUPTED) from None
    text = f"{format_count(card['trials'], 'trial')} of {format_count(len(card['jobs']), 'job')} in {folder}."
    show_data(card, output, lambda console: console.print(text))
    stderr().print(f"Next: sizewright bank learn prior.json --bank {folder}", soft_wrap=True)


@app.command("show")
@examples("sizewright bank show", "sizewright bank show --bank my-bank --output json")
def show(folder: BankFolder = None, output: Output = Format.table) -> None:
    """Print the data card of a bank: jobs, method, host, and the repeatability of trials."""
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import print_bank
    from sizewright.datasets.trial_bank.files import load_bank
    from sizewright.datasets.trial_bank.noise import repeat_noise

    bank = load_bank(folder)
    noise = repeat_noise(bank.trials)
    data = {**bank.card, "repeat_noise": noise._asdict() if noise.pairs else None}
    show_data(data, output, lambda console: print_bank(console, bank.card, noise))


@app.command("learn")
@examples(
    "sizewright bank learn my-prior.json --bank my-bank",
    "sizewright bank learn without-din.json --leave-out din",
)
def learn(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The JSON file to write the prior to.")],
    folder: BankFolder = None,
    leave_out: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--leave-out", metavar="BASE", help="Leave out this base shape. Repeatable."),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Learn a prior from the jobs of a bank, for jobs that have not been measured."""
    from sizewright import api
    from sizewright.cli.output import show_data, stderr
    from sizewright.cli.progress import Bar
    from sizewright.errors import InputError

    if not file.endswith(".json"):
        raise InputError(
            f"{file} does not end in .json, but a prior is a JSON file.", "Choose a name such as prior.json."
        )
    with Bar("learning"):
        prior = api.learn_prior(folder, leave_out=leave_out or ())
    prior.save(file)
    for reason in prior.flagged:
        stderr().print(f"left out: {reason}", style="yellow")
    jobs, bases = len(prior.job_effects.names), len(set(prior.job_effects.bases))
    data = {"file": file, "trials": prior.trials, "jobs": jobs, "base_shapes": bases, "left_out": [*prior.flagged]}
    text = f"Learned {file} from {format_count(prior.trials, 'trial')} of "
    text += f"{format_count(jobs, 'job')} ({format_count(bases, 'base shape')})."
    show_data(data, output, lambda console: console.print(text))
    stderr().print(f"Next: sizewright recommend JOB --prior {file}", soft_wrap=True)


def _describe(step: BankStep) -> str:
    trial = step.trial
    rate = f"{trial.throughput:,.0f} samples/s" if trial.usable else f"{trial.status}: {trial.message}"
    return f"{step.job}: {rate}"
