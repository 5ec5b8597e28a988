"""Tables of clusters: who gets what, what is left, and what policies lead to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sizewright.cli.layout import DataTable
from sizewright.cli.tables import sized_role
from sizewright.cluster.candidates import amount, named
from sizewright.spec.units import format_count, format_number, format_seconds

if TYPE_CHECKING:
    from sizewright.spec import Division
    from sizewright.spec.simulation import Simulation


def shares_table(division: Division) -> DataTable:
    """One row a job."""
    made = DataTable(
        "Who gets what (replicas × cores)", "job", "decision", "workers", "PS", "batch", "samples/s", "candidates",
        text=("job", "decision"),
    )  # fmt: skip
    for share in division.shares:
        sizes = (
            [sized_role(share.allocation, "worker"), sized_role(share.allocation, "ps")]
            if share.allocation
            else ["–", "–"]
        )
        batch = str(share.allocation.batch_size) if share.allocation else "–"
        rate = format_number(share.throughput) if share.throughput is not None else "–"
        waits = share.decision in ("wait", "suspend")
        made.add_row(
            share.job, share.decision, *sizes, batch, rate, str(share.candidates), style="yellow" if waits else ""
        )
    return made


def resources_table(division: Division) -> DataTable:
    """One row a resource; the next unit is a core, a GiB, a GPU."""
    made = DataTable("The capacity", "resource", "there", "given", "use", "next unit brings", text=("resource",))
    for each in division.resources:
        use = f"{each.used / each.capacity:.0%}" if each.capacity else "–"
        brings = f"{each.next_unit:+.3%}" if each.next_unit else "nothing" if each.next_unit == 0 else "–"
        made.add_row(
            named(each.resource), amount(each.resource, each.capacity), amount(each.resource, each.used), use, brings
        )
    return made


def simulation_table(simulation: Simulation) -> DataTable:
    """One row a policy and load; ± is half the 95 % interval over the seeds."""
    several = any(row.seeds > 1 for row in simulation.rows)
    made = DataTable(
        f"{format_count(simulation.jobs, 'job')} replayed: how long they wait and take, "
        f"what is used, what is done to them",
        "policy", "load", "wait", "take", *(["±"] if several else []), "median", "99 %", "makespan", "use", "fair",
        "stopped", "changed", "decides", text=("policy",),
    )  # fmt: skip
    for row in simulation.rows:
        told = {name: each.value for name, each in row.figures.items()}
        half = (row.figures["jct_s"].upper - told["jct_s"]) / told["jct_s"] if told["jct_s"] else 0.0
        within = f"{half:.0%}" if row.seeds > 1 and math.isfinite(half) else "–"
        times = [format_seconds(told[name]) for name in ("jct_median_s", "jct_p99_s", "makespan_s")]
        made.add_row(
            row.policy, f"{row.load:g}", format_seconds(told["queueing_s"]), format_seconds(told["jct_s"]),
            *([within] if several else []), *times, f"{told['use']:.0%}",
            f"{told['fairness']:.2f}", f"{told['preemptions']:,.0f}", f"{told['changes']:,.0f}",
            f"{told['decision_p99_s'] * 1e3:,.1f} ms",
        )  # fmt: skip
    return made


def unfinished(simulation: Simulation) -> list[str]:
    """A sentence for each policy that left jobs undone."""
    return [
        f"{row.policy} at load {row.load:g}: {row.figures['unfinished'].value:,.0f} jobs were not done by the end"
        for row in simulation.rows
        if row.figures["unfinished"].value > 0
    ]
