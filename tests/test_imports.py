"""Importing stays cheap, torch stays optional, and subpackages import in one direction."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sizewright.runtime.metrics_log import MetricsLog, Observed
from sizewright.spec import Allocation, Metrics

ROOT = Path(__file__).resolve().parents[1]
CHEAP = "import sizewright"
COMMAND = "import sys; sys.argv = ['sizewright', *{}]; from sizewright.cli.main import run; run()"
REPORT = (
    "import atexit, sys; atexit.register(lambda: print('LOADED', *sorted({m.partition('.')[0] for m in sys.modules})))"
)


def loaded(code: str) -> tuple[set[str], str]:
    """Return the top-level modules of a fresh interpreter at its end, and its output."""
    completed = subprocess.run(
        [sys.executable, "-c", f"{REPORT}\n{code}"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    printed, _, modules = completed.stdout.rpartition("LOADED")
    return set(modules.split()), printed


def test_importing_the_package_loads_nothing_heavy() -> None:
    modules, _ = loaded(CHEAP)
    assert "sizewright" in modules
    assert not modules & {"numpy", "pandas", "torch", "ray", "mlflow", "sklearn", "scipy", "pydantic", "sqlalchemy"}


def test_help_loads_nothing_heavy() -> None:
    modules, printed = loaded(COMMAND.format(["--help"]))
    assert "recommend" in printed
    assert not modules & {"numpy", "pandas", "torch", "ray", "mlflow", "sklearn", "scipy", "pydantic", "yaml"}


@pytest.mark.parametrize("output", ["table", "json"])
def test_recommending_loads_no_engine_and_no_learning_library(store: str, example: Path, output: str) -> None:
    args = ["recommend", str(example), "--store", store, "--output", output]
    modules, printed = loaded(COMMAND.format(args))
    assert "criteo" in printed
    assert "numpy" in modules
    assert not modules & {"torch", "ray", "mlflow", "sklearn", "lightgbm", "pandas", "matplotlib"}


def test_tuning_loads_no_engine(example: Path, tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m.jsonl")
    metrics = Metrics(replicas=(), allocation=Allocation.of(1, 1, 1.0, 1.0, 512))
    log.append(Observed(at=datetime.now(timezone.utc), at_s=0.0, metrics=metrics))
    modules, printed = loaded(COMMAND.format(["tune", str(example), "--replay", str(log.path), "-o", "json"]))
    assert "first observation" in printed
    assert not modules & {"torch", "ray", "mlflow", "sklearn", "lightgbm", "prometheus_client"}


@pytest.mark.parametrize(
    "room", ["models.forms.dlrover", "models.memory.report", "recommender.sizing.select", "api", "executors"]
)
def test_subpackages_outside_the_engine_load_without_it(room: str) -> None:
    modules, _ = loaded(f"import sizewright.{room}")
    assert not modules & {"torch", "ray", "mlflow", "sklearn", "lightgbm", "pandas"}


def test_rendering_and_a_fake_executor_need_no_engine() -> None:
    code = """
from sizewright.executors import executor_names, get_executor
from sizewright.spec import Allocation, Job, Plan
from sizewright.testing import FakeExecutor
plan = Plan(id="p", kind="launch", job=Job(), target=Allocation.of(1, 1, 1, 1, 8), reason="")
for executor in [FakeExecutor(), *map(get_executor, ("dlrover", "local", "ray"))]:
    print(executor.render(plan), executor.change_cost(plan))
fake = FakeExecutor()
fake.stop(fake.launch(plan))
"""
    modules, printed = loaded(code)
    assert "ElasticJob" in printed
    assert not modules & {"torch", "ray", "mlflow", "sklearn", "pandas", "pytest"}


def test_imports_go_one_way() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    if not lint.exists():
        pytest.skip("import-linter is not installed")
    completed = subprocess.run([lint, "--no-cache"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert completed.returncode == 0, completed.stdout
    assert " 0 broken" in completed.stdout
