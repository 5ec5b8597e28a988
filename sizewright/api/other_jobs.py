"""Where a store holds no trial of a job: which trials it does hold, and in which keys their jobs differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from sizewright.api._records import StoreLike
from sizewright.api.inputs import its_store
from sizewright.datasets.store import MeasuredJob
from sizewright.errors import NoTrialsError
from sizewright.spec import Job, Recommendation, Remedy
from sizewright.spec.identity import differences
from sizewright.spec.units import format_count

_SHOWN_JOBS, _SHOWN_KEYS = 2, 4
_MOST_KEYS = 8
"""A job that differs in more of them is another one, not this one with a slip."""


class _Other(NamedTuple):
    measured: MeasuredJob
    differs: dict[str, tuple[Any, Any]] | None
    """None where nobody described the job."""


def tell_other_jobs(job: Job, answer: Recommendation, store: StoreLike | None) -> Recommendation:
    """Return the answer with what the store holds of other jobs, and how their trials could be used.

    An answer that a prior gave is told of trials of a job of the same name only.
    """
    try:
        with its_store(store, create=False) as opened:
            described, measured = opened.history.jobs(), opened.measured_jobs()
    except NoTrialsError:
        return answer
    others = [
        _Other(each, differences(described[each.job_hash], job) if each.job_hash in described else None)
        for each in measured
    ]
    if answer.status == "ok":
        others = [other for other in others if other.measured.job == job.name]
    if not others:
        return answer
    others.sort(key=lambda o: (o.measured.job != job.name, len(o.differs) if o.differs is not None else 99))
    more = len(others) - _SHOWN_JOBS
    sentences = [_sentence(other) for other in others[:_SHOWN_JOBS]]
    sentences += [f"Trials of {format_count(more, 'other job')} are there, too."] if more > 0 else []
    texts = [remedy.text for remedy in answer.remedies]
    if answer.status != "ok" and (first := _remedy(others[0])):
        texts.insert(0, first)
    reasons = (*answer.reasons, " ".join(sentences))
    return answer.model_copy(update={"reasons": reasons, "remedies": Remedy.numbered(texts)})


def _sentence(other: _Other) -> str:
    (name, key, trials), differs = other
    count = format_count(trials, "trial")
    are = "is" if trials == 1 else "are"
    if key is None:
        return f"{count} in the store {are} assigned to no job."
    if differs is None:
        return f"{count} of {name or key} {are} in the store, but the store does not describe that job."
    if len(differs) > _MOST_KEYS:
        return f"{count} of {name or key} {are} in the store, which is another job: {len(differs)} keys differ."
    keys = [f"{key} ({_shown(there)} there, {_shown(here)} here)" for key, (there, here) in differs.items()]
    keys = keys[:_SHOWN_KEYS] + ([f"{len(keys) - _SHOWN_KEYS} more keys"] if len(keys) > _SHOWN_KEYS else [])
    listed = f"{', '.join(keys[:-1])} and {keys[-1]}" if len(keys) > 1 else keys[0]
    return f"{count} of {name or key} {are} in the store; that job differs in {listed}."


def _remedy(other: _Other) -> str:
    """How to use the trials of the most similar job; nothing where they are of a job that is quite another."""
    differs = other.differs
    if other.measured.job_hash is None:
        return "If these trials are of this job, import their file again: sizewright trials import FILE --job JOB."
    if differs is None or len(differs) > _MOST_KEYS:
        return ""
    there = differs.get("data.path", (None, None))[0]
    if there and differs.keys() <= {"data.path", "data.format"}:
        return f"To use these trials, name the data that they were measured with: PATH/{there} (--data)."
    names = ", ".join(list(differs)[:_SHOWN_KEYS])
    return (
        f"To use these trials, set {names} as there. If they are of this job all the same, assign them to it: "
        "sizewright trials export trials.csv --job THAT_JOB; sizewright trials import trials.csv --job JOB."
    )


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        text = " ".join(map(str, value))
        return text if len(text) <= 40 else f"{len(value)} values"
    return str(value)
