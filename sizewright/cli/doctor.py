"""`sizewright doctor`: check this machine, and explain what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sizewright.cli.options import Output, RayAddress, Store
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec.diagnosis import Diagnosis

_ERROR = 1
_LEVELS = {"ok": "ok", "lacking": "warning", "broken": "error"}
_STYLES = {"ok": "green", "lacking": "yellow", "broken": "bold red"}


@examples("sizewright doctor", "sizewright doctor --address 10.0.0.5:6379 --output json")
def doctor(output: Output = Format.table, store: Store = None, address: RayAddress = None) -> None:
    """Check cores, memory, control groups, ports, packages, GPU, Ray and the store, and explain what is missing.

    Exits with 1 if sizing cannot work on this machine.
    """
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar

    with Bar("checking") as bar:
        diagnosis = api.doctor(store=store, address=address, progress=lambda name: bar.say(f"checking {name}"))
    show(diagnosis, output, lambda console: _print(console, diagnosis))
    raise typer.Exit(_ERROR if diagnosis.level == "broken" else 0)


def _print(console: Console, diagnosis: Diagnosis) -> None:
    from sizewright.cli.layout import DataTable

    table = DataTable("", "", "", "", text=("",))
    for check in diagnosis.checks:
        text = "\n".join(filter(None, [check.found, check.means, check.remedy]))
        table.add_row(_LEVELS[check.level], check.name, text, styles=(_STYLES[check.level],))
    console.print(table)
    warnings = sum(check.level == "lacking" for check in diagnosis.checks)
    summaries = {
        "ok": "Everything that Sizewright can use is available.",
        "lacking": f"Sizewright works here, with {format_count(warnings, 'warning')} of "
        f"{format_count(len(diagnosis.checks), 'check')}; see above.",
        "broken": "Sizewright cannot work here until the errors above are fixed.",
    }
    console.print(summaries[diagnosis.level])
