"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sizewright.cli.layout import DataTable
from sizewright.spec.units import (
    describe_interval,
    describe_prices,
    format_bytes,
    format_cost,
    format_count,
    format_interval,
    format_number,
    format_seconds,
)

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.datasets.bank.noise import RepeatNoise
    from sizewright.datasets.finished import FinishedJob
    from sizewright.datasets.trials import Trial
    from sizewright.spec import Allocation, Estimate, Job, MemoryReport, Prediction, Recommendation


def trials_table(trials: Sequence[Trial]) -> DataTable:
    """One row a trial."""
    table = DataTable(
        "Trials (replicas × cores)", "workers", "PS", "batch", "tables", "samples/s", "±", "held by", "status",
        text=("held by", "status"),
    )  # fmt: skip
    for t in trials:
        rate = format_number(t.throughput) if t.throughput else "–"
        error = f"{t.throughput_se / t.throughput:.1%}" if t.throughput and t.throughput_se else "–"
        size = format_bytes(t.embedding_bytes) if t.embedding_bytes else "–"
        servers = _sized(t.ps, t.ps_cpu) if t.ps else "–"
        cells = (_sized(t.workers, t.worker_cpu), servers, str(t.batch_size or "–"), size, rate, error)
        table.add_row(*cells, t.limited_by or "–", t.status)
    return table


def models_table(rows: Sequence[Mapping[str, Any]], trials: int) -> DataTable:
    """One row a table and model; the least error of each table is marked."""
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
        shares = ["–" if row[key] is None else f"{row[key]:.1%}" for key in ("near", "anywhere", "coverage")]
        score = "–" if row["interval_score"] is None else format_number(row["interval_score"])
        name = ("→ " if row["anywhere"] == min(errors) else "") + row["model"]
        table.add_row(row["table"], name, *shares, score, f"{row['fitted']:.0%}")
    return table


def history_table(runs: Sequence[FinishedJob]) -> DataTable:
    """One row a finished job."""
    table = DataTable(
        "Finished jobs (replicas × cores)", "job", "started", "status", "workers", "PS", "samples/s", "expected",
        "peak of a worker", "of a PS", text=("job", "started", "status"),
    )  # fmt: skip
    for run in runs:
        longest = max(run.stretches, key=lambda stretch: stretch.duration_s, default=None)
        sizes = [sized_role(longest.allocation, role) if longest else "–" for role in ("worker", "ps")]
        e = run.expected
        rates = [
            format_number(run.throughput) if run.throughput else "–",
            format_interval(e.value, e.lower, e.upper)[0] if e else "–",
        ]
        peaks = (run.worker.memory_peak_bytes, run.ps.memory_peak_bytes)
        bytes_ = [format_bytes(peak) if peak else "–" for peak in peaks]
        started = f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else "–"
        table.add_row(run.name, started, run.outcome.status, *sizes, *rates, *bytes_)
    return table


def versions_table(rows: Sequence[Mapping[str, Any]]) -> DataTable:
    """One row a registered prior, the newest first."""
    table = DataTable(
        "Learned priors", "version", "aliases", "made", "trials", "held-out error", "coverage", "meaning",
        text=("aliases", "made", "meaning"),
    )  # fmt: skip
    for row in rows:
        errors = (row.get(f"metric.held_out_{name}") for name in ("job_mdape", "coverage"))
        shares = ["–" if told is None else f"{float(told):.1%}" for told in errors]
        names = ", ".join(row["aliases"])
        table.add_row(str(row["version"]), names, row["made"], row.get("trials", "–"), *shares, row.get("reason", ""))
    return table


def priors_table(rows: Sequence[Mapping[str, Any]]) -> DataTable:
    """One row a registered prior and family."""
    table = DataTable(
        "Learned priors on held-out jobs", "version", "family", "jobs", "median error", "regret", "coverage",
        text=("family",),
    )  # fmt: skip
    for row in rows:
        shares = [f"{row[name]:.1%}" for name in ("mdape", "regret", "coverage")]
        table.add_row(str(row["version"]), row["family"], f"{row['jobs']:.0f}", *shares)
    return table


def print_recommendation(console: Console, answer: Recommendation, job: Job | None = None) -> None:
    """The whole answer; the candidates' table marks the chosen row."""
    if answer.target is None or answer.predicted is None:
        console.print(f"{answer.job}: {answer.status.replace('_', ' ')}", style="bold")
        for reason in answer.reasons:
            console.print(reason)
        for remedy in answer.remedies:
            console.print(f"  {remedy.number}. {remedy.text}")
        return
    console.print(_candidates(answer))
    console.print(_sizes(answer))
    _print_expected(console, answer, job)
    for reason in answer.reasons:
        console.print(f"• {reason}")
    e = answer.evidence
    limits = f"cores limited by {', '.join(e.limited_by)}" if e.limited_by else "what limited their cores is unknown"
    told = f"{format_count(e.trials, 'trial')} ({e.distinct_allocations} distinct) on "
    told += f"{', '.join(e.host) or 'an unnamed host'}, "
    told = f"{told}{limits}" if e.trials else "no trial of this job"
    console.print(f"Rests on {told}; model {e.model}.")
    for text in e.assumptions:
        console.print(f"assumes: {text}", style="dim")
    for text in e.to_be_surer:
        console.print(f"to be surer: {text}", style="dim")


def _candidates(answer: Recommendation) -> DataTable:
    objective = f"{answer.objective}; " if answer.objective else ""
    per = "" if all(row.cost is not None for row in answer.alternatives) else " per M"
    table = DataTable(
        f"{answer.job}: throughput against cost ({objective}replicas × cores)",
        "", "workers", "PS", "batch", "samples/s", "90 % interval", f"time{per}", f"cost{per}",
    )  # fmt: skip
    for row in answer.alternatives:
        rate = row.throughput
        value, lower, upper = format_interval(rate.value, rate.lower, rate.upper)
        time_s, cost = row.time_and_cost()
        table.add_row(
            "→" if row.chosen else "",
            *(sized_role(row.allocation, role) for role in ("worker", "ps")),
            str(row.allocation.batch_size),
            value,
            f"{lower}–{upper}",
            format_seconds(time_s),
            format_cost(cost, rate.value, rate.lower, rate.upper),
            style="bold green" if row.chosen else "",
        )
    return table


def _sizes(answer: Recommendation) -> DataTable:
    table = DataTable(
        "What to ask for (replicas × cores)", "", "workers", "memory a worker", "PS", "memory a PS", text=("",)
    )
    for name in ("target", "lower", "upper", "uncapped"):
        allocation: Allocation | None = getattr(answer, name)
        if allocation is None:
            continue
        cells = []
        for role in ("worker", "ps"):
            groups = getattr(allocation, role)
            cells += [sized_role(allocation, role), " + ".join(g.describe_memory() for g in groups) or "–"]
        table.add_row(name, *cells, style="bold green" if name == "target" else "")
    return table


def _print_expected(console: Console, answer: Recommendation, job: Job | None) -> None:
    p = answer.predicted
    assert p is not None
    shares = ((name, share) for name, share in (("workers", p.worker_utilization), ("PS", p.ps_utilization)) if share)
    busy = "".join(f"; {name} {share:.0%} busy" for name, share in shares)
    console.print(f"Expect {_interval(p.throughput)} samples/s: {_whole(p)}{busy}.", style="bold")
    gpus = any(group.gpu for row in answer.alternatives for _, group in row.allocation.groups)
    if job:
        console.print(f"Cost is counted at {describe_prices(job.prices, gpus=gpus)}.")


def _whole(p: Prediction) -> str:
    """How long all samples take and what they cost, where their number is known."""
    time, cost = p.completion_time_s, p.cost
    if time is None or cost is None:
        return f"an hour costs {format_number(p.price_per_hour or 0.0)}; how long it takes is unknown"
    return (
        f"done in {format_seconds(time.value)} ({format_seconds(time.lower)} to {format_seconds(time.upper)}) for a "
        f"cost of {_interval(cost)}"
    )


def print_memory(console: Console, report: MemoryReport) -> None:
    """Table by table, then per server."""
    counted = any(t.rows_lower != t.rows_upper for t in report.tables)
    table = DataTable(
        f"{report.job}: memory of the tables ({report.optimizer})",
        "table", "rows", *(["90 % interval"] if counted else []), "weights", "state", "index", "total", text=("table",),
    )  # fmt: skip
    for t in report.tables:
        ends = [f"{t.rows_lower:,}–{t.rows_upper:,}" if t.rows_lower != t.rows_upper else "–"] if counted else []
        sizes = (t.weight_bytes, t.state_bytes, t.index_bytes, t.total_bytes)
        table.add_row(str(t.table), f"{t.rows:,}", *ends, *(format_bytes(size) for size in sizes))
    total = report.embedding_bytes + report.index_bytes
    rows = f"{sum(t.rows for t in report.tables):,}"
    table.add_section()
    table.add_row("all", rows, *([""] if counted else []), "", "", "", format_bytes(total), style="bold")
    console.print(table)
    servers = DataTable("Per server, margin included", "PS", "memory of each", "", text=("",))
    for option in report.servers:
        least = option.ps == report.least_ps
        note = "fewest that fit" if least else option.reason
        if option.oom_probability is not None:
            note = f"{note}{', ' if note else ''}too little with a chance of {option.oom_probability:.0%}"
        servers.add_row(str(option.ps), format_bytes(option.memory_bytes), note, style="bold green" if least else "")
    console.print(servers)
    if report.least_ps is None and report.needed_ps:
        console.print(f"{report.needed_ps} PS would fit: let bounds.ps.replicas allow them, or raise bounds.ps.memory.")
    console.print(f"A worker needs {format_bytes(report.worker_memory_bytes)}. Rests on {report.rests_on}.")
    for text in report.assumptions:
        console.print(f"assumes: {text}", style="dim")


def print_bank(console: Console, card: Mapping[str, Any], noise: RepeatNoise) -> None:
    """The data card, then one row a base shape."""
    table = DataTable(
        "Base shapes of the bank", "base shape", "family", "jobs", "batch sizes", "table scales", "modes",
        text=("base shape", "family", "batch sizes", "table scales", "modes"),
    )  # fmt: skip
    jobs = list(card["jobs"].values())
    for base in dict.fromkeys(told["base"] for told in jobs):
        mine = [told for told in jobs if told["base"] == base]
        training = [told["job"]["training"] for told in mine]
        table.add_row(
            base,
            mine[0]["job"]["model"]["family"],
            str(len(mine)),
            ", ".join(map(str, sorted({t["batch_size"] for t in training}))),
            ", ".join(f"{scale:g}" for scale in sorted({told["table_scale"] for told in mine})),
            ", ".join(sorted({t["sync"] for t in training})),
        )
    console.print(table)
    host, discarded = card["host"], sum(told["trials"] for told in card["discarded"])
    versions = ", ".join(f"{name} {number}" for name, number in host["versions"].items())
    console.print(
        f"{format_count(card['trials'], 'trial')} of {format_count(len(jobs), 'job')}, {card['failed']} failed, "
        f"{discarded} discarded; measured "
        f"{card['measured_from'][:10]} to {card['measured_to'][:10]} on "
        f"{format_count(host['cores'], 'core')} ({versions})."
    )
    if noise.pairs:
        console.print(
            f"{noise.pairs} were measured again in another session: one strays by {noise.raw:.1%}, at the host's usual "
            f"speed by {noise.at_usual_speed:.1%}."
        )
    for what, how in card["how"].items():
        console.print(f"{what}: {how}", style="dim")
    for told in card["discarded"]:
        console.print(f"discarded: {told['trials']} × {told['reason']}", style="dim")


def keys_table(schema: dict[str, Any]) -> DataTable:
    """Every key of every record of a JSON Schema, with what it means."""
    table = DataTable(str(schema["title"]), "record", "key", "meaning", text=("record", "key", "meaning"))
    records = {schema["title"]: schema} | schema.get("$defs", {})
    for name, record in records.items():
        for key, told in record.get("properties", {}).items():
            table.add_row(name, key, str(told.get("description", "")))
    return table


def _sized(replicas: int, cores: float | None) -> str:
    return f"{replicas} × {cores:g}" if cores else f"{replicas} × –"


def sized_role(allocation: Allocation, role: str) -> str:
    """`4 × 2`: replicas × cores; GPUs, and several groups, where there are some."""
    return (
        " + ".join(
            _sized(group.replicas, group.cpu) + (f" + {group.gpu.describe()}" if group.gpu else "")
            for group in getattr(allocation, role)
        )
        or "–"
    )


def _interval(estimate: Estimate) -> str:
    return describe_interval(estimate.value, estimate.lower, estimate.upper)
