"""`sizewright schema`: JSON Schemas for editors and pipelines."""

from __future__ import annotations

from typing import Annotated

import typer

from sizewright.cli.choices import SCHEMAS, among, named
from sizewright.cli.options import Output
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

_INPUTS = ("job", "cluster", "jobs", "rails")
"""Files that users write; the others are results of Sizewright."""


@examples("sizewright schema job > job.schema.json", "sizewright schema cluster --output table")
def schema(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help=f"The file or result: {named(SCHEMAS)}.", autocompletion=among(SCHEMAS)),
    ] = "job",
    output: Output = Format.json,
) -> None:
    """Print the JSON Schema of a file that users write or of a result; as a table, its keys."""
    if kind not in SCHEMAS:
        raise typer.BadParameter(f"'{kind}' is not {named(SCHEMAS)}.", param_hint="'KIND'")
    from sizewright import spec
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import keys_table
    from sizewright.datasets.trials.trial import Trial

    names = {
        "checkup": "Diagnosis",
        "division": "ClusterAllocation",
        "jobs": "Queue",
        "memory": "MemoryReport",
        "prediction": "PredictionAnswer",
        "simulation": "SimulationAnswer",
        "table-placement": "TablePlacement",
        "torchrec-calibration": "TorchrecCalibration",
    }
    record = Trial if kind == "trial" else getattr(spec, names.get(kind, kind.capitalize()))
    json_schema = record.model_json_schema(mode="validation" if kind in _INPUTS else "serialization")
    data = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | json_schema
    show_data(data, output, lambda console: console.print(keys_table(json_schema)))
