"""Explain, for a job without trials in the store, which other jobs have trials there and how these jobs differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from sizewright.api._records import StoreLike
from sizewright.api.inputs import opened_store
from sizewright.datasets.trials.store import MeasuredJob
from sizewright.errors import NoTrialsError
from sizewright.recommender.sizing.build import with_reason
from sizewright.recommender.sizing.remedy_commands import DEFAULT_COMMANDS, RemedyCommands
from sizewright.spec import Job, Recommendation, Remedy
from sizewright.spec.identity import differences
from sizewright.spec.reason import Reason
from sizewright.spec.units import format_count

_SHOWN_JOBS, _SHOWN_KEYS = 2, 4
_MAX_DIFFERENCES = 8
"""A job with more differing keys is a different job, not this one with a typing error."""


class _OtherJob(NamedTuple):
    """A job with trials in the store, and the keys in which it differs from the job to size."""

    measured: MeasuredJob
    differences: dict[str, tuple[Any, Any]] | None
    """(stored value, value of the job to size) by key; None where the store holds no description of the job."""


def add_other_jobs(
    job: Job, answer: Recommendation, store: StoreLike | None, commands: RemedyCommands = DEFAULT_COMMANDS
) -> Recommendation:
    """Return the answer with a reason that lists other jobs with trials in the store, and a remedy that uses them.

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
    sentences = [_sentence(other) for other in others[:_SHOWN_JOBS]]
    more = len(others) - _SHOWN_JOBS
    if more > 0:
        sentences.append(f"The store also holds trials of {format_count(more, 'other job')}.")
    texts = [remedy.text for remedy in answer.remedies]
    if answer.status != "ok" and (first := _remedy(others[0], commands)):
        texts.insert(0, first)
    answer = answer.model_copy(update={"remedies": Remedy.numbered(texts)})
    return with_reason(answer, Reason.of("other_jobs_in_store", text=" ".join(sentences)))


def _sentence(other: _OtherJob) -> str:
    (name, job_hash, trials), differing = other
    holds = f"The store holds {format_count(trials, 'trial')}"
    if job_hash is None:
        return f"{holds} that {'is' if trials == 1 else 'are'} assigned to no job."
    label = name or job_hash
    if differing is None:
        return f"{holds} of {label}, but no description of that job."
    if len(differing) > _MAX_DIFFERENCES:
        return f"{holds} of {label}, which is another job: {len(differing)} keys differ."
    keys = [f"{key} ({_shown(stored)} there, {_shown(asked)} here)" for key, (stored, asked) in differing.items()]
    if len(keys) > _SHOWN_KEYS:
        keys = [*keys[:_SHOWN_KEYS], f"{len(keys) - _SHOWN_KEYS} more keys"]
    listed = f"{', '.join(keys[:-1])} and {keys[-1]}" if len(keys) > 1 else keys[0]
    return f"{holds} of {label}, which differs in {listed}."


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


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        text = " ".join(map(str, value))
        return text if len(text) <= 40 else f"{len(value)} values"
    return str(value)
