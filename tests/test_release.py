"""The built wheel works in an empty environment without extras. `make release-check` runs these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # the files under version control, without build products
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", source], check=True)
    args = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run(args, check=True, timeout=600)
    (wheel_path,) = folder.glob("sizewright-*.whl")
    return wheel_path


@pytest.fixture(scope="module")
def call(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Return a function that runs the installed command in an environment with the core alone."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    args = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(args, check=True, timeout=900)
    work = folder / "work"
    work.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SIZEWRIGHT"))}

    def run(*args: object, exits: int = 0) -> subprocess.CompletedProcess[str]:
        completed = subprocess.run([folder / "env/bin/sizewright", *map(str, args)], cwd=work, env=env, text=True,
                              capture_output=True, timeout=300, check=False)  # fmt: skip
        assert completed.returncode == exits, f"{args}: {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
        assert "Traceback" not in completed.stderr
        return completed

    return run


def test_the_wheel_holds_what_the_code_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    required = {
        path.relative_to(ROOT).as_posix()
        for pattern in (
            "py.typed",
            "spec/*.yaml",
            "datasets/bank/measured/*",
            "models/prior/*.json",
            "reporting/page.*",
        )
        for path in (ROOT / "sizewright").glob(pattern)
    }
    assert (
        {"sizewright/py.typed", "sizewright/reporting/page.html", "sizewright/spec/starter.yaml"} <= required <= names
    )
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]


def test_offline_verbs_work_without_extras(call: Call) -> None:
    assert "recommend" in call("--help").stdout
    call("init", "job.yaml")
    assert json.loads(call("memory", "job.yaml", "-o", "json").stdout)["tables"]
    assert json.loads(call("schema", "plan").stdout)["title"] == "Plan"
    call("trials", "import", EXAMPLES / "criteo-trials.csv", "--job", EXAMPLES / "criteo.yaml")
    recommendation = json.loads(call("recommend", EXAMPLES / "criteo.yaml", "-o", "json").stdout)
    assert recommendation["status"] == "ok"
    assert "Predicted from" in call("recommend", "job.yaml", "--prior", "shipped").stdout
    call("recommend", EXAMPLES / "criteo.yaml", "--executor", "kubeflow", "--out", "job-manifest.yaml")
    call("models", "compare", ROOT / "benchmarks" / "tables" / "counts.csv", "--seeds", "1", "--model", "usl")
    call("bank", "show")
    call("history", "list")
    call("allocate", EXAMPLES / "cluster/cluster.yaml", EXAMPLES / "cluster/jobs.yaml", "--out", "plans")
    call("simulate", EXAMPLES / "cluster/trace.csv", "--policy", "fifo")
    assert "extra profile" in call("doctor").stdout


@pytest.mark.parametrize(
    ("args", "extra"),
    [
        (["profile", EXAMPLES / "criteo.yaml"], "profile"),
        (["run", EXAMPLES / "criteo.yaml", "--workers", 1, "--ps", 1, "--worker-cpu", 1, "--ps-cpu", 1], "profile"),
        (["report", EXAMPLES / "criteo.yaml", "--trials", EXAMPLES / "criteo-trials.csv"], "plots"),
        (["retrain", "--tracking-uri", "sqlite:///models.db"], "track"),
        (["simulate", EXAMPLES / "cluster/trace.csv", "--policy", "fifo", "--parallel"], "profile"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else value,
)
def test_a_verb_that_needs_an_extra_names_it(call: Call, args: list[object], extra: str) -> None:
    result = call(*args, exits=1)
    assert f"pip install 'sizewright[{extra}]'" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2
