"""What is released works by itself: the wheel, in an empty environment, without extras. `make release-check`."""

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
    source = folder / "source"  # what is under version control, without what was built before
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", source], check=True)
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run(words, check=True, timeout=600)
    (made,) = folder.glob("sizewright-*.whl")
    return made


@pytest.fixture(scope="module")
def call(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """The installed command, in an environment that holds the core alone."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    words = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(words, check=True, timeout=900)
    work = folder / "work"
    work.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SIZEWRIGHT"))}

    def run(*words: object, exits: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([folder / "env/bin/sizewright", *map(str, words)], cwd=work, env=env, text=True,
                              capture_output=True, timeout=300, check=False)  # fmt: skip
        assert done.returncode == exits, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run


def test_the_wheel_holds_what_the_code_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
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
    assert {"sizewright/py.typed", "sizewright/reporting/page.html", "sizewright/spec/starter.yaml"} <= wanted <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]


def test_offline_verbs_work_without_extras(call: Call) -> None:
    assert "recommend" in call("--help").stdout
    call("init", "job.yaml")
    assert json.loads(call("memory", "job.yaml", "-o", "json").stdout)["tables"]
    assert json.loads(call("schema", "plan").stdout)["title"] == "Plan"
    call("trials", "import", EXAMPLES / "criteo-trials.csv", "--job", EXAMPLES / "criteo.yaml")
    told = json.loads(call("recommend", EXAMPLES / "criteo.yaml", "-o", "json").stdout)
    assert told["status"] == "ok"
    assert "Predicted from" in call("recommend", "job.yaml", "--prior", "shipped").stdout
    call("recommend", EXAMPLES / "criteo.yaml", "--executor", "kubeflow", "--out", "job-manifest.yaml")
    call("models", "compare", ROOT / "benchmarks" / "tables" / "counts.csv", "--seeds", "1", "--model", "usl")
    call("bank", "show")
    call("history", "list")
    call("allocate", EXAMPLES / "cluster/cluster.yaml", EXAMPLES / "cluster/jobs.yaml", "--out", "plans")
    call("simulate", EXAMPLES / "cluster/trace.csv", "--policy", "fifo")
    assert "extra profile" in call("doctor").stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["profile", EXAMPLES / "criteo.yaml"], "profile"),
        (["run", EXAMPLES / "criteo.yaml", "--workers", 1, "--ps", 1, "--worker-cpu", 1, "--ps-cpu", 1], "profile"),
        (["report", EXAMPLES / "criteo.yaml", "--trials", EXAMPLES / "criteo-trials.csv"], "plots"),
        (["retrain", "--tracking-uri", "sqlite:///models.db"], "track"),
        (["simulate", EXAMPLES / "cluster/trace.csv", "--policy", "fifo", "--parallel"], "profile"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else value,
)
def test_a_verb_that_needs_an_extra_names_it(call: Call, words: list[object], extra: str) -> None:
    told = call(*words, exits=1)
    assert f"pip install 'sizewright[{extra}]'" in told.stderr
    assert len(told.stderr.strip().splitlines()) <= 2
