"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from sizewright.spec.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.datasets.trials import Trial
    from sizewright.spec import Allocation, Estimate, Job, MemoryReport, Recommendation


def trials_table(trials: Sequence[Trial]) -> Table:
    """One row a trial."""
    table = _table(
        "Trials", "workers", "cores", "PS", "cores", "batch", "tables", "samples/s", "±", "limited by", "status"
    )
    for t in trials:
        rate = f"{t.throughput:,.0f}" if t.throughput else "–"
        error = f"{t.throughput_se / t.throughput:.1%}" if t.throughput and t.throughput_se else "–"
        scale = format_bytes(t.embedding_bytes) if t.embedding_bytes else "–"
        cells = (t.workers, _cores(t.worker_cpu), t.ps, _cores(t.ps_cpu), t.batch_size or "–", scale, rate, error)
        table.add_row(*map(str, cells), t.limited_by or "–", t.status)
    return table


def print_recommendation(console: Console, answer: Recommendation, job: Job) -> None:
    """The whole answer; the candidates' table marks the chosen row."""
    if answer.target is None or answer.predicted is None:
        console.print(f"{answer.job}: {answer.status.replace('_', ' ')}", style="bold")
        for reason in answer.reasons:
            console.print(reason)
        for remedy in answer.remedies:
            console.print(f"  {remedy.number}. {remedy.text}")
        return
    console.print(_candidates(answer, job))
    console.print(_sizes(answer))
    _print_expected(console, answer)
    for reason in answer.reasons:
        console.print(f"• {reason}")
    e = answer.evidence
    limits = ", ".join(e.limited_by) or "unknown"
    console.print(
        f"Rests on {e.trials} trials ({e.distinct_allocations} distinct) on {', '.join(e.host) or 'an unnamed host'}, "
        f"cores limited by {limits}; model {e.model}."
    )
    for text in e.assumptions:
        console.print(f"assumes: {text}", style="dim")
    for text in e.to_be_surer:
        console.print(f"to be surer: {text}", style="dim")


def _candidates(answer: Recommendation, job: Job) -> Table:
    title = f"{answer.job}: the best of throughput and cost (objective {job.objective})"
    table = _table(title, "", "workers", "cores", "PS", "cores", "batch", "samples/s", "90 % interval", "time", "cost")
    for row in answer.alternatives:
        a, t = row.allocation, row.throughput
        worker, ps = a.worker[0], a.ps[0]
        cells = (worker.replicas, f"{worker.cpu:g}", ps.replicas, f"{ps.cpu:g}", a.batch_size, f"{t.value:,.0f}")
        rest = (f"{t.lower:,.0f}–{t.upper:,.0f}", format_seconds(row.completion_time_s), f"{row.cost:.3g}")
        mark = "→" if row.chosen else ""
        table.add_row(mark, *map(str, cells), *rest, style="bold green" if row.chosen else "")
    return table


def _sizes(answer: Recommendation) -> Table:
    table = _table("What to ask for", "", "workers", "cores", "memory", "PS", "cores", "memory")
    for name in ("target", "lower", "upper", "uncapped"):
        allocation: Allocation = getattr(answer, name)
        worker, ps = allocation.worker[0], allocation.ps[0]
        cells = (worker.replicas, f"{worker.cpu:g}", format_bytes(worker.memory_bytes))
        more = (ps.replicas, f"{ps.cpu:g}", format_bytes(ps.memory_bytes))
        table.add_row(name, *map(str, cells + more), style="bold green" if name == "target" else "")
    return table


def _print_expected(console: Console, answer: Recommendation) -> None:
    p = answer.predicted
    assert p is not None
    time = p.completion_time_s
    shares = ((name, share) for name, share in (("workers", p.worker_utilization), ("PS", p.ps_utilization)) if share)
    busy = "".join(f"; {name} {share:.0%} busy" for name, share in shares)
    console.print(
        f"Expect {_range(p.throughput)} samples/s: done in {format_seconds(time.value)} "
        f"({format_seconds(time.lower)} to {format_seconds(time.upper)}) for {p.cost.value:.3g} "
        f"({p.cost.lower:.3g} to {p.cost.upper:.3g}){busy}.",
        style="bold",
    )


def print_memory(console: Console, report: MemoryReport) -> None:
    """Table by table, then per server."""
    table = _table(f"{report.job}: memory of the tables ({report.optimizer})", *_MEMORY_COLUMNS)
    for t in report.tables:
        rows = f"{t.rows:,}" if t.rows_lower == t.rows_upper else f"{t.rows:,} ({t.rows_lower:,}–{t.rows_upper:,})"
        sizes = (t.weight_bytes, t.state_bytes, t.index_bytes, t.total_bytes)
        table.add_row(str(t.table), rows, *(format_bytes(size) for size in sizes))
    total = report.embedding_bytes + report.index_bytes
    table.add_section()
    table.add_row("all", f"{sum(t.rows for t in report.tables):,}", "", "", "", format_bytes(total), style="bold")
    console.print(table)
    servers = _table("Per server, margin included", "PS", "memory of each", "")
    for option in report.servers:
        least = option.ps == report.least_ps
        note = "fewest that fit" if least else "" if option.fits else "does not fit the bounds"
        servers.add_row(str(option.ps), format_bytes(option.memory_bytes), note, style="bold green" if least else "")
    console.print(servers)
    console.print(f"A worker needs {format_bytes(report.worker_memory_bytes)}. Rests on {report.rests_on}.")
    for text in report.assumptions:
        console.print(f"assumes: {text}", style="dim")


_MEMORY_COLUMNS = ("table", "rows", "weights", "optimizer state", "index", "total")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "status", "limited by") else "right")
    return table


def _cores(cores: float | None) -> str:
    return f"{cores:g}" if cores else "–"


def _range(estimate: Estimate) -> str:
    return f"{estimate.value:,.0f} ({estimate.lower:,.0f} to {estimate.upper:,.0f})"
