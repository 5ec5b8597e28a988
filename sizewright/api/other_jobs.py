"""Explain, for a job without trials in the store, which other jobs have trials there and how these jobs differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from sizewright.api._records import StoreLike
from sizewright.api.inputs import opened_store
from sizewright.datasets.trials.store import MeasuredJob
from sizewright.errors import NoTrialsError
from sizewright.recommender.sizing.build import SizingAnswer, with_reason
from sizewright.recommender.sizing.remedy_commands import DEFAULT_COMMANDS, RemedyCommands
from sizewright.spec import Job, Remedy
from sizewright.spec.identity import differences
from sizewright.spec.reason import Reason, Value

_SHOWN_JOBS, _SHOWN_KEYS = 2, 4
_MAX_DIFFERENCES = 8
"""A job with more differing keys is a different job, not this one with a typing error."""


class _OtherJob(NamedTuple):
    """A job with trials in the store, and the keys in which it differs from the job to size."""

    measured: MeasuredJob
    differences: dict[str, tuple[Any, Any]] | None
    """(stored value, value of the job to size) by key; None where the store holds no description of the job."""


def add_other_jobs(
    job: Job, answer: SizingAnswer, store: StoreLike | None, commands: RemedyCommands = DEFAULT_COMMANDS
) -> SizingAnswer:
    """Return the answer with reasons that name other jobs with trials in the store, and a remedy that uses them.

    An answer that rests on a prior mentions only jobs of the same name.
    """
    try:
        with opened_store(store, create=False) as opened:
            described, measured = opened.history.jobs(), opened.measured_jobs()
    except NoTrialsError:
        return answer
    others = [
        _OtherJob(each, differences(described[each.job_hash], job) if each.job_hash in described else None)
        for each in measured
    ]
    if answer.status == "ok":
        others = [other for other in others if other.measured.job == job.name]
    if not others:
        return answer
    others.sort(key=lambda o: (o.measured.job != job.name, 99 if o.differences is None else len(o.differences)))
    texts = [remedy.text for remedy in answer.remedies]
    if answer.status != "ok" and (first := _remedy(others[0], commands)):
        texts.insert(0, first)
    answer = answer.model_copy(update={"remedies": Remedy.numbered(texts)})
    for other in others[:_SHOWN_JOBS]:
        answer = with_reason(answer, _reason(other))
    if len(others) > _SHOWN_JOBS:
        answer = with_reason(answer, Reason.of("more_jobs_in_store", jobs=len(others) - _SHOWN_JOBS))
    return answer


def _reason(other: _OtherJob) -> Reason:
    (name, job_hash, trials), differing = other
    if job_hash is None:
        return Reason.of("unassigned_trials_in_store", trials=trials)
    label = name or job_hash
    if differing is None:
        return Reason.of("undescribed_job_in_store", trials=trials, job=label)
    if len(differing) > _MAX_DIFFERENCES:
        return Reason.of("another_job_in_store", trials=trials, job=label, different_keys=len(differing))
    keys = [
        {"name": key, "stored": _value(stored), "asked": _value(asked)}
        for key, (stored, asked) in list(differing.items())[:_SHOWN_KEYS]
    ]
    similar = Reason.of("similar_job_in_store", trials=trials, job=label, different_keys=len(differing))
    return similar.adding_each("key", keys)


def _remedy(other: _OtherJob, commands: RemedyCommands) -> str:
    """Return how to use the trials of the most similar job; an empty string when it is an entirely different job."""
    if other.measured.job_hash is None:
        return f"If these trials are of this job, import their file again: {commands.import_trials()}."
    differing = other.differences
    if differing is None or len(differing) > _MAX_DIFFERENCES:
        return ""
    stored_path = differing.get("data.path", (None, None))[0]
    if stored_path and differing.keys() <= {"data.path", "data.format"}:
        return f"To use these trials, pass the data that they were measured with: --data PATH/{stored_path}."
    names = ", ".join(list(differing)[:_SHOWN_KEYS])
    return (
        f"To use these trials, set {names} to the stored values. If they are of this job despite the differences, "
        f"assign them to it: {commands.export_trials('trials.csv', 'THAT_JOB')}; "
        f"{commands.import_trials('trials.csv')}."
    )


def _value(value: Any) -> Value | None:
    """Return a value of a job file as a value of a reason."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
