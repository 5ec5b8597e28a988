"""The inputs of a recommendation or prediction, the request that is made from them, and notes on the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sizewright.api._records import ClusterLike, StoreLike, TrialsLike, as_trials
from sizewright.api.inputs import counted_job, evidence_of, load_cluster
from sizewright.api.other_jobs import add_other_jobs
from sizewright.api.priors import custom_predictor, select_prior
from sizewright.datasets.trials.trial import Trial
from sizewright.recommender.sizing.build import SizingAnswer, with_reason
from sizewright.recommender.sizing.remedy_commands import DEFAULT_COMMANDS, RemedyCommands
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.spec import Job
from sizewright.spec.reason import Reason

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike
    from sizewright.datasets.runs.finished_job import FinishedJob
    from sizewright.models import BaseThroughputModel


@dataclass(frozen=True, kw_only=True)
class SizingInputs:
    """A job to size, and where its evidence and its limits come from; the fields are arguments of `recommend`."""

    job: Job
    trials: TrialsLike | None = None
    store: StoreLike | None = None
    cluster: ClusterLike | None = None
    machine: str | None = None
    spot: bool | None = None
    extrapolate: bool = False
    model: str | BaseThroughputModel | None = None
    prior: PriorLike = None
    tracking_uri: str | None = None
    commands: RemedyCommands = DEFAULT_COMMANDS
    """The commands that remedies name."""


def sizing_request(inputs: SizingInputs) -> tuple[SizingRequest, Reason | None]:
    """Return the request with the evidence on the job, and why the prior is not the champion of the registry."""
    job = counted_job(inputs.job)
    custom_model = custom_predictor(inputs.model, inputs.prior)
    prior, why_not_champion = (None, None) if custom_model else select_prior(inputs.prior, inputs.tracking_uri)
    runs: list[FinishedJob] = []
    history: list[FinishedJob] = []
    if inputs.trials is None:
        evidence, history = evidence_of(job, inputs.store, required=prior is None, runs_of_all_jobs=prior is not None)
        runs = [run for run in history if run.key in job.hashes]
    else:
        evidence = as_trials(inputs.trials, has_ps=job.has_ps)
    request = SizingRequest(
        job=job,
        trials=evidence,
        cluster=load_cluster(inputs.cluster),
        machine=inputs.machine,
        spot=inputs.spot,
        model=custom_model,
        extrapolate=inputs.extrapolate,
        prior=prior,
        runs=runs,
        history=history,
        commands=inputs.commands,
    )
    return request, why_not_champion


def with_notes(
    answer: SizingAnswer, inputs: SizingInputs, request: SizingRequest, why_not_champion: Reason | None
) -> SizingAnswer:
    """Return the answer with reasons that concern the origin of its evidence: other jobs, and the registry."""
    if inputs.trials is None and not request.trials:
        answer = add_other_jobs(request.job, answer, inputs.store, inputs.commands)
    if why_not_champion:
        answer = with_reason(answer, why_not_champion)
    if inputs.trials is not None and (reason := _trials_of_another_job(request.job, request.trials)):
        answer = with_reason(answer, reason)
    return answer


def _trials_of_another_job(job: Job, trials: Sequence[Trial]) -> Reason | None:
    """Return a note on the trials that were measured for another job, if there are any."""
    others = [trial for trial in trials if trial.job_hash and trial.job_hash not in job.hashes]
    if not others:
        return None
    return Reason.of("trials_of_another_job", others=len(others), trials=len(trials), name=others[0].job or None)
