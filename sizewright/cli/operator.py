"""`sizewright operator`: size jobs on a Kubernetes cluster before they start, and while they run."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from sizewright.cli.options import (
    ClusterFile,
    DryRun,
    KubeContext,
    MetricsHost,
    MetricsPortNumber,
    Output,
    Prior,
    RailsFile,
    Store,
    Text,
    Tracking,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sizewright.datasets.trials.trial import Trial
    from sizewright.recommender.control.auto_scale import Scaling
    from sizewright.recommender.control.scaler import AutoScaler
    from sizewright.spec import Job, Recommendation

app = Verbs(
    "Size jobs on a Kubernetes cluster before they start, and while they run.",
    "sizewright operator run --once --dry-run",
    "sizewright operator manifests --image example.com/sizewright:1.0",
)


class Policy(str, Enum):
    """What becomes of a job on which there is not enough data."""

    leave = "leave"
    upper_bound = "upper"
    trials = "trials"


Policies = Annotated[
    Policy,
    typer.Option(
        "--without-data",
        case_sensitive=False,
        help="What to do without enough data: leave the sizes, use the upper ends of the job's bounds, or first run "
        "trial jobs of jobs that are annotated sizewright/trials: yes.",
    ),
]
Namespaces = Annotated[
    Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
    typer.Option("--namespace", help="Only jobs in this namespace."),
]


@app.command("run")
@examples(
    "sizewright operator run --once --dry-run        # what would be done now",
    "sizewright operator run --namespace team-a --without-data upper",
)
def run(
    namespace: Namespaces = None,
    without_data: Policies = Policy.leave,
    dry_run: DryRun = False,
    recreate: Annotated[
        bool,
        typer.Option(
            "--recreate",
            help="Where sizes cannot change, create jobs again that are annotated sizewright/recreate: yes.",
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Take one turn, and exit.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="TIME", parser=read_seconds(1.0), help="Time between two turns, such as 10s."
        ),
    ] = 10.0,
    jobs_per_s: Annotated[
        float, typer.Option("--jobs-per-s", min=0.01, help="Size at most so many jobs a second.")
    ] = 10.0,
    limit: Annotated[
        float,
        typer.Option(
            "--limit",
            metavar="TIME",
            parser=read_seconds(1.0),
            help="Resume a job as it is if it cannot be sized for this time.",
        ),
    ] = 1800.0,
    trial_jobs: Annotated[
        int,
        typer.Option("--trial-jobs", metavar="N", min=1, max=16, help="At most so many trial jobs for a description."),
    ] = 4,
    trial_cores: Annotated[
        float,
        typer.Option("--trial-cores", metavar="CORES", min=0.1, help="Cores of all replicas of a trial job, at most."),
    ] = 8.0,
    trial_time: Annotated[
        float,
        typer.Option(
            "--trial-time",
            metavar="TIME",
            parser=read_seconds(1.0),
            help="Give up a trial job that has trained for this time without a steady speed.",
        ),
    ] = 300.0,
    resize: Annotated[
        bool,
        typer.Option(
            "--resize", help="Resize the pods of running jobs in place, unless annotated sizewright/resize: no."
        ),
    ] = False,
    resize_every: Annotated[
        float,
        typer.Option(
            "--resize-every", metavar="TIME", parser=read_seconds(1.0), help="Time between two looks at a running job."
        ),
    ] = 30.0,
    scale: Annotated[
        bool,
        typer.Option(
            "--scale",
            help="Change the number of workers of running jobs that are annotated sizewright/scale: yes, where the "
            "platform restarts no other worker for that.",
        ),
    ] = False,
    share: Annotated[
        bool,
        typer.Option(
            "--share",
            help="Divide the capacity of --cluster among the jobs: those that run, and those that wait for it.",
        ),
    ] = False,
    share_every: Annotated[
        float,
        typer.Option(
            "--share-every",
            metavar="TIME",
            parser=read_seconds(1.0),
            help="Time between two divisions; arrivals and ends are others.",
        ),
    ] = 300.0,
    store: Store = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    cluster: ClusterFile = None,
    rails: RailsFile = None,
    lease_namespace: Annotated[
        Text, typer.Option("--lease-namespace", metavar="NAME", help="Act only while holding the lease there.")
    ] = None,
    metrics_port: MetricsPortNumber = None,
    metrics_host: MetricsHost = "127.0.0.1",
    kubeconfig: Annotated[Text, typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig to use.")] = None,
    context: KubeContext = None,
    output: Output = Format.table,
) -> None:
    """Size the suspended jobs that have the label sizewright/size, until it is stopped.

    A job's description is in its annotation sizewright/job, in the ConfigMap that its annotation
    sizewright/job-config-map names, or in the history of the store. Without --prior the shipped prior is used.
    Several --namespace may be given. What is told of a job is printed: as one list with --once, else as it happens.
    """
    import json
    from contextlib import ExitStack

    from sizewright.cli.output import show_data
    from sizewright.errors import InputError
    from sizewright.executors.kubernetes.api import KubeApi
    from sizewright.operator.controller import Operator, OperatorSettings
    from sizewright.operator.leadership import Leadership
    from sizewright.operator.metrics import OperatorMetrics
    from sizewright.operator.trial_jobs import TrialSettings
    from sizewright.operator.tuner import OPERATOR_SCALING, TuningSettings
    from sizewright.recommender.control.resize import Resizing
    from sizewright.redaction import shown
    from sizewright.spec import Cluster, Rails

    if share and not cluster:
        raise InputError("--share has no capacity to divide.", "Add --cluster with a cluster file.")
    api = KubeApi(kubeconfig=kubeconfig, context=context)
    metrics = OperatorMetrics()
    settings = OperatorSettings(
        policy=without_data.value,
        rails=Rails.load(rails) if rails else Rails(),
        namespaces=namespace or ("",),
        dry_run=dry_run,
        recreates=recreate and not dry_run,
        copies_in=lease_namespace,
        jobs_per_s=jobs_per_s,
        limit_s=limit,
        trials=TrialSettings(count=trial_jobs, cores=trial_cores, trial_s=trial_time),
        tuning=TuningSettings(
            every_s=resize_every, resizing=Resizing() if resize else None, scaling=OPERATOR_SCALING if scale else None
        ),
        shared=Cluster.load(cluster) if share and cluster else None,
        share_every_s=share_every,
    )
    sizing = {
        "store": store,
        "prior": prior or (None if tracking_uri else "shipped"),
        "tracking_uri": tracking_uri,
        "cluster": cluster,
    }
    leadership: Leadership | None = None

    def check() -> None:
        if leadership:
            leadership.check()

    all_told: list[dict[str, str]] = []

    def told(name: str, message: str) -> None:
        record = {"job": shown(name), "message": shown(message)}
        if output is Format.table:
            typer.echo(f"{record['job']}: {record['message']}")
        elif once:
            all_told.append(record)
        else:
            typer.echo(json.dumps(record))

    operator = Operator(
        api,
        lambda job: _answer(job, sizing),
        lambda: _known_jobs(store),
        settings,
        metrics,
        check=check,
        told=told,
        record=lambda trial: _record(trial, store),
        scaler=lambda job, scaling: _scaler(job, scaling, sizing),
    )
    with ExitStack() as stack:
        if metrics_port is not None:
            stack.callback(metrics.serve(metrics_port, metrics_host).close)
        if lease_namespace:
            leadership = Leadership(api, lease_namespace, metrics.alive)
            leadership.await_lead()
        metrics.is_leader = True
        while True:
            operator.turn()
            if once:
                break
            for error in operator.errors:
                typer.echo(f"Error: {error}", err=True)
            _wait(interval, check)
    if once:
        show_data(all_told, output, lambda _: None)
    if operator.errors:
        raise operator.errors[0]


@app.command("manifests")
@examples(
    "sizewright operator manifests --image example.com/sizewright:1.0",
    "sizewright operator manifests --image example.com/ours:1.0 -- --limit 10m",
)
def manifests(
    image: Annotated[str, typer.Option("--image", help="An image that has Sizewright with the extra `kubernetes`.")],
    install_in: Annotated[
        str, typer.Option("--install-in", metavar="NAME", help="The namespace that the operator runs in.")
    ] = "sizewright",
    namespace: Namespaces = None,
    options: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Argument(
            metavar="-- OPTIONS", help="Options of `operator run`: --without-data, --dry-run, --limit and others."
        ),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Print what to apply to run the operator: Deployment, ServiceAccount, and the least permissions.

    It gets SIZEWRIGHT_STORE and other variables from the secret sizewright-operator, where there is one.
    """
    import itertools
    import sys

    from sizewright.cli.output import show_data
    from sizewright.executors.yaml_documents import to_yaml
    from sizewright.operator.manifests import Activities, operator_manifests

    words = [word for name in namespace or [] for word in ("--namespace", name)]
    words += options or []
    policies = [after for word, after in itertools.pairwise([*words, ""]) if word == "--without-data"]
    policies += [word.partition("=")[2] for word in words if word.startswith("--without-data=")]
    runs_trials = Policy.trials.value in map(str.lower, policies)
    does = Activities("--dry-run" in words, "--recreate" in words, runs_trials, "--resize" in words, "--scale" in words)
    objects = operator_manifests(image, install_in, words, namespace or [], does)
    if output is Format.table:
        sys.stdout.write("---\n".join(to_yaml([], document) for document in objects))
    else:
        show_data({"apiVersion": "v1", "kind": "List", "items": objects}, output, lambda _: None)


def _wait(seconds: float, check: Callable[[], None]) -> None:
    """Wait, and call `check` each second."""
    import time

    until_s = time.monotonic() + seconds
    while (remaining_s := until_s - time.monotonic()) > 0:
        check()
        time.sleep(min(1.0, remaining_s))


def _answer(job: Job, sizing: dict[str, Any]) -> Recommendation:
    from sizewright import api

    return api.recommend(job, **sizing)


def _scaler(job: Job, scaling: Scaling, sizing: dict[str, Any]) -> AutoScaler:
    from sizewright.api.running import auto_scaler

    return auto_scaler(job, scaling, **sizing)


def _record(trial: Trial, store: str | None) -> None:
    from sizewright import api

    with api.open_store(store, create=True) as opened:
        opened.add(trial)


def _known_jobs(store: str | None) -> Sequence[Job]:
    """Return the descriptions in the history; none where there is no store yet."""
    from sizewright import api
    from sizewright.errors import NoTrialsError

    try:
        with api.open_store(store) as opened:
            return list(opened.history.jobs().values())
    except NoTrialsError:
        return []
