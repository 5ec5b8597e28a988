"""The rows of a benchmark that takes long, each kept at once, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks._report import QUICK


class KeptRows:
    """The rows of a benchmark in `results/NAME_runs.jsonl`; those of a short form are in `out/`.

    Without the argument `--resume`, and in a short form, a run starts without rows.
    """

    def __init__(self, name: str) -> None:
        folder = Path("out") if QUICK else Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        self._path = folder / f"{name}_runs.jsonl"
        if "--resume" not in sys.argv or QUICK:
            self._path.write_text("", encoding="utf-8")
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.rows.append(row)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def remove(self) -> None:
        """Remove the file, when its figures are kept."""
        self._path.unlink()
