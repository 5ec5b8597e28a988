"""Generate the reference of the command line from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from sizewright.cli.app import app

_BEGIN = """# Command line

Every verb of `sizewright`, as in `--help`. This page is generated from the code. Results go to stdout, everything else
to stderr.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed; the message has the reason and a remedy |
| 2 | wrong usage |
| 3 | infeasible within the bounds |
| 4 | not enough data |
| 5 | `models drift`: runs deviate from their predictions |
| 128 + n | stopped by signal n: 130 by Ctrl-C, 143 by SIGTERM; no process keeps running |
"""


def cli_page() -> str:
    """Return the page as Markdown."""
    root = typer.main.get_command(app)
    context = root.make_context("sizewright", [], resilient_parsing=True)
    return "\n".join([_BEGIN, *(_section(each) for each in contexts(root, context))])


def contexts(group: Any, context: Any) -> Iterator[Any]:
    """Yield the context of every command below a group, in the order of the group, without the groups."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        child = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "list_commands"):
            yield from contexts(command, child)
        else:
            yield child


def _section(context: Any) -> str:
    command = context.command
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    parts = [f"## {context.command_path.split(' ', 1)[1]}", f"```text\n{usage}\n```", _paragraphs(command.help)]
    records = [each.get_help_record(context) for each in command.params if each.name != "help"]
    if rows := [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in filter(None, records)]:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    if command.epilog:
        parts.append(f"```text\n{command.epilog.replace(chr(8), '').strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(help_: str | None) -> str:
    """Return the help with one line per paragraph."""
    parts = (help_ or "").replace("\b", "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)
