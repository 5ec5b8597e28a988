"""Render the report as one self-contained HTML file."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import MissingExtraError
from sizewright.formatting import (
    describe_interval,
    format_bytes,
    format_interval,
    format_number,
    format_probability,
    format_seconds,
)
from sizewright.redaction import redacted_data, shown
from sizewright.reporting.contents import Figure, ReportData, figures
from sizewright.reporting.svg import as_svg
from sizewright.runtime.audit_log import Entry
from sizewright.spec import Allocation, Estimate, Job, Machines, Recommendation

_FOLDER = Path(__file__).parent
_STATUS = {"ok": "", "infeasible": "Nothing within the bounds can run.", "not_enough_data": "Not enough data yet."}


def page(data: ReportData, made: datetime | None = None) -> str:
    """Return the HTML file, with the time `made` at which it is written. Raises MissingExtraError without jinja2."""
    job, answer, trials, runs, _ = data.sized
    return str(
        _template().render(
            job=job,
            answer=answer,
            status=_STATUS[answer.status],
            sizes=_sizes(answer),
            expect=_expected(answer, job),
            machines=[_machines(each) for each in answer.machines],
            figures=[_figure(figure) for figure in figures(data)],
            plans=[_plan(entry) for entry in data.plans],
            runs=[_run(run) for run in runs],
            trials=[_trial(trial) for trial in trials],
            made=f"{made:%Y-%m-%d %H:%M %Z}" if made else "",
            version=importlib.metadata.version("sizewright"),
            style=(_FOLDER / "page.css").read_text(),
            script=(_FOLDER / "page.js").read_text(),
            record=_record(answer),
        )
    )


@cache
def _template() -> Any:
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("plots", "jinja2") from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_safe
    )
    return environment.from_string((_FOLDER / "page.html").read_text())


def _safe(value: Any) -> Any:
    """Return a value of the template without secrets and control characters, before it is escaped."""
    return shown(value) if type(value) is str else value  # a string of another type is markup already


def _record(answer: Recommendation) -> str:
    """Return the recommendation as JSON that cannot end the script element that contains it."""
    return json.dumps(redacted_data(json.loads(answer.model_dump_json())), indent=1).replace("<", "\\u003c")


def _figure(figure: Figure) -> dict[str, Any]:
    picture = figure.picture
    columns, rows = picture.numbers if picture else ((), [])
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "why_not": figure.why_not,
        "svg": as_svg(picture, figure.name) if picture else "",
        "alt": picture.alt if picture else "",
        "columns": columns,
        "rows": rows,
    }


def _sizes(answer: Recommendation) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the rows of the table of allocations: the name, and the replicas and memory of each role."""
    if answer.target is None:
        return []
    roles = [role for role, _ in answer.target.groups]
    return [
        (name, [_role_sizes(allocation, role) for role in dict.fromkeys(roles)])
        for name in ("target", "lower", "upper", "uncapped")
        if (allocation := getattr(answer, name)) is not None
    ]


def _role_sizes(allocation: Allocation, role: str) -> tuple[str, str]:
    groups = getattr(allocation, role)
    sizes = " + ".join(f"{g.replicas} × {g.cpu:g} cores" + (f" + {g.gpu.describe()}" if g.gpu else "") for g in groups)
    return sizes or "–", " + ".join(g.describe_memory() for g in groups) or "–"


def _expected(answer: Recommendation, job: Job) -> list[tuple[str, str, str]]:
    predicted = answer.predicted
    if predicted is None:
        return []

    def row(name: str, value: str, lower: str, upper: str) -> tuple[str, str, str]:
        return name, value, f"{lower} to {upper}"

    time, cost = predicted.completion_time_s, predicted.cost
    prices = job.prices.describe(gpus=bool(answer.target and answer.target.gpus()))
    for reason in answer.reason_details:
        if reason.kind == "price_per_replica":
            prices = f"{reason.values['price']:g} per replica-hour"
    if machines := answer.chosen_machines:
        prices = f"{format_number(machines.price_hour)} for each {machines.kind}"
    throughput = row("samples/s", *_interval(predicted.throughput))
    if time is None or cost is None:
        hourly = format_number(predicted.price_per_hour or 0.0)
        return [throughput, ("time", "unknown", "–"), (f"cost of an hour, at {prices}", hourly, "–")]
    return [
        throughput,
        row("time", *map(format_seconds, (time.value, time.lower, time.upper))),
        row(f"cost, at {prices}", *_interval(cost)),
    ]


def _machines(machines: Machines) -> tuple[bool, tuple[str, ...]]:
    """Return whether the hosts are chosen, and the cells of their row."""
    time, cost, probability = machines.completion_time_s, machines.cost, machines.deadline_probability
    return machines.chosen, (
        machines.describe(),
        machines.allocation.describe(),
        format_number(machines.price_per_hour),
        format_seconds(time.value) if time else "–",
        describe_interval(cost.value, cost.lower, cost.upper) if cost else "–",
        "–" if probability is None else format_probability(probability),
    )


def _interval(estimate: Estimate) -> tuple[str, str, str]:
    return format_interval(estimate.value, estimate.lower, estimate.upper)


def _trial(trial: Trial) -> Sequence[str]:
    def number(value: float | None, form: Callable[[float], str] = "{:g}".format) -> str:
        return "–" if value is None else form(value)

    def size(value: float | None) -> str:
        return "–" if value is None else format_bytes(value)

    return (
        trial.started_at.strftime("%Y-%m-%d %H:%M:%S") if trial.started_at else "–",
        trial.status,
        str(trial.workers),
        number(trial.worker_cpu),
        str(trial.ps),
        number(trial.ps_cpu),
        number(trial.batch_size, str),
        number(trial.table_scale),
        number(trial.throughput, format_number),
        number(trial.throughput_se, format_number),
        size(trial.worker_memory_bytes),
        size(trial.ps_memory_bytes),
        trial.limited_by or "–",
        trial.host or "–",
        trial.message or "",
    )


def _run(run: FinishedJob) -> Sequence[str]:
    expected = run.expected
    return (
        run.name,
        f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else "–",
        run.outcome.status,
        run.stretches[-1].allocation.describe() if run.stretches else "–",
        describe_interval(expected.value, expected.lower, expected.upper) if expected else "–",
        format_number(run.throughput) if run.throughput else "–",
        str(len(run.outcome.changes)),
        str(len(run.outcome.failures)),
        run.outcome.message,
    )


def _plan(entry: Entry) -> Sequence[str]:
    result = f"{entry.became}: {entry.why}" if entry.why else entry.became
    return (
        f"{entry.at:%Y-%m-%d %H:%M:%S}",
        entry.kind,
        entry.target.describe(),
        entry.reason,
        entry.asked_by or "–",
        entry.executor,
        result,
        f"{entry.seconds:.1f} s" if entry.seconds else "–",
    )
