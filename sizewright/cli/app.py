"""The command `sizewright`: verbs are registered here."""

from __future__ import annotations

from typing import Annotated

import typer

from sizewright.cli import (
    allocate,
    apply,
    bank,
    calibrate,
    doctor,
    history,
    init,
    memory,
    models,
    operator,
    place,
    predict,
    profile,
    recommend,
    report,
    retrain,
    schema,
    simulate,
    trials,
    tune,
)
from sizewright.cli import run as run_verb
from sizewright.cli.verbs import Verbs


def _print_version(is_set: bool) -> None:
    if is_set:
        from sizewright import __version__

        typer.echo(f"sizewright {__version__}")
        raise typer.Exit


app = Verbs(
    "Size DLRM training jobs: measure a few seconds of training, fit a model, and get a plan.",
    "sizewright init job.yaml           # a job file to fill in",
    "sizewright profile job.yaml        # measure it: a minute or two",
    "sizewright recommend job.yaml      # what to request, and why",
    name="sizewright",
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The verbs do the work."""


app.command("init")(init.init)
app.command("profile")(profile.profile)
app.command("recommend")(recommend.recommend)
app.command("predict")(predict.predict)
app.command("report")(report.report)
app.command("run")(run_verb.run)
app.command("tune")(tune.tune)
app.command("apply")(apply.apply)
app.command("allocate")(allocate.allocate)
app.command("simulate")(simulate.simulate)
app.command("memory")(memory.memory)
app.command("place")(place.place)
app.add_typer(calibrate.app, name="calibrate")
app.command("retrain")(retrain.retrain)
app.add_typer(operator.app, name="operator")
app.add_typer(trials.app, name="trials")
app.add_typer(history.app, name="history")
app.add_typer(models.app, name="models")
app.add_typer(bank.app, name="bank")
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)
