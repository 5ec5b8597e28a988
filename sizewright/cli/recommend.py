"""`sizewright recommend`: recommend an allocation, and render its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sizewright.cli.options import (
    Base,
    ClusterFile,
    ColumnMap,
    DataPath,
    Deadline,
    Executor,
    Extrapolate,
    JobFile,
    Model,
    Objective,
    Out,
    Output,
    Prior,
    Roles,
    Samples,
    Store,
    Tracking,
    TrialsFile,
    manifest_options,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

if TYPE_CHECKING:
    from sizewright.datasets.trials.trial import Trials
    from sizewright.recommender.sizing.remedy_commands import Options
    from sizewright.spec import Job

_EXIT_CODES = {"ok": 0, "infeasible": 3, "not_enough_data": 4}


@examples(
    "sizewright recommend job.yaml",
    "sizewright recommend job.yaml --prior shipped --objective cost -o json",
    "sizewright recommend job.yaml --executor kubeflow --out tfjob.yaml",
)
def recommend(
    job: JobFile,
    output: Output = Format.table,
    store: Store = None,
    trials: TrialsFile = None,
    map_: ColumnMap = None,
    cluster: ClusterFile = None,
    data: DataPath = None,
    samples: Samples = None,
    model: Model = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    objective: Objective = None,
    deadline: Deadline = None,
    extrapolate: Extrapolate = False,
    executor: Executor = None,
    base: Base = None,
    role: Roles = None,
    out: Out = None,
) -> None:
    """Recommend an allocation for a job from its trials.

    With --executor the manifest is printed instead of the recommendation. With --out the manifest, or without an
    executor the plan, is written to a file. Exits with 3 if no allocation is feasible, and with 4 if there is not
    enough data.
    """
    from sizewright import api
    from sizewright.api.sizing import size
    from sizewright.cli.output import as_named, manifest_data, show, show_data, stderr, write_file
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import print_recommendation
    from sizewright.datasets.files.atomic_write import result_file
    from sizewright.errors import InputError
    from sizewright.executors import get_executor
    from sizewright.recommender.sizing.remedy_commands import RemedyCommands

    if (base or role) and not executor:
        raise InputError(
            "--base and --role need the executor of the manifest.", "Name it, such as --executor kubeflow."
        )
    renderer = get_executor(executor or "local", **manifest_options(base, role)) if executor or out else None
    loaded_job = api.load_job(
        job, data, samples=samples, objective=objective and objective.value, deadline=deadline or None
    )
    options = _given_options(
        store=store,
        trials=trials,
        map_=map_,
        cluster=cluster,
        data=data,
        samples=samples,
        objective=objective and objective.value,
        deadline=deadline,
        extrapolate=extrapolate,
    )
    trial_rows = read_rows(trials, map_, loaded_job)
    with Bar("sizing"):
        answer = size(
            loaded_job,
            trial_rows,
            store,
            cluster,
            extrapolate,
            model,
            prior,
            tracking_uri,
            RemedyCommands(job, options),
        ).answer
    plan = api.plan(loaded_job, answer) if renderer and answer.target else None
    manifest = renderer.render(plan) if renderer and plan else None
    is_script = bool(manifest and manifest.startswith("#!"))
    path = result_file(out, f"{loaded_job.name}.{'sh' if is_script else 'yaml'}") if out else ""
    if manifest and path:
        write_file(path, as_named(path, manifest))
    if manifest is None or path:
        show(answer, output, lambda console: print_recommendation(console, answer, loaded_job))
    elif output is Format.json or is_script:
        show_data(manifest_data(manifest), output, lambda _: typer.echo(manifest, nl=False))
    else:
        typer.echo(manifest, nl=False)
    if renderer and plan:
        for remark in api.remarks_on(renderer, plan):
            stderr().print(remark, style="yellow", soft_wrap=True)
    if path:
        what = f"{executor} manifest" if executor and executor != "local" else "plan"
        text = f"The {what} is in {path}" if manifest else f"Nothing was written to {path}."
        stderr().print(text, soft_wrap=True)
    raise typer.Exit(_EXIT_CODES[answer.status])


def _given_options(**values: str | int | bool | list[str] | None) -> Options:
    """Return the names and values of the options that were given."""
    options = []
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if each not in (None, "", False):
                options.append((f"--{name.rstrip('_')}", "" if each is True else str(each)))
    return tuple(options)


def read_rows(file: str | None, mapping: list[str] | None, job: Job | None) -> Trials | None:
    """Return the trials of a file and print notes on its columns; None without a file."""
    if not file:
        return None
    from sizewright.cli.output import stderr
    from sizewright.cli.trials import read_trial_file
    from sizewright.datasets.trials.trial import Trials

    table = read_trial_file(file, mapping or [], job)
    if notes := table.describe():
        stderr().print(f"{file}: {notes}", soft_wrap=True)
    return Trials(table.trials)
