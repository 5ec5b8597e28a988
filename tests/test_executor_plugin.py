"""Executors of other packages: the example, and one that is broken beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "executor_plugin"
_FIND = """
from sizewright.executors import executor_names, get_executor
print(executor_names(), get_executor("processes").capabilities.launch)
"""


def run(*words: str, path: Path, folder: Path = EXAMPLE) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), *sys.path])}
    return subprocess.run([sys.executable, *words], env=env, cwd=folder, capture_output=True, text=True, timeout=200)


def register(folder: Path, name: str, value: str) -> None:
    """As an installed package does."""
    about = folder / f"{name}-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(f"[sizewright.executors]\n{name} = {value}\n")


def test_a_broken_one_is_warned_of_and_stops_no_other(tmp_path: Path) -> None:
    register(tmp_path, "broken", "no_such_module:Executor")
    register(tmp_path, "processes", "sizewright_processes:ProcessesExecutor")
    done = run("-c", _FIND, path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'processes'" in done.stdout
    assert "'broken'" not in done.stdout
    assert "executor 'broken' of no_such_module:Executor cannot be loaded, and is left out" in done.stderr
    asked = run("-c", "from sizewright.executors import get_executor; get_executor('broken')", path=tmp_path)
    assert "The executor 'broken' cannot be loaded" in asked.stderr


def test_one_that_is_no_executor_is_said_to_be_none(tmp_path: Path) -> None:
    register(tmp_path, "odd", "pathlib:PurePath")
    asked = run("-c", "from sizewright.executors import get_executor; get_executor('odd')", path=tmp_path)
    assert (
        "The executor 'odd' is none: it lacks launch, adjust, observe, wait, stop, render, change_cost" in asked.stderr
    )


def test_the_example_keeps_the_contract() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "test_contract.py", path=EXAMPLE)
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout


@pytest.mark.long
def test_the_example_installs(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLE, tmp_path / "source")  # building leaves files there
    words = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(source))
    installed = run(*words, path=tmp_path, folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    done = run("-c", _FIND, path=tmp_path, folder=tmp_path)
    assert "'processes'" in done.stdout, done.stderr
    assert "True" in done.stdout
