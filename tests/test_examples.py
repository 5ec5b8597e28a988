"""Everything in `examples/` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sizewright.spec import Job

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_file_loads(path: Path) -> None:
    assert Job.load(path).model.tables.count == 26


def test_the_fitted_curve_is_drawn(example: Path, store: str, tmp_path: Path) -> None:
    picture = tmp_path / "fit.png"
    subprocess.run([sys.executable, EXAMPLES / "plot_fit.py", example, store, picture], check=True, timeout=120)
    assert picture.read_bytes().startswith(b"\x89PNG")
