"""`sizewright recommend`: what to ask for, and the manifest that asks for it."""

from __future__ import annotations

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
    of_base,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

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
    """Say what a job should ask for, from its trials. Exits 3 when infeasible, 4 without enough data.

    With --executor its plan is printed instead; with --out it is written, beside the answer.
    """
    from sizewright import api
    from sizewright.cli.output import as_named, manifest_data, show, show_data, stderr, write_file
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import print_recommendation
    from sizewright.datasets.whole_files import file_at
    from sizewright.errors import InputError
    from sizewright.executors import get_executor

    if (base or role) and not executor:
        raise InputError("A base manifest is of some executor's platform.", "Name it: --executor kubeflow.")
    renderer = get_executor(executor or "local", **of_base(base, role)) if executor or out else None
    described = api.load_job(job, data, samples=samples)
    if objective or deadline:
        described = described.with_objective(objective and objective.value, deadline)
    given = None
    if trials:
        from sizewright.cli.trials import read_given

        table = read_given(trials, map_ or [], described)
        given = table.trials
        if notes := table.describe():
            stderr().print(f"{trials}: {notes}", soft_wrap=True)
    with Bar("sizing"):
        answer = api.recommend(
            described, trials=given, store=store, cluster=cluster, extrapolate=extrapolate, model=model, prior=prior,
            tracking_uri=tracking_uri,
        )  # fmt: skip
    plan = api.plan(described, answer) if renderer and answer.target else None
    manifest = renderer.render(plan) if renderer and plan else None
    place = file_at(out, f"{described.name}.{'sh' if (manifest or '').startswith('#!') else 'yaml'}") if out else ""
    if manifest and place:
        write_file(place, as_named(place, manifest))
    if manifest is None or place:
        show(answer, output, lambda console: print_recommendation(console, answer, described))
    elif output is Format.json or manifest.startswith("#!"):
        show_data(manifest_data(manifest), output, lambda _: typer.echo(manifest, nl=False))
    else:
        typer.echo(manifest, nl=False)
    if renderer and plan:
        for remark in api.remarks_on(renderer, plan):
            stderr().print(remark, style="yellow", soft_wrap=True)
    if place:
        told = f"The {executor or 'local'} plan is in {place}" if manifest else f"Nothing is written to {place}."
        stderr().print(told, soft_wrap=True)
    raise typer.Exit(_EXIT_CODES[answer.status])
