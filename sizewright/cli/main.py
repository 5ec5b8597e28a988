"""The command `sizewright`: verbs are registered here, errors end here."""

from __future__ import annotations

import errno
import io
import os
import sys

from sizewright.cli import (
    allocate,
    apply,
    bank,
    doctor,
    history,
    init,
    memory,
    models,
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
from sizewright.cli.output import register_plain
from sizewright.cli.verbs import Verbs

app = Verbs(
    "Size DLRM training jobs: measure a few seconds of real training, fit a model, get a plan.",
    "sizewright init job.yaml           # a job file to fill in",
    "sizewright profile job.yaml        # measures it: a minute or two",
    "sizewright recommend job.yaml      # what to ask for, and why",
    name="sizewright",
)
app.command("init")(init.init)
app.command("profile")(profile.profile)
app.command("recommend")(recommend.recommend)
app.command("report")(report.report)
app.command("run")(run_verb.run)
app.command("tune")(tune.tune)
app.command("apply")(apply.apply)
app.command("allocate")(allocate.allocate)
app.command("simulate")(simulate.simulate)
app.command("memory")(memory.memory)
app.command("retrain")(retrain.retrain)
app.add_typer(trials.app, name="trials")
app.add_typer(history.app, name="history")
app.add_typer(models.app, name="models")
app.add_typer(bank.app, name="bank")
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)


def run() -> None:
    """Run a command line; a user's mistake is one sentence on stderr and a non-zero exit code."""
    import signal

    from sizewright.errors import SizewrightError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does, under nohup too
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=register_plain())
    try:
        try:
            app(prog_name="sizewright")
        finally:
            sys.stdout.flush()
    except SizewrightError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else what is left is written once more
        sys.stderr.write(f"Error: {error.strerror}. Free some, or write elsewhere.\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
