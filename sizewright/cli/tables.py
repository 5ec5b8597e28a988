"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sizewright.cli.layout import DataTable
from sizewright.formatting import (
    describe_interval,
    format_bytes,
    format_cost,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_probability,
    format_seconds,
)

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.datasets.runs.finished_job import FinishedJob
    from sizewright.datasets.trial_bank.noise import RepeatNoise
    from sizewright.datasets.trials.trial import Trial
    from sizewright.spec import (
        Allocation,
        Estimate,
        Evidence,
        Job,
        MemoryReport,
        PredictedAllocation,
        Prediction,
        PredictionAnswer,
        Recommendation,
    )


def trials_table(trials: Sequence[Trial]) -> DataTable:
    """Return one row per trial."""
    loaders = any(trial.loaders is not None for trial in trials)
    table = DataTable(
        "Trials (replicas × cores)", "workers", "PS", "batch", *["loaders"] * loaders, "tables", "samples/s", "±",
        "limited by", "status", text=("limited by", "status"),
    )  # fmt: skip
    for t in trials:
        rate = format_number(t.throughput) if t.throughput else "–"
        error = format_percent(t.throughput_se / t.throughput, 1) if t.throughput and t.throughput_se else "–"
        size = format_bytes(t.embedding_bytes) if t.embedding_bytes else "–"
        servers = _replicas_and_cores(t.ps, t.ps_cpu) if t.ps else "–"
        gpus = f" + {format_count(t.worker_gpu, 'GPU')}" if t.worker_gpu else ""
        sizes = [_replicas_and_cores(t.workers, t.worker_cpu) + gpus, servers, str(t.batch_size or "–")]
        sizes += ["–" if t.loaders is None else str(t.loaders)] * loaders
        table.add_row(*sizes, size, rate, error, t.limited_by or "–", t.status)
    return table


def models_table(rows: Sequence[Mapping[str, Any]], trials: int) -> DataTable:
    """Return one row per table and model; the smallest error of each table is marked."""
    table = DataTable(
        f"Models from {trials} space-filling trials (median error; 90 % intervals)",
        "table", "model", "error near the best", "anywhere", "coverage", "interval score", "fitted",
        text=("table", "model"),
    )  # fmt: skip
    for row in rows:
        errors = [r["anywhere"] for r in rows if r["table"] == row["table"] and r["anywhere"] is not None]
        if row["anywhere"] is None:
            table.add_row(row["table"], row["model"], "–", "–", "–", "–", "0 %")
            continue
        shares = ["–" if row[key] is None else format_percent(row[key], 1) for key in ("near", "anywhere", "coverage")]
        score = "–" if row["interval_score"] is None else format_number(row["interval_score"])
        name = ("→ " if row["anywhere"] == min(errors) else "") + row["model"]
        table.add_row(row["table"], name, *shares, score, format_percent(row["fitted"]))
    return table


def history_table(runs: Sequence[FinishedJob]) -> DataTable:
    """Return one row per finished job."""
    table = DataTable(
        "Finished jobs (replicas × cores)", "job", "started", "status", "workers", "PS", "samples/s", "expected",
        "peak of a worker", "of a PS", text=("job", "started", "status"),
    )  # fmt: skip
    for run in runs:
        longest = max(run.stretches, key=lambda segment: segment.duration_s, default=None)
        sizes = [sized_role(longest.allocation, role) if longest else "–" for role in ("worker", "ps")]
        expected = run.expected
        rates = [
            format_number(run.throughput) if run.throughput else "–",
            format_interval(expected.value, expected.lower, expected.upper)[0] if expected else "–",
        ]
        peaks = [
            format_bytes(role.memory_peak_bytes) if role.memory_peak_bytes else "–" for role in (run.worker, run.ps)
        ]
        started = f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else "–"
        table.add_row(run.name, started, run.outcome.status, *sizes, *rates, *peaks)
    return table


def versions_table(rows: Sequence[Mapping[str, Any]]) -> DataTable:
    """Return one row per registered prior, the newest first."""
    table = DataTable(
        "Learned priors", "version", "aliases", "made", "trials", "held-out error", "coverage", "meaning",
        text=("aliases", "made", "meaning"),
    )  # fmt: skip
    for row in rows:
        errors = (row.get(f"metric.held_out_{name}") for name in ("job_mdape", "coverage"))
        shares = ["–" if error is None else format_percent(float(error), 1) for error in errors]
        names = ", ".join(row["aliases"])
        table.add_row(str(row["version"]), names, row["made"], row.get("trials", "–"), *shares, row.get("reason", ""))
    return table


def priors_table(rows: Sequence[Mapping[str, Any]]) -> DataTable:
    """Return one row per registered prior and family."""
    table = DataTable(
        "Learned priors on held-out jobs", "version", "family", "jobs", "median error", "regret", "coverage",
        text=("family",),
    )  # fmt: skip
    for row in rows:
        shares = [format_percent(row[name], 1) for name in ("mdape", "regret", "coverage")]
        table.add_row(str(row["version"]), row["family"], f"{row['jobs']:.0f}", *shares)
    return table


def _print_without_target(console: Console, answer: Recommendation | PredictionAnswer) -> None:
    """Print why there is no target or prediction, and what to do."""
    console.print(f"{answer.job}: {answer.status.replace('_', ' ')}", style="bold")
    for reason in answer.reasons:
        console.print(reason)
    for remedy in answer.remedies:
        console.print(f"  {remedy.number}. {remedy.text}")


def print_recommendation(console: Console, answer: Recommendation, job: Job | None = None) -> None:
    """Print a recommendation; the table of candidates marks the chosen row."""
    if answer.target is None or answer.predicted is None:
        _print_without_target(console, answer)
        return
    console.print(_candidates(answer))
    console.print(_sizes(answer))
    if answer.machines:
        console.print(_machines(answer, job))
    _print_expected(console, answer, job)
    for reason in answer.reasons:
        console.print(f"• {reason}")
    evidence = answer.evidence
    console.print(f"Based on {_describe_source(evidence)}; model {evidence.model}.")
    for text in evidence.assumptions:
        console.print(f"assumes: {text}", style="dim")
    for text in evidence.to_be_surer:
        console.print(f"suggested trial: {text}", style="dim")


def _describe_source(evidence: Evidence) -> str:
    """Return how many trials there were, at how many allocations, and on which hosts."""
    if not evidence.trials:
        return "no trial of this job"
    names = ", ".join(evidence.host)
    host = f"host{'s' if len(evidence.host) > 1 else ''} {names}" if names else "an unnamed host"
    limit = "the limit of their cores is unknown"
    if evidence.limited_by:
        limit = f"cores limited by {', '.join(evidence.limited_by)}"
    allocations = format_count(evidence.distinct_allocations, "allocation")
    return f"{format_count(evidence.trials, 'trial')} at {allocations}, on {host}, {limit}"


def print_prediction(console: Console, answer: PredictionAnswer) -> None:
    """Print the allocation that was asked for together with the recommended one, or why nothing can be predicted."""
    if answer.asked is None:
        _print_without_target(console, answer)
        return
    has_total = answer.asked.predicted.completion_time_s is not None
    loaders = answer.asked.allocation.loaders is not None
    rows = {"asked": answer.asked, "recommended": answer.recommended}
    on_hosts = any(row and row.machines for row in rows.values())
    table = DataTable(
        f"{answer.job}: what to expect (replicas × cores)",
        "", "workers", "PS", "batch", *["loaders"] * loaders, "samples/s", "90 % interval", "measured",
        *(("time", "cost") if has_total else ("cost per hour",)),
        "memory per worker", "memory per PS", "workers busy", "PS busy", *["hosts"] * on_hosts, text=("", "hosts"),
    )  # fmt: skip
    for name, row in rows.items():
        if row is not None:
            cells = [row.machines.describe() if row.machines else "–"] * on_hosts
            table.add_row(name, *_predicted_cells(row), *cells, style="bold green" if name == "recommended" else "")
    console.print(table)
    for reason in answer.reasons:
        console.print(f"• {reason}")
    console.print(f"Based on {_describe_source(answer.evidence)}; model {answer.evidence.model}.")
    for text in answer.evidence.assumptions:
        console.print(f"assumes: {text}", style="dim")


def _predicted_cells(row: PredictedAllocation) -> list[str]:
    predicted, allocation = row.predicted, row.allocation
    rate = predicted.throughput
    value, lower, upper = format_interval(rate.value, rate.lower, rate.upper)
    measured = "–"
    if row.measured:
        measured = f"{format_number(row.measured.throughput.value)} ({format_count(row.measured.trials, 'trial')})"
    totals = ["–" if predicted.price_per_hour is None else format_number(predicted.price_per_hour)]
    if predicted.completion_time_s:
        cost = predicted.cost and format_interval(predicted.cost.value, predicted.cost.lower, predicted.cost.upper)[0]
        totals = [format_seconds(predicted.completion_time_s.value), cost or "–"]
    memory = [" + ".join(g.describe_memory() for g in groups) or "–" for groups in (allocation.worker, allocation.ps)]
    busy = (predicted.worker_utilization, predicted.ps_utilization)
    return [
        *(sized_role(allocation, role) for role in ("worker", "ps")),
        str(allocation.batch_size),
        *([] if allocation.loaders is None else [str(allocation.loaders)]),
        value,
        f"{lower}–{upper}",
        measured,
        *totals,
        *memory,
        *("–" if share is None else format_percent(share) for share in busy),
    ]


def _candidates(answer: Recommendation) -> DataTable:
    objective = f"{answer.objective}; " if answer.objective else ""
    per = "" if all(row.cost is not None for row in answer.alternatives) else " per 1M samples"
    loaders = any(row.allocation.loaders is not None for row in answer.alternatives)
    table = DataTable(
        f"{answer.job}: throughput against cost ({objective}replicas × cores)",
        "", "workers", "PS", "batch", *["loaders"] * loaders, "samples/s", "90 % interval", f"time{per}", f"cost{per}",
    )  # fmt: skip
    for row in answer.alternatives:
        rate = row.throughput
        value, lower, upper = format_interval(rate.value, rate.lower, rate.upper)
        time_s, cost = row.time_and_cost()
        table.add_row(
            "→" if row.chosen else "",
            *(sized_role(row.allocation, role) for role in ("worker", "ps")),
            str(row.allocation.batch_size),
            *[str(row.allocation.loaders)] * loaders,
            value,
            f"{lower}–{upper}",
            format_seconds(time_s),
            format_cost(cost, rate.value, rate.lower, rate.upper),
            style="bold green" if row.chosen else "",
        )
    return table


def _sizes(answer: Recommendation) -> DataTable:
    loaders = answer.target is not None and answer.target.loaders is not None
    table = DataTable(
        "What to ask for (replicas × cores)", "", "workers", "memory per worker", "PS", "memory per PS",
        *["loaders"] * loaders, text=("",),
    )  # fmt: skip
    for name in ("target", "lower", "upper", "uncapped"):
        allocation: Allocation | None = getattr(answer, name)
        if allocation is None:
            continue
        cells = []
        for role in ("worker", "ps"):
            groups = getattr(allocation, role)
            cells += [sized_role(allocation, role), " + ".join(g.describe_memory() for g in groups) or "–"]
        cells += [str(allocation.loaders)] * loaders
        table.add_row(name, *cells, style="bold green" if name == "target" else "")
    return table


def _machines(answer: Recommendation, job: Job | None) -> DataTable:
    """Return one row per offer of hosts with its best allocation; the chosen one is marked."""
    has_total = answer.machines[0].cost is not None
    by_deadline = answer.machines[0].deadline_probability is not None
    within = f"within {format_seconds(job.deadline)}" if job and job.deadline else "by the deadline"
    table = DataTable(
        "On which hosts (whole hosts are paid; replicas × cores)", "", "hosts", "workers", "PS", "an hour",
        *["time", "cost", "90 % interval"] * has_total, *[within] * by_deadline, text=("hosts",),
    )  # fmt: skip
    for each in answer.machines:
        cells = [each.describe(), *(sized_role(each.allocation, role) for role in ("worker", "ps"))]
        cells.append(format_number(each.price_per_hour))
        if each.cost and each.completion_time_s:
            cost, lower, upper = format_interval(each.cost.value, each.cost.lower, each.cost.upper)
            cells += [format_seconds(each.completion_time_s.value), cost, f"{lower}–{upper}"]
        if each.deadline_probability is not None:
            cells.append(format_probability(each.deadline_probability))
        table.add_row("→" if each.chosen else "", *cells, style="bold green" if each.chosen else "")
    return table


def _print_expected(console: Console, answer: Recommendation, job: Job | None) -> None:
    predicted = answer.predicted
    assert predicted is not None
    utilization = {"workers": predicted.worker_utilization, "PS": predicted.ps_utilization}
    busy = "".join(f"; {name} {format_percent(share)} busy" for name, share in utilization.items() if share)
    rate = _describe_estimate(predicted.throughput)
    console.print(f"Expect {rate} samples/s: {_describe_total(predicted)}{busy}.", style="bold")
    if machines := answer.chosen_machines:
        console.print(f"Cost is that of {machines.describe()}, at {format_number(machines.price_hour)} an hour each.")
    elif job and not any(reason.kind == "price_per_replica" for reason in answer.reason_details):
        gpus = any(group.gpu for row in answer.alternatives for _, group in row.allocation.groups)
        console.print(f"Cost is computed with prices of {job.prices.describe(gpus=gpus)}.")


def _describe_total(predicted: Prediction) -> str:
    """Return the completion time and the cost of all samples if their number is known, else the cost of an hour."""
    time, cost = predicted.completion_time_s, predicted.cost
    if time is None or cost is None:
        return f"an hour costs {format_number(predicted.price_per_hour or 0.0)}; the completion time is unknown"
    return (
        f"done in {format_seconds(time.value)} ({format_seconds(time.lower)} to {format_seconds(time.upper)}) for a "
        f"cost of {_describe_estimate(cost)}"
    )


def print_memory(console: Console, report: MemoryReport) -> None:
    """Print the memory of each table, then of each number of PS."""
    ranges = any(t.rows_lower != t.rows_upper for t in report.tables)
    shapes = len({(t.dim, t.pooling) for t in report.tables}) > 1 or report.tables[0].pooling != 1
    kinds = {(t.dtype, t.optimizer or report.optimizer) for t in report.tables} != {("float32", report.optimizer)}
    table = DataTable(
        f"{report.job}: memory of the tables ({report.optimizer})",
        "table", "rows", *(["90 % interval"] if ranges else []), *(["dim", "ids"] if shapes else []),
        *(["data type", "optimizer"] if kinds else []),
        "weights", "state", "index", "total", text=("table", "data type", "optimizer"),
    )  # fmt: skip
    for t in report.tables:
        ends = [f"{t.rows_lower:,}–{t.rows_upper:,}" if t.rows_lower != t.rows_upper else "–"] if ranges else []
        shape = [str(t.dim), f"{t.pooling:g}"] if shapes else []
        shape += [t.dtype, t.optimizer or report.optimizer] if kinds else []
        sizes = (t.weight_bytes, t.state_bytes, t.index_bytes, t.total_bytes)
        table.add_row(str(t.table), f"{t.rows:,}", *ends, *shape, *(format_bytes(size) for size in sizes))
    total = report.embedding_bytes + report.index_bytes
    rows = f"{sum(t.rows for t in report.tables):,}"
    table.add_section()
    blanks = [""] * (ranges + 2 * shapes + 2 * kinds + 3)
    table.add_row("all", rows, *blanks, format_bytes(total), style="bold")
    console.print(table)
    if report.workers:
        columns = ("workers", "memory of each", "tables of each", "")
        workers = DataTable("Per worker, margin included", *columns, text=("",))
        for each in report.workers:
            is_fewest = each.workers == report.least_workers
            note, style = ("fewest that fit", "bold green") if is_fewest else (each.reason, "")
            amounts = (format_bytes(each.memory_bytes), format_bytes(each.table_bytes))
            workers.add_row(str(each.workers), *amounts, note, style=style)
        console.print(workers)
        console.print(f"Based on {report.rests_on}.")
        _print_assumptions(console, report)
        return
    servers = DataTable("Per server, margin included", "PS", "memory of each", "", text=("",))
    for option in report.servers:
        is_fewest = option.ps == report.least_ps
        notes = ["fewest that fit" if is_fewest else option.reason]
        if option.oom_probability is not None:
            notes.append(f"out of memory with a probability of {format_percent(option.oom_probability)}")
        style = "bold green" if is_fewest else ""
        servers.add_row(str(option.ps), format_bytes(option.memory_bytes), ", ".join(filter(None, notes)), style=style)
    console.print(servers)
    if report.least_ps is None and report.needed_ps:
        console.print(f"{report.needed_ps} PS would fit. Raise bounds.ps.replicas or bounds.ps.memory.")
    console.print(f"A worker needs {format_bytes(report.worker_memory_bytes)}. Based on {report.rests_on}.")
    _print_assumptions(console, report)


def _print_assumptions(console: Console, report: MemoryReport) -> None:
    for text in report.assumptions:
        console.print(f"assumes: {text}", style="dim")


def print_bank(console: Console, card: Mapping[str, Any], noise: RepeatNoise) -> None:
    """Print the base shapes of a bank and its data card."""
    table = DataTable(
        "Base shapes of the bank", "base shape", "family", "jobs", "batch sizes", "table scales", "modes",
        text=("base shape", "family", "batch sizes", "table scales", "modes"),
    )  # fmt: skip
    jobs = list(card["jobs"].values())
    for base in dict.fromkeys(job["base"] for job in jobs):
        jobs_of_base = [job for job in jobs if job["base"] == base]
        training = [job["job"]["training"] for job in jobs_of_base]
        table.add_row(
            base,
            jobs_of_base[0]["job"]["model"]["family"],
            str(len(jobs_of_base)),
            ", ".join(map(str, sorted({t["batch_size"] for t in training}))),
            ", ".join(f"{scale:g}" for scale in sorted({job["table_scale"] for job in jobs_of_base})),
            ", ".join(sorted({t["sync"] for t in training})),
        )
    console.print(table)
    host = card["host"]
    discarded = sum(each["trials"] for each in card["discarded"])
    versions = ", ".join(f"{name} {number}" for name, number in host["versions"].items())
    console.print(
        f"{format_count(card['trials'], 'trial')} of {format_count(len(jobs), 'job')}, {card['failed']} failed, "
        f"{discarded} discarded; measured "
        f"{card['measured_from'][:10]} to {card['measured_to'][:10]} on "
        f"{format_count(host['cores'], 'core')} ({versions})."
    )
    if noise.pairs:
        console.print(
            f"{noise.pairs} were measured again in another session: they differ by {format_percent(noise.raw, 1)}, "
            f"and by {format_percent(noise.at_usual_speed, 1)} at the host's usual speed."
        )
    for what, how in card["how"].items():
        console.print(f"{what}: {how}", style="dim")
    for each in card["discarded"]:
        console.print(f"discarded: {each['trials']} × {each['reason']}", style="dim")


def keys_table(schema: dict[str, Any]) -> DataTable:
    """Return one row per key of the records of a JSON Schema, with its meaning."""
    table = DataTable(str(schema["title"]), "record", "key", "meaning", text=("record", "key", "meaning"))
    records = {schema["title"]: schema} | schema.get("$defs", {})
    for name, record in records.items():
        for key, definition in record.get("properties", {}).items():
            table.add_row(name, key, str(definition.get("description", "")))
    return table


def _replicas_and_cores(replicas: int, cores: float | None) -> str:
    return f"{replicas} × {cores:g}" if cores else f"{replicas} × –"


def sized_role(allocation: Allocation, role: str) -> str:
    """Return the size of a role as replicas × cores, with GPUs and several groups if any: `4 × 2`."""
    sizes = []
    for group in getattr(allocation, role):
        gpu = f" + {group.gpu.describe()}" if group.gpu else ""
        sizes.append(_replicas_and_cores(group.replicas, group.cpu) + gpu)
    return " + ".join(sizes) or "–"


def _describe_estimate(estimate: Estimate) -> str:
    return describe_interval(estimate.value, estimate.lower, estimate.upper)
