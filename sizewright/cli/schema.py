"""`sizewright schema`: JSON Schemas for editors and pipelines."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from sizewright.cli.options import Output
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples


class Kind(str, Enum):
    """What to print the schema of."""

    job = "job"
    cluster = "cluster"
    recommendation = "recommendation"
    plan = "plan"
    trial = "trial"
    memory = "memory"
    rails = "rails"
    jobs = "jobs"
    division = "division"
    simulation = "simulation"
    checkup = "checkup"


@examples("sizewright schema job > job.schema.json", "sizewright schema cluster --output table")
def schema(
    kind: Annotated[Kind, typer.Argument(help="Which file or result.")] = Kind.job,
    output: Output = Format.json,
) -> None:
    """Print the JSON Schema of a job, cluster or jobs file, of guard rails or of a result; as a table, its keys."""
    from pydantic import BaseModel

    from sizewright.cli.output import show_data
    from sizewright.cli.tables import keys_table
    from sizewright.datasets.trials import Trial
    from sizewright.spec import (
        Checkup,
        Cluster,
        Division,
        Job,
        MemoryReport,
        Plan,
        Queue,
        Rails,
        Recommendation,
        Simulation,
    )

    records: dict[Kind, type[BaseModel]] = {
        Kind.job: Job,
        Kind.cluster: Cluster,
        Kind.recommendation: Recommendation,
        Kind.plan: Plan,
        Kind.trial: Trial,
        Kind.memory: MemoryReport,
        Kind.rails: Rails,
        Kind.jobs: Queue,
        Kind.division: Division,
        Kind.simulation: Simulation,
        Kind.checkup: Checkup,
    }
    text = records[kind].model_json_schema(
        mode="validation" if kind in (Kind.job, Kind.cluster, Kind.rails, Kind.jobs) else "serialization"
    )
    data = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | text
    show_data(data, output, lambda console: console.print(keys_table(text)))
