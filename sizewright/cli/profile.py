"""`sizewright profile`: measure trials, with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import DataPath, JobFile, Output, Prior, RayAddress, Store, read_count
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.formatting import format_count

if TYPE_CHECKING:
    from sizewright.datasets.trials.trial import Trial
    from sizewright.errors import TrialError
    from sizewright.profiler.series.series import SeriesStep as Step

_INTERRUPTED = 130


@examples(
    "sizewright profile job.yaml",
    "sizewright profile job.yaml --data 'day_*.gz' --store trials.db",
    "sizewright profile job.yaml --prior shipped --trials 4",
)
def profile(
    job: JobFile,
    output: Output = Format.table,
    store: Store = None,
    data: DataPath = None,
    prior: Prior = None,
    trials: Annotated[
        int,
        typer.Option(
            "--trials", metavar="N", parser=read_count(1, 64), help="Number of allocations to measure, at most 64."
        ),
    ] = 9,
    accept_drift: Annotated[
        bool,
        typer.Option(
            "--accept-drift",
            help="Keep trials during which the speed of the host changed or other work ran, with larger errors.",
        ),
    ] = False,
    address: RayAddress = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new series instead of continuing the last one.")
    ] = False,
) -> None:
    """Measure trials of real training steps on this host, and keep them in the store."""
    import sys
    from contextlib import redirect_stdout

    from sizewright import api
    from sizewright.cli.output import describe_log, show_data, stderr
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import trials_table

    loaded_job = api.load_job(job, data)
    console = stderr()
    if report := api.check_log(loaded_job):
        console.print(describe_log(report))
    with api.open_store(store, create=True) as opened, Bar("starting", at_once=True) as bar:
        steps: list[Step] = []

        def advance(step: Step, total: int) -> None:
            steps.append(step)
            before = sum(each.reused for each in steps)
            bar.at("trials", len(steps), total, before=before, note=_describe(step, f"{len(steps)}/{total}"))

        try:
            with redirect_stdout(sys.stderr):  # Ray prints there when a replica dies
                finished = api.profile(
                    loaded_job,
                    store=opened,
                    trials=trials,
                    fresh=fresh,
                    accept_drift=accept_drift,
                    address=address,
                    prior=prior,
                    progress=advance,
                )
        except KeyboardInterrupt:
            console.print("Stopped. Finished trials are kept; the same command continues with the rest.")
            raise typer.Exit(_INTERRUPTED) from None
        store_name = opened.name
    for message in {t.message for t in finished if t.usable and t.message}:
        console.print(f"{message} This increases its error.", style="yellow")
    show_data([t.model_dump(mode="json") for t in finished], output, lambda out: out.print(trials_table(finished)))
    alike = _by_cause(finished)
    for trials_alike in alike:
        who = "A trial" if len(trials_alike) == 1 else f"{len(trials_alike)} trials"
        first = trials_alike[0]
        such = "" if len(trials_alike) == 1 else ", the first so"
        console.print(f"{who} ended as {first.status}{such}: {first.message}", style="yellow")
    if alike:
        raise _not_all_succeeded(finished, alike, store_name)
    options = {"--store": store, "--data": data, "--prior": prior}
    arguments = " ".join([job, *(f"{name} {value}" for name, value in options.items() if value)])
    text = f"{format_count(len(finished), 'trial')} in {store_name}. Next: sizewright recommend {arguments}"
    console.print(text, soft_wrap=True)


def _by_cause(finished: Sequence[Trial]) -> list[list[Trial]]:
    """Return the trials that did not succeed, those with one cause together."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in finished:
        if not trial.usable:
            groups.setdefault((trial.status, trial.cause), []).append(trial)
    return [groups[key] for key in sorted(groups)]


def _not_all_succeeded(finished: Sequence[Trial], alike: Sequence[Sequence[Trial]], store_name: str) -> TrialError:
    """Return the error that says how many trials did not succeed, and why if none did."""
    from sizewright.errors import TrialError

    unsuccessful, count = sum(map(len, alike)), format_count(len(finished), "trial")
    if unsuccessful < len(finished):
        message = f"{unsuccessful} of {count} did not succeed; the others are in {store_name}."
    elif len(alike) == 1:
        message = f"None of {count} succeeded: {alike[0][0].cause.rstrip('.')}."
    else:
        message = f"None of {count} succeeded."
    may_recur = any(group[0].status != "void" for group in alike)
    remedy = "Remove the cause that is named above, or exclude these allocations by the bounds. " if may_recur else ""
    return TrialError(message, f"{remedy}Run the same command again to measure the rest.")


def _describe(step: Step, count: str) -> str:
    allocation = step.point.allocation
    rate = f"{step.trial.throughput:,.0f} samples/s" if step.trial.throughput else step.trial.status
    shape = " + ".join(f"{group.replicas}×{group.cpu:g}" for group in (*allocation.worker, *allocation.ps))
    gpus = "".join(f", {group.gpu.describe()} each" for group in allocation.worker if group.gpu)
    of_command = f", batch {allocation.batch_size}"
    tables = of_command if step.trial.table_scale is None else f", tables × {step.point.table_scale:g}"
    return f"{count} {shape} cores{gpus}{tables}: {rate}"
