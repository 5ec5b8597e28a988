"""The sentences of all typed reasons, in one place.

A sentence is a template of the reason's values, or a function of them where a template is not enough. Besides Python's
own format specifications, templates know `bytes`, `time`, `number`, `count NOUN` and `remedy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from sizewright.spec.reason import Reason
from sizewright.spec.units import format_bytes, format_count, format_number, format_seconds

Values = Mapping[str, Any]
"""The values of a reason; its kind fixes their types."""

_REMEDIES = {"migrate": "Replacing it", "rebalance": "Rebalancing the look-ups", "add_worker": "Adding a worker"}
_FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": format_bytes,
    "time": format_seconds,
    "number": lambda value: format_number(value, 4),
    "remedy": lambda value: _REMEDIES[value],
}


class _TemplateFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("count "):
            return format_count(value, format_spec.removeprefix("count "))
        if format_spec in _FORMATS:
            return _FORMATS[format_spec](value)
        return str(super().format_field(value, format_spec))


def sentence(reason: Reason) -> str:
    """Return the sentence of a reason."""
    template = _SENTENCES[reason.kind]
    return _filled(template, reason.values) if isinstance(template, str) else template(reason.values)


def sentences(reasons: Iterable[Reason]) -> str:
    """Return the sentences of several reasons as one text."""
    return " ".join(map(sentence, reasons))


def _filled(template: str, values: Values) -> str:
    return _TemplateFormatter().vformat(template, (), values)


def _straggler(values: Values) -> str:
    unit = "exchange" if values["role"] == "ps" else "step"
    evidence = _filled(_EVIDENCE[values["cause"]], values)
    return _filled(f"{{replica}} takes {{ratio:.1f}} times as long as its peers per {unit}: {evidence}.", values)


def _remedy_saves(values: Values) -> str:
    saved = "{saved_s:.0f} s" if "saved_s" in values else "time for as long as the job runs"
    return _filled(f"{{remedy:remedy}} saves {saved}.", values)


_EVIDENCE = {
    "cpu_cut": "its CPU quota throttles it {throttled:.0%} of the time, the others {others_throttled:.0%}",
    "busy_host": "it gets {cores:.2f} cores while it works, the others {others_cores:.2f}",
    "skewed_keys": "it serves {lookups:.1f} times as many look-ups as the others",
    "slow_network": "most of the extra time is spent sending and receiving rows",
    "starved_input": "most of the extra time is spent waiting for samples",
    "too_few_samples": "{count} are too few for a diagnosis",
    "unknown": "no measurement explains it",
}
"""Why a replica is slow, by its cause."""
_EFFECT = "{throughput_times:.2f} times the throughput at {price_times:.2f} times the price"

_SKIPPED: dict[str, str] = {
    "not_observed": "the job cannot be observed ({error})",
    "first_observation": "this is the first observation",
    "clock_stopped": "the clock did not advance",
    "clock_invalid": "the clock returned {clock}",
    "clock_jumped": "a clock jumped: {loop_s:.0f} s passed for the loop, but {job_s:.0f} s for the job",
    "observed_too_soon": "the last observation was just before",
    "samples_decreased": "fewer samples are trained than at the last observation",
    "samples_left_negative": "the number of remaining samples is negative ({samples_left})",
    "counters_decreased": "the counters of {replica} decreased",
    "replica_twice": "a replica is reported twice",
    "numbers_invalid": "{replica} reports invalid numbers",
    "nothing_reported": "no replica has reported anything since the last observation",
    "replicas_missing": "{running} of {requested:count {role} replica} are running",
}
"""Why the control loop does not act on an observation."""

_CONTROL: dict[str, str | Callable[[Values], str]] = {
    "paused": "The loop is paused.",
    "cool_down": "The cool-down lasts {remaining_s:.0f} s more.",
    "cores_not_limited": (
        "The replicas are not limited to their cores, so their speed is no evidence about other allocations."
    ),
    "other_allocations_unknown": "Too little is known about other allocations.",
    "model_not_fitted": "Too little is known about other allocations: {error}",
    "all_samples_trained": "All samples are trained.",
    "trained_too_briefly": "The job has not trained long enough at this allocation.",
    "no_other_allocation": (
        "The allocation is kept: no other allocation is within the bounds, the measured range, and a legal step."
    ),
    "gain_too_small": (
        "The allocation is kept: the best other allocation saves {gain:.1%} of the objective for the remaining work, "
        f"and a change must save at least {{min_gain:.1%}} ({_EFFECT})."
    ),
    "gain": (
        f"{{target}}: {_EFFECT} saves {{gain:.0%}} of the objective for the remaining work, including {{change_s:.1f}} "
        "s for the change (probability of a gain: {probability:.0%})."
    ),
    "oom_risk": (
        "A PS exceeds its limit of {limit_bytes:bytes} within {within_s:.0f} s with probability {probability:.0%}."
    ),
    "ps_memory_enough": "{ps} PS of {memory_bytes:bytes} suffice until the end.",
    "ps_memory_at_bounds": "The bounds of the job allow no more memory, so nothing is changed.",
    "workers_missing": (
        "Only {running} of {requested:count worker} started within {waited_s:.0f} s (expected: {expected_s:.0f} s). "
        "Continuing with {running}."
    ),
    "straggler": _straggler,
    "no_remedy": "No known remedy would help, so nothing is changed.",
    "remedy_unsupported": "The executor cannot {remedy}, so nothing is changed.",
    "remedy_failed": "{remedy:remedy} was tried {tries:count time} and does not help, so nothing is changed.",
    "remedy_costs_more": (
        "{remedy:remedy} may take {change_s:.0f} s and cost {lost_s:.0f} s of training, but would save only "
        "{saved_s:.0f} s."
    ),
    "remedy_saves": _remedy_saves,
    "workers_untested": (
        "Warning: the model's quality was tested with up to {tested} asynchronous workers, not with {workers:g}."
    ),
}
"""Why the control loop changes a job, or leaves it as it is."""

_SENTENCES: dict[str, str | Callable[[Values], str]] = {
    **{kind: f"Skipped: {clause}." for kind, clause in _SKIPPED.items()},
    **_CONTROL,
}
