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
    environment = {
        "STORE": store,
        "URI": f"sqlite:///{tmp_path}/models.db",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    script = str(EXAMPLES / "nightly.sh")
    completed = subprocess.run([script], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "No retraining." in completed.stdout
    without_prometheus = environment | {"PROMETHEUS": "http://127.0.0.1:9"}
    completed = subprocess.run(
        [script], env=without_prometheus, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert completed.returncode != 0
    assert "does not answer" in completed.stderr


def test_mistakes_in_the_pipeline_are_one_sentence(tmp_path: Path) -> None:
    script = [sys.executable, EXAMPLES / "pipeline.py"]
    completed = subprocess.run([*script, "no.yaml"], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert completed.returncode == 1
    assert completed.stderr.startswith("Error: ")
    assert "Traceback" not in completed.stderr
    completed = subprocess.run([*script, "no.yaml", "--samples", "-5"], capture_output=True, text=True, timeout=120)
    assert completed.returncode == 2


def test_cluster_is_allocated_and_its_trace_replayed(tmp_path: Path) -> None:
    cluster, trace = EXAMPLES / "cluster", EXAMPLES / "cluster" / "trace.csv"
    args = ["allocate", cluster / "cluster.yaml", cluster / "jobs.yaml", "--out", tmp_path]
    completed = subprocess.run([SIZEWRIGHT, *args], capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
    assert len(list(tmp_path.glob("*.yaml"))) == 3
    args = ["simulate", trace, "--policy", "default,fifo", "-o", "json"]
    completed = subprocess.run([SIZEWRIGHT, *args], capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
    default, fifo = json.loads(completed.stdout)["rows"]
    assert default["figures"]["jct_s"]["value"] < fifo["figures"]["jct_s"]["value"]
