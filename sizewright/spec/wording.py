"""The sentences of all typed reasons, in one place.

A sentence is a template of the reason's values, or a function of them where a template is not enough. Besides Python's
own format specifications, templates know those of `_FORMATS` and `count NOUN`; percentages get a space before the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from sizewright.formatting import (
    describe_interval,
    format_bytes,
    format_count,
    format_number,
    format_probability,
    format_seconds,
    write_bytes,
)
from sizewright.redaction import beginning
from sizewright.spec.allocation import Role
from sizewright.spec.reason import Reason, numbered

Values = Mapping[str, Any]
"""The values of a reason; its kind fixes their types."""

AXIS_WORDS = {
    "workers": "workers",
    "ps": "PS",
    "worker_cpu": "cores per worker",
    "ps_cpu": "cores per PS",
    "worker_gpu": "GPUs per worker",
    "batch_size": "batch size",
    "loaders": "loaders",
    "embedding_bytes": "size of the tables",
}
"""How messages name an axis."""
ROLE_WORDS: dict[Role, str] = {"worker": "worker", "ps": "PS"}
"""How messages name a replica of a role."""
_OBJECTIVES = {
    "balanced": "completion time × cost",
    "cost": "cost",
    "time": "completion time",
    "deadline": "cost within the deadline",
}
_RESOURCES: dict[str, Callable[[float], str]] = {
    "cores": lambda cores: format_count(float(cores), "core"),
    "memory_bytes": write_bytes,
    "gpus": lambda gpus: format_count(round(gpus), "GPU"),
}

_MAX_SHOWN = 40  # characters of the value of a key
_REMEDIES = {"migrate": "Replacing it", "rebalance": "Rebalancing the look-ups", "add_worker": "Adding a worker"}
_FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": format_bytes,
    "limit": lambda memory_bytes: format_bytes(memory_bytes) if memory_bytes else "not limited",
    "time": format_seconds,
    "price": format_number,
    "number": lambda value: format_number(value, 4),
    "objective": lambda value: _OBJECTIVES[value],
    "ratio": lambda ratio: f"{ratio:,.0f} times" if ratio > 1 else f"1/{1 / ratio:,.0f} of",
    "remedy": lambda value: _REMEDIES[value],
}


class _TemplateFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("count "):
            return format_count(value, format_spec.removeprefix("count "))
        if format_spec in _FORMATS:
            return _FORMATS[format_spec](value)
        if format_spec.endswith("%"):
            return str(super().format_field(value, format_spec)).replace("%", " %")
        return str(super().format_field(value, format_spec))


def sentence(reason: Reason) -> str:
    """Return the sentence of a reason."""
    if reason.kind in _CLAUSES:
        text = clause(reason)
        if "not_allowed" in reason.values:
            return f"It cannot be recommended: {text}."
        if "ruled_out" in reason.values:
            return _filled("The {cap} cap ruled out {ruled_out:count allocation}: ", reason.values) + f"{text}."
        return f"{text[:1].upper()}{text[1:]}."
    template = _SENTENCES[reason.kind]
    return _filled(template, reason.values) if isinstance(template, str) else template(reason.values)


def sentences(reasons: Iterable[Reason]) -> str:
    """Return the sentences of several reasons as one text."""
    return " ".join(map(sentence, reasons))


def clause(reason: Reason) -> str:
    """Return a reason as a clause, without a capital and a full stop, if its kind is worded so."""
    template = _CLAUSES[reason.kind]
    return _filled(template, reason.values) if isinstance(template, str) else template(reason.values)


def not_enough_because(reason: Reason) -> str:
    """Return why there are not enough data."""
    return f"Not enough data: {clause(reason)}."


def infeasible_because(reason: Reason) -> str:
    """Return why no allocation is possible."""
    return f"Infeasible: {clause(reason)}."


def amounts(prefix: str, values: Values, joined_by: str = " and ") -> str:
    """Return the cores, memory and GPUs among the values whose names begin with a prefix, such as `needed`."""
    return joined_by.join(
        write(values[f"{prefix}_{name}"]) for name, write in _RESOURCES.items() if f"{prefix}_{name}" in values
    )


def _filled(template: str, values: Values) -> str:
    return _TemplateFormatter().vformat(template, (), values)


def _straggler(values: Values) -> str:
    unit = "exchange" if values["role"] == "ps" else "step"
    if values.get("than") == "earlier":
        whom, others = "before", "before:"
    else:
        whom, others = "its peers", "the others"
    evidence = _filled(_EVIDENCE[values["cause"]], {**values, "others": others})
    return _filled(f"{{replica}} takes {{ratio:.1f}} times as long as {whom} per {unit}: {evidence}.", values)


def _remedy_saves(values: Values) -> str:
    saved = "{saved_s:.0f} s" if "saved_s" in values else "time for as long as the job runs"
    return _filled(f"{{remedy:remedy}} saves {saved}.", values)


def _memory_bounds(values: Values) -> str:
    needs, limits = [], []
    for role, name in reversed(ROLE_WORDS.items()):
        low, high = values[f"{role}_bytes"], values[f"{role}_max_bytes"]
        limit = values[f"{role}_limit_bytes"]
        if high > limit:
            ends = dict.fromkeys(map(format_bytes, (low, high)))  # once, if both read the same
            needs.append(f"{' to '.join(ends)} per {name}")
            limits.append(f"{format_bytes(limit)} per {name}")
    return f"replicas would need {' and '.join(needs)}; the bounds allow at most {' and '.join(limits)}"


def _gpu_memory(values: Values) -> str:
    least, most = (format_bytes(values[name]) for name in ("needed_bytes", "needed_max_bytes"))
    needs = least if least == most else f"{least} to {most}"
    sources = ["the described tables"] if values["described"] else []
    sources += [_filled("{trials:count trial}", values)] if values["trials"] else []
    return _filled(
        f"each GPU would need {needs} by {' and '.join(sources)}, and those of {{cluster}} have at most "
        "{limit_bytes:bytes}",
        values,
    )


def _quota(values: Values) -> str:
    asked = amounts("needed", values)
    needs = f", and the smallest allocation asks for {asked}" if asked else ""
    return f"the quota of {values['cluster']} is {amounts('limit', values)}{needs}"


def _measured_range(values: Values) -> str:
    axes = [name.removesuffix("_min") for name in values if name.endswith("_min")]
    ranges = ", ".join(f"{AXIS_WORDS[axis]} {_range(axis, values, f'{axis}_')}" for axis in axes)
    unvaried = any(axis.endswith("_cpu") and values[f"{axis}_min"] == values[f"{axis}_max"] for axis in axes)
    kept = "; cores that no trial varied are not lowered" if unvaried else ""
    return f"trials (or the prior) cover {ranges}; less than half or more than twice these is not chosen{kept}"


def _extrapolated(values: Values) -> str:
    axis, subject = values["axis"], values.get("subject", "The target")
    value = _on_axis(axis, values["value"])
    covered = _range(axis, values)
    return f"{subject} is extrapolated in {AXIS_WORDS[axis]}: {value} (trials or the prior cover {covered})."


def _range(axis: str, values: Values, prefix: str = "") -> str:
    return " to ".join(_on_axis(axis, values[f"{prefix}{end}"]) for end in ("min", "max"))


def _on_axis(axis: str, value: float) -> str:
    return format_bytes(value) if axis == "embedding_bytes" else f"{value:g}"


def _interval_too_wide(values: Values) -> str:
    extrapolated = " (which is extrapolated)" if values["extrapolated"] else ""
    template = f"the 90 % interval of the best allocation{extrapolated} spans a factor of {{ratio:,.0f}}"
    text = _filled(template, values)
    if "conflicts" not in values:
        return text
    conflicts = [_conflict(conflict) for conflict in numbered(values, "conflict")]
    if (more := values["conflicts"] - len(conflicts)) > 0:
        conflicts.append(f"and {more} more")
    return f"{text}, since trials contradict each other: {'; '.join(conflicts)}"


def _conflict(values: Values) -> str:
    allocation = ", ".join(
        f"{AXIS_WORDS[axis]} {_on_axis(axis, values[axis])}" for axis in AXIS_WORDS if axis in values
    )
    return _filled(f"({allocation}) measured {{lower:,.0f}} to {{upper:,.0f}} samples/s", values)


def _best_objective(values: Values) -> str:
    in_bounds = " ({in_bounds:,} within the bounds were scored)" if "in_bounds" in values else ""
    return _filled(
        f"The target has the lowest {{objective:objective}} of {{allocations:count allocation}}{in_bounds}.", values
    )


def _machines(values: Values) -> str:
    text = _filled("An hour on {machines} costs {cost:price}", values)
    if "cost_lower" in values:
        cost = describe_interval(values["cost"], values["cost_lower"], values["cost_upper"])
        text = f"The job costs {cost} on {values['machines']}"
    if "deadline_s" in values:
        probability = format_probability(values["probability"])
        text += _filled(f", done within {{deadline_s:time}} with a probability of {probability}", values)
    return text + (_filled("; {other_cost:price} on {other}.", values) if "other" in values else ".")


def _prior_knows_job(values: Values) -> str:
    own_trials = ", and {trials:count trial} given for this job" if values["trials"] else ""
    others = own_trials or "; no other trials of this job were given"
    return _filled(f"Predicted from {{prior_trials:count trial}} of several jobs, this one among them{others}.", values)


def _prior_of_other_jobs(values: Values) -> str:
    others = " and {trials:count trial} of this job" if values["trials"] else "; this job has none yet"
    return _filled(
        f"Predicted from {{prior_trials:count trial}} of other jobs{others}. Most similar job: {{nearest}} (distance "
        "{distance:.1f}; supported up to {limit:.1f}).",
        values,
    )


def _input_bound(values: Values) -> str:
    replicas = "workers or PS" if values["has_ps"] else "workers"
    idle = ", whose cores are idle" if values["use_recorded"] else ""
    reading = ""
    if values["trials_with_phases"]:
        reading = " {trials_reading} of {trials_with_phases:count trial} spent more time on data than on computing."
    return _filled(
        "The input pipeline is probably the bottleneck: throughput stays at about {ceiling:,.0f} samples/s with more "
        f"{replicas}{idle}.{reading} More workers are not "
        "recommended: read faster first (more reader threads or files, a faster store, less to parse).",
        values,
    )


def _bottleneck_reading(values: Values) -> str:
    loaders = values["loaders"]
    if not loaders:
        who = "a worker that reads by itself could read"
    else:
        who = "the loaders deliver" if loaders < 0 else "the loaders ({loaders:.0f} per worker) deliver"
    cores = "" if values["cores"] is None else " Reading takes {cores:.2g} cores of each worker."
    more = " More loaders are beyond bounds.loaders." if values["at_most"] else ""
    return _filled(
        f"Reading data limits the throughput: {who} about {{loading:,.0f}} samples/s in all, and the workers could "
        f"train {{training:,.0f}}.{cores}{more}",
        values,
    )


def _memory_requested(values: Values) -> str:
    parts = []
    for role, name in ROLE_WORDS.items():
        requested, peak = values.get(f"{role}_bytes"), values.get(f"{role}_peak_bytes")
        if requested is None:
            continue
        if peak is not None:
            why = _filled(_MEMORY_DECIDED_BY[values[f"{role}_decided_by"]], {**values, "peak_bytes": peak})
            parts.append(f"{format_bytes(requested)} per {name} ({why})")
        elif values.get(f"{role}_decided_by") == "description":
            why = "the least by the description of its tables; its need was not measured"
            parts.append(f"{format_bytes(requested)} per {name} ({why})")
        elif requested:
            parts.append(f"{format_bytes(requested)} per {name} (its need is unknown: the maximum of the bounds)")
        else:
            parts.append(f"no limit per {name} (its need is unknown: measure it, or set bounds.{role}.memory)")
    return f"Memory requested: {', '.join(parts)}."


def _trial_ignored(values: Values) -> str:
    predicted_by = (
        "the prior and the job's other trials predict" if "compared_trials" in values else "the prior predicts"
    )
    return _filled(
        "A trial with {throughput:,.0f} samples/s at {workers:count worker} and {ps} PS is ignored: its throughput is "
        f"{{ratio:ratio}} what {predicted_by}. Measure it again.",
        values,
    )


def _trials_of_another_job(values: Values) -> str:
    verb = "was" if values["others"] == 1 else "were"
    name = " ({name})" if "name" in values else ""
    return _filled(
        f"{{others:,}} of {{trials:count trial}} {verb} measured for another job{name} but used for this one.", values
    )


def _registry_failed(values: Values) -> str:
    if "source" in values:
        return _filled("{error} The last known champion is used: {source}.", values)
    return _filled("{error} This host has used no champion before, so the shipped prior is used.", values)


def _similar_job_in_store(values: Values) -> str:
    keys = [
        f"{key['name']} ({_shortened(key.get('stored'))} there, {_shortened(key.get('asked'))} here)"
        for key in numbered(values, "key")
    ]
    if (more := values["different_keys"] - len(keys)) > 0:
        keys.append(f"{more} more keys")
    listed = f"{', '.join(keys[:-1])} and {keys[-1]}" if len(keys) > 1 else keys[0]
    return _filled("The store holds {trials:count trial} of {job}, which differs in ", values) + f"{listed}."


def _shortened(value: Any) -> str:
    return beginning("none" if value is None else str(value), _MAX_SHOWN - 1)


def _warm_start(values: Values) -> str:
    sources = []
    if "own_runs" in values:
        sources.append("{own_runs:count earlier run} of this job ({own_weight:.0%})")
    if values["jobs"]:
        sources.append("{runs:count run} of {jobs:count similar job}")
    text = _filled(f"Warm start from {' and '.join(sources)}", values)
    jobs = [_filled("{name} ({weight:.0%})", job) for job in numbered(values, "job")]
    more = f" and {values['jobs'] - len(jobs)} more" if values["jobs"] > len(jobs) else ""
    return f"{text}: {', '.join(jobs)}{more}." if jobs else f"{text}."


def _compared_with_recommended(values: Values) -> str:
    cost = ", at {cost:.2f} times the cost" if "cost" in values else ""
    return _filled(f"It has {{throughput:.2f}} times the throughput of the recommended allocation{cost}.", values)


def _not_better(values: Values) -> str:
    families = {name.removeprefix("family_"): values[name] for name in values if name.startswith("family_")}
    faults = "; ".join(f"at least {ratio:.2f} times the error in {family}" for family, ratio in families.items())
    verdict = _filled(f"Not better by {{margin:.0%}} with no family worse by {{worst_family:.0%}}: {_ERRORS}", values)
    return f"{verdict}: {faults}." if faults else f"{verdict}."


_PEAK = "predicted peak {peak_bytes:bytes}"
_MEMORY_DECIDED_BY = {
    "margin": f"{_PEAK} + a margin of {{margin:.0%}}, in steps of {{step_bytes:bytes}}",
    "measured_total": f"its share of the largest measured total of all PS; {_PEAK}",
    "bounds_minimum": f"the minimum of the bounds; {_PEAK}",
    "bounds_maximum": f"{_PEAK} + a margin of {{margin:.0%}}, up to the maximum of the bounds",
}
"""What decides how much memory is requested."""
_ERRORS = "median error {error:.3f} on {jobs} held-out jobs, against {rival}'s {rival_error:.3f}"
_EVIDENCE = {
    "cpu_cut": "its CPU quota throttles it {throttled:.0%} of the time, {others} {others_throttled:.0%}",
    "busy_host": "it gets {cores:.2f} cores while it works, {others} {others_cores:.2f}",
    "skewed_keys": "it serves {lookups:.1f} times as many look-ups as the others",
    "slow_network": "most of the extra time is spent sending and receiving rows",
    "starved_input": "most of the extra time is spent waiting for samples",
    "all_cores_used": "it uses all of its cores ({cores:.2f})",
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
"""Why the control loop does not act on an observation: clauses, which follow `Skipped:`."""

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
    "share": "{target} is the share of the job when the cluster is divided among all of its jobs.",
    "share_kept": "The job keeps its share of the cluster.",
    "oom_risk": (
        "A PS exceeds its limit of {limit_bytes:bytes} within {within_s:.0f} s with probability {probability:.0%}."
    ),
    "ps_memory_enough": "{ps} PS of {memory_bytes:bytes} suffice until the end.",
    "ps_memory_at_bounds": "The bounds of the job allow no more memory, so nothing is changed.",
    "memory_grows": (
        "The fullest {role} has {memory_bytes:bytes} of {limit_bytes:bytes}, and grows by {growth_bytes:bytes} "
        "a minute."
    ),
    "memory_enlarged": "{memory_bytes:bytes} should be enough.",
    "memory_at_bounds": "The bounds of the job allow no more memory.",
    "cores_idle": "The busiest {role} uses {used:number} of {cpu:count core}; {cpu_after:count core} are enough.",
    "cores_missed": (
        "With fewer cores the job trained {throughput:number} samples/s, {throughput_before:number} before: it gets "
        "them back."
    ),
    "workers_missing": (
        "Only {running} of {requested:count worker} started within {waited_s:.0f} s (expected: {expected_s:.0f} s). "
        "Continuing with {running}."
    ),
    "straggler": _straggler,
    "no_remedy": "No known remedy would help, so nothing is changed.",
    "skew_too_new": "Rebalancing waits until the counts of look-ups are of the time since then.",
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
"""Why the control loop changes a job, or leaves it as it is: sentences."""

_OR_MORE = " or more than "
_CAPS: dict[str, str | Callable[[Values], str]] = {
    "no_limit": "nothing is limited",
    "memory_bounds": _memory_bounds,
    "device_memory": "the memory of a GPU ran out in {trials:count trial}, from batch size {batch_size} on",
    "gpu_memory": _gpu_memory,
    "no_hosts": "cluster {cluster} has no host",
    "hosts": lambda v: (
        f"the hosts of {v['cluster']} cannot hold them (no host has more than {amounts('limit', v, _OR_MORE)})"
    ),
    "replica_too_large": lambda v: (
        f"no host of {v['cluster']} has more than {amounts('limit', v, _OR_MORE)}, and one replica asks for "
        f"{amounts('needed', v)}"
    ),
    "hosts_too_small": lambda v: (
        f"the hosts of {v['cluster']} have {amounts('limit', v)} in total, and the smallest allocation asks for "
        f"{amounts('needed', v)}"
    ),
    "replicas_do_not_fit": ("the replicas of the smallest allocation ({allocation}) do not fit the hosts of {cluster}"),
    "quota": _quota,
    "deadline": (
        "the deadline is {deadline_s:time}; the earliest completion with 90 % probability takes {earliest_s:time}"
    ),
    "measured_range": _measured_range,
    "interval": "an interval of throughput that spans more than a factor of {max_ratio:,.0f} supports no decision",
}
"""Why a cap excludes allocations: clauses, without a capital and a full stop."""

_NOT_ENOUGH: dict[str, str | Callable[[Values], str]] = {
    "no_trials": "there are no trials of this job",
    "no_trial_with_the_roles": lambda v: (
        f"no successful trial has {'workers and PS' if v['has_ps'] else 'workers and no PS'}, as this job does"
    ),
    "no_trial_succeeded": "none of {trials:count trial} succeeded (the last: {last})",
    "no_trial_on_the_gpus": "no successful trial ran on GPUs of kind {kind}",
    "gpu_kinds_mixed": "the trials ran on GPUs of several kinds ({kinds}), whose speeds differ",
    "gpus_not_recorded": (
        "bounds.worker.gpu allows {low} to {high} GPUs, and no trial records those of its workers (worker_gpu)"
    ),
    "model_refused": "{error}",
    "too_few_allocations": "{distinct} distinct allocations were measured and {needed} are needed",
    "interval_too_wide": _interval_too_wide,
}
"""Why the data are not enough: clauses, which follow a colon."""

_TARGET: dict[str, str | Callable[[Values], str]] = {
    "best_objective": _best_objective,
    "prior_knows_job": _prior_knows_job,
    "prior_of_other_jobs": _prior_of_other_jobs,
    "prior_refused": "{error}.",
    "trials_on_other_gpus": (
        "{trials:count trial} on GPUs of another kind ({others}) do not count, since bounds.worker.gpu names {kind}."
    ),
    "prior_ignored": (
        "The prior is ignored: the throughput of the job's {trials:count trial} is {ratio:ratio} the prediction."
    ),
    "warm_start": _warm_start,
    "cold_start": (
        "Cold start: no run of a similar job has a usable throughput, so the prediction is that of the prior."
    ),
    "similar_memory_ignored": "The memory of similar jobs is ignored: no allowed allocation has as much.",
    "similar_runs_ignored": (
        "Runs of similar jobs are ignored: the throughput of the job's own {trials:count trial} is {ratio:.2g} times "
        "what they predict."
    ),
    "trial_ignored": _trial_ignored,
    "deadline_not_used": "The deadline of {deadline_s:time} is not used: the objective is {objective}.",
    "target_without_caps": "Without caps the target would be {allocation}.",
    "input_bound": _input_bound,
    "bottleneck_reading": _bottleneck_reading,
    "bottleneck_reading_unsized": (
        "Reading data limits the throughput: in the nearest trial a worker waits for data in {wait:.0%} of a step. To "
        "size its loaders, too, write {{loaders}} into the command and bounds.loaders."
    ),
    "bottleneck_reading_cores": lambda v: _filled(
        "Reading data limits the throughput: in the nearest trial a worker waits for data in {wait:.0%} of a step, "
        "while it uses {use:.0%} of its cores"
        + ("." if v["cores"] is None else ", {cores:.2g} of them for loaders.")
        + " More cores for each worker help; more loaders do not.",
        v,
    ),
    "bottleneck_computing": lambda v: _filled(
        "Computing limits the throughput: in the nearest trial "
        + ("GPUs compute {use:.0%} of the time." if v["of_gpus"] else "workers use {use:.0%} of their cores."),
        v,
    ),
    "bottleneck_communication": lambda v: _filled(
        "Communication limits the throughput: in the nearest trial "
        + ("GPUs compute only {use:.0%} of the time" if v["of_gpus"] else "workers use only {use:.0%} of their cores")
        + ", and wait for data in {wait:.0%} of a step.",
        v,
    ),
    "loaders_unjudged": (
        "The trials differ in loaders, but do not tell whether steps wait for data, so that loaders are not sized: "
        "call log_samples(n, data_s=…)."
    ),
    "host_state": (
        "The trials are compared as on a host in its mean state: the CPU seconds of a sample varied by about "
        "{host_sd:.0%} from trial to trial."
    ),
    "one_more_worker": (
        "One more worker would change the throughput by {throughput:+.1%} and the price per hour by {price:+.1%}."
    ),
    "extrapolated": _extrapolated,
    "memory_requested": _memory_requested,
    "machines": _machines,
    "spot_without_checkpoints": (
        "Spot hosts are not used: {job} is not checkpointed, so an interruption would lose all work (set "
        "training.checkpoint, such as 30m)."
    ),
    "spot_interruptions_unknown": (
        "Spot hosts of {kinds} are not used, since how often they are taken away is unknown (set interruptions_hour)."
    ),
    "gpu_memory_predicted": "A GPU is predicted to use up to {bytes:bytes}, by {trials:count trial} that measured it.",
    "price_per_replica": (
        "Cost is computed with a price of {price:g} per replica-hour, since no trial records cores and the job sets no "
        "prices."
    ),
}
"""Why an allocation is the target, and what the choice is based on: sentences."""
_COMPARISON: dict[str, str | Callable[[Values], str]] = {
    "compared_with_recommended": _compared_with_recommended,
    "may_run_out_of_memory": lambda v: _filled(
        f"A {ROLE_WORDS[v['role']]} runs out of the memory asked for with a probability of {{probability:.0%}}.", v
    ),
}
"""How an allocation compares with the recommended one: sentences."""
_NOTES: dict[str, str | Callable[[Values], str]] = {
    "no_champion_yet": "{model} has no champion at {registry} yet; the shipped prior is used.",
    "registry_failed": _registry_failed,
    "trials_of_another_job": _trials_of_another_job,
    "unassigned_trials_in_store": lambda v: _filled(
        f"The store holds {{trials:count trial}} that {'is' if v['trials'] == 1 else 'are'} assigned to no job.", v
    ),
    "undescribed_job_in_store": ("The store holds {trials:count trial} of {job}, but no description of that job."),
    "another_job_in_store": (
        "The store holds {trials:count trial} of {job}, which is another job: {different_keys} keys differ."
    ),
    "similar_job_in_store": _similar_job_in_store,
    "more_jobs_in_store": "The store also holds trials of {jobs:count other job}.",
}
"""Notes on where the evidence comes from: sentences."""

_GUARDRAILS: dict[str, str | Callable[[Values], str]] = {
    "rails_paused": "The guardrails pause all plans, so plan {plan} is not applied",
    "cores_unknown": "Plan {plan} has guardrails, but its manifest does not say how many cores {role} requests",
    "priority_class_not_allowed": "job.deploy.priority_class is '{priority_class}' (allowed: {allowed})",
    "replicas_outside_rail": "{role}.replicas is {replicas} (allowed: {min} to {max})",
    "cpu_outside_rail": "{role}.cpu is {cpu:g} (allowed: {min:g} to {max:g})",
    "memory_outside_rail": "{role}.memory is {memory_bytes:limit} (allowed: {min:bytes} to {max:bytes})",
    "step_without_current": (
        "{role}.replicas may change by at most {step}, but the plan names no current allocation (current)"
    ),
    "step_too_large": ("{role}.replicas changes from {current} to {replicas} (at most {step} per change are allowed)"),
    "cores_over_quota": "the cores of all replicas are {cores:g} (quota: {quota:g})",
    "memory_not_limited": "memory is not limited (quota: {quota_bytes:bytes})",
    "memory_over_quota": "the memory of all replicas is {memory_bytes:bytes} (quota: {quota_bytes:bytes})",
    "gpus_over_quota": "the GPUs of all replicas are {gpus} (quota: {quota})",
    "budget_without_prediction": "there is a budget, but the plan has no valid predicted throughput",
    "budget_without_samples": (
        "there is a budget, but the job does not say how many samples it trains (training.samples)"
    ),
    "cost_over_budget": "the predicted cost of all samples is {cost:number} (budget: {budget:number})",
}
"""Why guardrails refuse a plan: clauses; the first two stand alone, the others follow a colon."""

_GATE: dict[str, str | Callable[[Values], str]] = {
    "no_held_out_jobs": "There are no held-out jobs to judge by.",
    "not_better": _not_better,
    "better": f"Better: {_ERRORS}.",
    "no_champion": "There was no champion to compare it with.",
    "champion_unusable": "It was compared with the bank's prior, since the champion cannot be used: {error}",
    "champion_replaced": "Another version became the champion while this one was judged; retrain again.",
    "nothing_new": "Nothing new: version {version} has learned from the same trials and runs.",
}
"""Why a learned prior is promoted, or is not: sentences."""

_CLAUSES = {**_CAPS, **_NOT_ENOUGH, **_GUARDRAILS}

_SENTENCES: dict[str, str | Callable[[Values], str]] = {
    **{kind: f"Skipped: {clause}." for kind, clause in _SKIPPED.items()},
    **_CONTROL,
    **_TARGET,
    **_COMPARISON,
    **_NOTES,
    **_GATE,
}
