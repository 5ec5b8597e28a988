"""Tables of cluster allocations and of simulations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sizewright.cli.layout import DataTable
from sizewright.cli.tables import sized_role
from sizewright.cluster.problem.candidates import format_amount, resource_label
from sizewright.formatting import format_count, format_number, format_percent, format_seconds

if TYPE_CHECKING:
    from sizewright.spec import ClusterAllocation
    from sizewright.spec.simulation import SimulationAnswer


def shares_table(answer: ClusterAllocation) -> DataTable:
    """Return one row per job."""
    table = DataTable(
        "Who gets what (replicas × cores)", "job", "decision", "workers", "PS", "batch", "samples/s", "candidates",
        text=("job", "decision"),
    )  # fmt: skip
    for share in answer.shares:
        cells = ["–", "–", "–"]
        if share.allocation:
            sizes = [sized_role(share.allocation, role) for role in ("worker", "ps")]
            cells = [*sizes, str(share.allocation.batch_size)]
        rate = format_number(share.throughput) if share.throughput is not None else "–"
        waits = share.decision in ("wait", "suspend")
        style = "yellow" if waits else ""
        table.add_row(share.job, share.decision, *cells, rate, str(share.candidates), style=style)
    return table


def resources_table(answer: ClusterAllocation) -> DataTable:
    """Return one row per resource; the next unit is a core, a GiB or a GPU."""
    table = DataTable("Capacity", "resource", "capacity", "allocated", "use", "gain of next unit", text=("resource",))
    for each in answer.resources:
        use = _percent(each.used / each.capacity) if each.capacity else "–"
        gain = "–" if each.next_unit is None else f"+{format_percent(each.next_unit, 3)}" if each.next_unit else "none"
        amounts = [format_amount(each.resource, value) for value in (each.capacity, each.used)]
        table.add_row(resource_label(each.resource), *amounts, use, gain)
    return table


def simulation_table(simulation: SimulationAnswer) -> DataTable:
    """Return one row per policy and load; ± is half the 95 % interval over the seeds."""
    several = any(row.seeds > 1 for row in simulation.rows)
    table = DataTable(
        f"{format_count(simulation.jobs, 'job')} replayed: mean wait and completion time, use, fairness, changes, "
        "decision time",
        "policy", "load", "wait", "completion", *(["±"] if several else []), "median", "99 %", "makespan", "use",
        "fairness", "suspended", "changed", "decision", text=("policy",),
    )  # fmt: skip
    for row in simulation.rows:
        figures = {name: each.value for name, each in row.figures.items()}
        mean_s = figures["jct_s"]
        half = (row.figures["jct_s"].upper - mean_s) / mean_s if mean_s else 0.0
        half_text = _percent(half) if row.seeds > 1 and math.isfinite(half) else "–"
        table.add_row(
            row.policy,
            f"{row.load:g}",
            format_seconds(figures["queueing_s"]),
            format_seconds(mean_s),
            *([half_text] if several else []),
            *(format_seconds(figures[name]) for name in ("jct_median_s", "jct_p99_s", "makespan_s")),
            _percent(figures["use"]),
            f"{figures['fairness']:.2f}",
            f"{figures['preemptions']:,.0f}",
            f"{figures['changes']:,.0f}",
            f"{figures['decision_p99_s'] * 1e3:,.1f} ms",
        )
    return table


def _percent(share: float) -> str:
    """Return a share in percent with at least two digits, such as `"31 %"` or `"1.6 %"`."""
    return f"{format_number(100 * share, 2)} %"


def unfinished(simulation: SimulationAnswer) -> list[str]:
    """Return a sentence for each policy that left jobs unfinished."""
    return [
        f"{row.policy} at load {row.load:g}: {row.figures['unfinished'].value:,.0f} jobs had not ended by then"
        for row in simulation.rows
        if row.figures["unfinished"].value > 0
    ]
