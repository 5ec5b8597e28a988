"""`sizewright recommend`: recommend an allocation, and render its manifest."""

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
    Machine,
    Model,
    Objective,
    Out,
    Prior,
    RecommendationOutput,
    Roles,
    Samples,
    Spot,
    Store,
    Tracking,
    TrialsFile,
    manifest_options,
)
from sizewright.cli.output import RecommendationFormat
from sizewright.cli.sizing_inputs import sizing_inputs
from sizewright.cli.verbs import examples

_EXIT_CODES = {"ok": 0, "infeasible": 3, "not_enough_data": 4}


@examples(
    "sizewright recommend job.yaml",
    "sizewright recommend job.yaml --prior shipped --objective cost -o json",
    "sizewright recommend job.yaml --executor jobset --out jobset.yaml",
)
def recommend(
    job: JobFile,
    output: RecommendationOutput = RecommendationFormat.table,
    store: Store = None,
    trials: TrialsFile = None,
    map_: ColumnMap = None,
    cluster: ClusterFile = None,
    machine: Machine = None,
    spot: Spot = None,
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
    executor the plan, is written to a file. `-o vpa` prints the status of a VerticalPodAutoscaler. Exits with 3 if no
    allocation is feasible, and with 4 if there is not enough data.
    """
    from sizewright import api
    from sizewright.api.sizing import size
    from sizewright.cli.output import Format, as_named, show, show_data, show_manifest, stderr, write_file
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import print_recommendation
    from sizewright.datasets.files.atomic_write import result_file
    from sizewright.errors import InputError
    from sizewright.executors import get_executor
    from sizewright.executors.kubernetes.vpa import vpa_status

    is_vpa = output is RecommendationFormat.vpa
    if is_vpa and executor and not out:
        raise InputError("-o vpa is a format of the recommendation, not of a manifest.", "Leave one of them out.")
    form = Format.yaml if is_vpa else Format(output.value)
    if (base or role) and not executor:
        raise InputError("--base and --role need the executor of the manifest.", "Name it, such as --executor jobset.")
    renderer = get_executor(executor or "local", **manifest_options(base, role)) if executor or out else None
    inputs = sizing_inputs(
        job,
        store=store,
        trials=trials,
        map_=map_,
        cluster=cluster,
        machine=machine,
        spot=spot,
        data=data,
        samples=samples,
        model=model,
        prior=prior,
        tracking_uri=tracking_uri,
        objective=objective,
        deadline=deadline,
        extrapolate=extrapolate,
    )
    with Bar("sizing"):
        answer = size(inputs).answer
    loaded_job = inputs.job
    status = vpa_status(answer) if is_vpa and answer.target else None
    plan = api.plan(loaded_job, answer) if renderer and answer.target else None
    manifest = renderer.render(plan) if renderer and plan else None
    is_script = bool(manifest and manifest.startswith("#!"))
    path = result_file(out, f"{loaded_job.name}.{'sh' if is_script else 'yaml'}") if out else ""
    if manifest and path:
        write_file(path, as_named(path, manifest))
    if status:
        show_data(status, form, lambda _: None)
    elif is_vpa:
        print_recommendation(stderr(), answer, loaded_job)
    elif manifest is None or path:
        show(answer, form, lambda console: print_recommendation(console, answer, loaded_job))
    else:
        show_manifest(manifest, form)
    if renderer and plan:
        for remark in api.remarks_on(renderer, plan):
            stderr().print(remark, style="yellow", soft_wrap=True)
    if path:
        what = f"{executor} manifest" if executor and executor != "local" else "plan"
        text = f"The {what} is in {path}" if manifest else f"Nothing was written to {path}."
        stderr().print(text, soft_wrap=True)
    raise typer.Exit(_EXIT_CODES[answer.status])
