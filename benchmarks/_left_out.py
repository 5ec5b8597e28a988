"""Priors of parameters that were learned without one family of tables (`python -m benchmarks.parameter_prior`)."""

from __future__ import annotations

from pathlib import Path

from benchmarks._measured import family
from sizewright.profiler.planner.measured_table import MeasuredTable

PARAMETERS = Path(__file__).parent / "parameters"
FAMILIES = ("own", "trimtuner", "gavel", "bank")


def learned_family(table: MeasuredTable) -> str:
    """Return the family that a table was made of; low-noise tables are made of TrimTuner's."""
    name = family(table)
    return "trimtuner" if name == "low-noise" else name
