"""Everything in `examples/` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sizewright.spec import Job

SIZEWRIGHT = Path(sys.executable).with_name("sizewright")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_file_loads(path: Path) -> None:
    assert Job.load(path).model.tables.count == 26


def test_the_fitted_curve_is_drawn(example: Path, store: str, tmp_path: Path) -> None:
    picture = tmp_path / "fit.png"
    subprocess.run([sys.executable, EXAMPLES / "plot_fit.py", example, store, picture], check=True, timeout=120)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_nightly_script_retrains_where_runs_have_drifted(store: str, tmp_path: Path) -> None:
    told = {
        "STORE": store,
        "URI": f"sqlite:///{tmp_path}/models.db",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    script = str(EXAMPLES / "nightly.sh")
    done = subprocess.run([script], env=told, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "No retraining." in done.stdout
    lost = told | {"PROMETHEUS": "http://127.0.0.1:9"}
    done = subprocess.run([script], env=lost, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode != 0
    assert "does not answer" in done.stderr


def test_mistakes_in_the_pipeline_are_one_sentence(tmp_path: Path) -> None:
    script = [sys.executable, EXAMPLES / "pipeline.py"]
    done = subprocess.run([*script, "no.yaml"], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    done = subprocess.run([*script, "no.yaml", "--samples", "-5"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2


def test_a_cluster_is_divided_and_its_trace_replayed(tmp_path: Path) -> None:
    cluster, trace = EXAMPLES / "cluster", EXAMPLES / "cluster" / "trace.csv"
    words = ["allocate", cluster / "cluster.yaml", cluster / "jobs.yaml", "--out", tmp_path]
    told = subprocess.run([SIZEWRIGHT, *words], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert len(list(tmp_path.glob("*.yaml"))) == 3
    words = ["simulate", trace, "--policy", "default,fifo", "-o", "json"]
    told = subprocess.run([SIZEWRIGHT, *words], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    default, fifo = json.loads(told.stdout)["rows"]
    assert default["figures"]["jct_s"]["value"] < fifo["figures"]["jct_s"]["value"]
