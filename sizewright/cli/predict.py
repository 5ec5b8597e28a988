"""`sizewright predict`: what to expect at an allocation that the user has in mind."""

from __future__ import annotations

from typing import Annotated

import typer

from sizewright.cli.options import (
    ClusterFile,
    ColumnMap,
    Count,
    DataPath,
    Deadline,
    Extrapolate,
    JobFile,
    Machine,
    Model,
    Objective,
    Output,
    Prior,
    PsCpu,
    PsMemory,
    Samples,
    Servers,
    Spot,
    Store,
    Tracking,
    TrialsFile,
    WorkerCpu,
    WorkerGpu,
    WorkerMemory,
    Workers,
    read_count,
)
from sizewright.cli.output import Format
from sizewright.cli.sizing_inputs import sizing_inputs
from sizewright.cli.verbs import examples

_NOT_ENOUGH_DATA = 4

Loaders = Annotated[
    Count, typer.Option("--loaders", metavar="N", parser=read_count(0), help="Loader processes of a worker.")
]
BatchSize = Annotated[
    Count, typer.Option("--batch-size", metavar="N", parser=read_count(1), help="Samples per batch of a worker.")
]


@examples(
    "sizewright predict job.yaml --workers 8 --worker-cpu 4",
    "sizewright predict job.yaml --workers 8 --ps 2 --worker-memory 8Gi -o json",
)
def predict(
    job: JobFile,
    workers: Workers = None,
    ps: Servers = None,
    worker_cpu: WorkerCpu = None,
    ps_cpu: PsCpu = None,
    worker_gpu: WorkerGpu = None,
    batch_size: BatchSize = None,
    loaders: Loaders = None,
    worker_memory: WorkerMemory = None,
    ps_memory: PsMemory = None,
    output: Output = Format.table,
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
) -> None:
    """Predict throughput, time, cost, memory and use at an allocation, compared with the recommended one.

    Sizes that you do not give are those of the recommended allocation. Exits with 4 if there is not enough data.
    """
    from sizewright.api.sizing import predict_sizes
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import print_prediction
    from sizewright.spec import Sizes

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
    sizes = Sizes(
        workers=workers,
        ps=ps,
        worker_cpu=worker_cpu,
        ps_cpu=ps_cpu,
        worker_gpu=worker_gpu,
        batch_size=batch_size,
        loaders=loaders,
        worker_memory=worker_memory,
        ps_memory=ps_memory,
    )
    with Bar("predicting"):
        answer = predict_sizes(inputs, sizes)
    show(answer, output, lambda console: print_prediction(console, answer))
    raise typer.Exit(0 if answer.status == "ok" else _NOT_ENOUGH_DATA)
