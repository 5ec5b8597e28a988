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
PARTS = {
    "elasticity": ["lost", "joining", "overhead", "efficiency", "profile", "auc"],
    "faults": ["live", "hangs", "cuts", "flood", "secrets"],
    "own_code": ["agreement", "answer"],
    "three_stages": ["decisions", "mix", "validation"],
}
"""Parts that a smoke run leaves out unless they are named, since each starts sessions of its own."""
NEEDED_DATA = {"cluster": "data/philly", "simulator": "data/philly", "executors": "crds"}
NEEDED_PACKAGES: dict[str, Sequence[str]] = {
    "allocators": ["highspy", "ortools"],
    "executors": ["jsonschema"],
    "prior": ["lightgbm", "sklearn"],
    "recommend": ["pymoo"],
    "report": ["matplotlib", "jinja2"],
    "retraining": ["mlflow"],
    "trial_efficiency": ["optuna", "botorch"],
    "faults": ["greenlet", "ray", "torch"],
    "gpu": ["torch"],
    **dict.fromkeys(("elasticity", "grids", "own_code", "remeasure", "three_stages"), ("ray", "torch")),
}


def kept() -> dict[str, bytes]:
    """The results and tables that full runs keep."""
    return {
        str(path): path.read_bytes()
        for name in ("results", "tables")
        for path in (ROOT / "benchmarks" / name).glob("*")
    }


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "words",
    [*([name] for name in NAMES), *([name, part] for name, parts in PARTS.items() for part in parts)],
    ids=" ".join,
)
def test_benchmark_ends_with_one_json_line_and_keeps_nothing(words: list[str], tmp_path: Path) -> None:
    name = words[0]
    for package in NEEDED_PACKAGES.get(name, []):
        pytest.importorskip(package)
    shared = Path(os.environ.get("SIZEWRIGHT_SHARED", ROOT.parent / "shared"))
    if name in NEEDED_DATA and not (shared / NEEDED_DATA[name]).is_dir():
        pytest.skip(f"{NEEDED_DATA[name]} is not at hand (set SIZEWRIGHT_SHARED)")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"SMOKE": "1", "SIZEWRIGHT_SHARED": str(shared), "PYTHONPATH": path}
    before = kept()
    command = [sys.executable, "-m", f"benchmarks.{name}", *words[1:]]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=840, check=False)
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
