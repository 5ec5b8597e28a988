"""Tables of clusters: who gets what, what is left, and what policies lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.cli.tables import new_table, sized_role
from sizewright.cluster.tables import amount, named

if TYPE_CHECKING:
    from rich.table import Table

    from sizewright.spec import Division


def shares_table(division: Division) -> Table:
    """One row a job."""
    made = new_table(
        "Who gets what (replicas × cores)", "job", "decision", "workers", "PS", "batch", "samples/s", "candidates"
    )
    for share in division.shares:
        sizes = (
            [sized_role(share.allocation, "worker"), sized_role(share.allocation, "ps")]
            if share.allocation
            else ["–", "–"]
        )
        batch = str(share.allocation.batch_size) if share.allocation else "–"
        rate = f"{share.throughput:,.0f}" if share.allocation else "–"
        waits = share.decision in ("wait", "suspend")
        made.add_row(
            share.job, share.decision, *sizes, batch, rate, str(share.candidates), style="yellow" if waits else ""
        )
    return made


def resources_table(division: Division) -> Table:
    """One row a resource; the next unit is a core, a GiB, a GPU."""
    made = new_table("The capacity", "resource", "there", "given", "use", "next unit brings")
    for each in division.resources:
        use = f"{each.used / each.capacity:.0%}" if each.capacity else "–"
        brings = f"{each.next_unit:+.3%}" if each.next_unit else "nothing" if each.next_unit == 0 else "–"
        made.add_row(
            named(each.resource), amount(each.resource, each.capacity), amount(each.resource, each.used), use, brings
        )
    return made
