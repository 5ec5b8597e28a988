"""Every benchmark runs to its end in its smoke form, so that none is broken when it is wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
NEEDED_DATA = {
    "cluster": "data/philly",
    "simulator": "data/philly",
    "simulator_validation": "data/muri",
    "executors": "crds",
    "kubernetes": "crds",
}
NEEDED_PACKAGES: dict[str, Sequence[str]] = {
    "allocators": ["highspy", "ortools"],
    "executors": ["jsonschema"],
    "kubernetes": ["jsonschema", "kubernetes", "torch"],
    "prior": ["lightgbm", "sklearn"],
    "recommend": ["pymoo"],
    "report": ["matplotlib", "jinja2"],
    "retraining": ["mlflow"],
    "trial_efficiency": ["optuna", "botorch"],
    "faults": ["greenlet", "ray", "torch"],
    "gpu": ["torch"],
    **dict.fromkeys(("elasticity", "grids", "own_code", "remeasure", "sealed", "three_stages"), ("ray", "torch")),
}


ONE_RAY = """
import runpy, sys
from sizewright.training.ray.engine import Engine

engine, name = Engine(), sys.argv.pop()
runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
engine.stop()
"""
"""Its sessions would each start a Ray of their own."""
OF_SESSIONS = ("elasticity", "faults", "grids", "remeasure", "sealed", "three_stages")


def kept() -> dict[str, bytes]:
    """The results and tables that full runs keep."""
    return {
        str(path): path.read_bytes()
        for name in ("results", "tables")
        for path in (ROOT / "benchmarks" / name).glob("*")
    }


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_benchmark_ends_with_one_json_line_and_keeps_nothing(name: str, tmp_path: Path) -> None:
    for package in NEEDED_PACKAGES.get(name, []):
        pytest.importorskip(package)
    shared = Path(os.environ.get("SIZEWRIGHT_SHARED", ROOT.parent / "shared"))
    if name in NEEDED_DATA and not (shared / NEEDED_DATA[name]).is_dir():
        pytest.skip(f"{NEEDED_DATA[name]} is not at hand (set SIZEWRIGHT_SHARED)")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"SMOKE": "1", "SIZEWRIGHT_SHARED": str(shared), "PYTHONPATH": path}
    before = kept()
    words = ["-c", ONE_RAY, name] if name in OF_SESSIONS else ["-m", f"benchmarks.{name}"]
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1100, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    line = json.loads(done.stdout.splitlines()[-1])
    assert (line["benchmark"], line["quick"]) == (name, True)
    assert kept() == before


def test_kept_results_name_the_commit_they_were_measured_at() -> None:
    results = sorted((ROOT / "benchmarks").glob("results/*.json")) + sorted((ROOT / "benchmarks").glob("tables/*.json"))
    assert results
    for path in results:
        assert json.loads(path.read_text(encoding="utf-8"))["commit"], path


def test_commit_of_this_tree_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks._report import commit

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert head.startswith(commit().removesuffix("-dirty"))
