"""`sizewright doctor`: what this machine can do, and what each lack means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sizewright.cli.options import Output, RayAddress, Store
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec.checkup import Checkup

_BROKEN = 1
_STYLES = {"ok": "green", "lacking": "yellow", "broken": "bold red"}


@examples("sizewright doctor", "sizewright doctor --address 10.0.0.5:6379 --output json")
def doctor(output: Output = Format.table, store: Store = None, address: RayAddress = None) -> None:
    """Check cores, memory, control groups, ports, packages, GPU, Ray and the store, and say what each lack means.
    Exits 1 where sizing itself cannot work.
    """
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar

    with Bar("checking") as bar:
        told = api.doctor(store=store, address=address, progress=lambda name: bar.say(f"checking {name}"))
    show(told, output, lambda console: _print(console, told))
    raise typer.Exit(_BROKEN if told.level == "broken" else 0)


def _print(console: Console, told: Checkup) -> None:
    from sizewright.cli.layout import DataTable

    table = DataTable("", "", "", "", text=("",))
    for check in told.checks:
        rest = [text for text in (check.means, check.remedy) if text]
        table.add_row(check.level, check.name, "\n".join([check.found, *rest]), styles=(_STYLES[check.level],))
    console.print(table)
    lacks = sum(check.level == "lacking" for check in told.checks)
    verdicts = {
        "ok": "All that Sizewright can use is here.",
        "lacking": f"Sizewright works here; what is lacking ({lacks} of {len(told.checks)}) is told above.",
        "broken": "Sizewright cannot work here until what is broken has been mended.",
    }
    console.print(verdicts[told.level])
