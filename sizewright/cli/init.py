"""`sizewright init`: write a commented job file."""

from __future__ import annotations

from typing import Annotated

import typer

from sizewright.cli.options import Output
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples


@examples("sizewright init", "sizewright init ctr.yaml --force")
def init(
    path: Annotated[str, typer.Argument(metavar="FILE", help="The job file to write.")] = "job.yaml",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    output: Output = Format.table,
) -> None:
    """Write a commented job file to start from."""
    from importlib.resources import files
    from pathlib import Path

    from sizewright.cli.output import show_data, write_file
    from sizewright.errors import InputError

    if Path(path).exists() and not force:
        raise InputError(f"{path} exists already.", "Name another file, or pass --force.")
    write_file(path, files("sizewright.spec").joinpath("starter.yaml").read_text(encoding="utf-8"))
    text = f"Wrote {path}. Edit it, then run: sizewright profile {path}"
    show_data({"file": path}, output, lambda out: out.print(text, soft_wrap=True))
