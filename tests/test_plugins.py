"""Plugins of other packages: the examples, and some that are broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sizewright.cluster.allocators import allocator_names, get_allocator
from sizewright.cluster.allocators.registry import ALLOCATORS
from sizewright.errors import InputError
from sizewright.executors import executor_names, get_executor
from sizewright.models import ThroughputModel, get_model, model_names

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = {
    "executor": ("sizewright.executors", "processes", "sizewright_processes:ProcessesExecutor"),
    "model": ("sizewright.models", "power-law", "sizewright_powerlaw:PowerLawModel"),
    "allocator": ("sizewright.allocators", "afs-l", "sizewright_afs:AfsL"),
}
_FIND = """
from sizewright.cluster.allocators import get_allocator
from sizewright.executors import get_executor
from sizewright.models import get_model
print(get_executor("processes").name, get_model("power-law").name, get_allocator("afs-l").name)
"""
ROOMS: dict[str, tuple[Callable[[], Any], Callable[[str], Any], str]] = {
    "sizewright.executors": (executor_names, get_executor, "executor"),
    "sizewright.models": (model_names, get_model, "throughput model"),
    "sizewright.allocators": (allocator_names, get_allocator, "policy"),
}


def register(folder: Path, group: str, name: str, value: str) -> None:
    """Register a plugin as an installed package does."""
    about = folder / f"{group}_{name}-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {group}-{name}\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def run(*args: object, path: Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), *sys.path])}
    command = [sys.executable, *map(str, args)]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=200)


def sizewright(*args: object, path: Path) -> str:
    completed = run("-m", "sizewright.cli.main", *args, path=path)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with all examples, as if they were installed there."""
    folder = tmp_path / "installed"
    folder.mkdir()
    for room, (group, name, value) in EXAMPLES.items():
        register(folder, group, name, value)
        shutil.copy(ROOT / "examples" / f"{room}_plugin" / f"{value.partition(':')[0]}.py", folder)
    return folder


@pytest.mark.parametrize("group", ROOMS)
def test_plugin_that_cannot_be_loaded_is_left_out_with_a_warning(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register(tmp_path, group, "broken", "no_such_module:Thing")
    monkeypatch.syspath_prepend(tmp_path)
    names, get, noun = ROOMS[group]
    assert "broken" not in names()
    assert f"The {noun} 'broken' from no_such_module:Thing cannot be loaded and is left out: No module" in caplog.text
    with pytest.raises(InputError, match=f"The {noun} 'broken' cannot be loaded from no_such_module:Thing"):
        get("broken")


@pytest.mark.parametrize(
    ("group", "value", "fault"),
    [
        (
            "sizewright.executors",
            "pathlib:PurePath",
            "it has no launch, adjust, observe, wait, stop, render, ",
        ),
        ("sizewright.models", "pathlib:PurePath", "it is not a subclass of BaseThroughputModel"),
        (
            "sizewright.models",
            "sizewright.models._base:BaseThroughputModel",
            "it does not implement explain, fit, predict, pre",
        ),
        ("sizewright.models", "sizewright.models.forms.usl:UslModel", "its `name` is 'usl'"),
        ("sizewright.allocators", "pathlib:PurePath", "it is not a subclass of Allocator"),
        ("sizewright.allocators", "needy:Needy", "it cannot be created without arguments"),
    ],
)
def test_invalid_plugin_is_refused_with_the_reason(
    group: str, value: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text(
        "from sizewright.cluster.allocators import Allocator\n"
        "class Needy(Allocator):\n    name = 'odd'\n    def __init__(self, budget): pass\n"
    )
    register(tmp_path, group, "odd", value)
    monkeypatch.syspath_prepend(tmp_path)
    names, get, noun = ROOMS[group]
    with pytest.raises(InputError, match=f"'odd' is not a valid {noun}: {fault}.*sizewright.testing"):
        get("odd")
    if noun != "executor":  # one of these is recognised by its result
        assert "odd" not in names()


def test_builtin_names_take_precedence_and_come_first(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(installed, "sizewright.models", "default", "sizewright.models.forms.usl:UslModel")
    monkeypatch.syspath_prepend(installed)
    assert type(get_model("default")) is ThroughputModel
    assert model_names()[0] == "default"
    assert model_names().count("default") == 1
    assert model_names()[-1] == "power-law"
    assert allocator_names()[-1] == "afs-l"


def test_unknown_name_suggests_the_closest_match(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    with pytest.raises(InputError, match=r"no throughput model 'powerlaw'; did you mean 'power-law'.*default, phases"):
        get_model("powerlaw")
    with pytest.raises(InputError, match=r"no policy 'afs'; did you mean 'afs-l'.*default, fifo"):
        get_allocator("afs")


def test_builtin_name_loads_no_plugin(tmp_path: Path, example: Path, store: str) -> None:
    (tmp_path / "loud.py").write_text("print('LOADED')\n")
    for group in ROOMS:
        register(tmp_path, group, "loud", "loud:Loud")
    assert "LOADED" in sizewright("models", "list", path=tmp_path)
    assert "LOADED" not in sizewright("--help", path=tmp_path)
    assert "LOADED" not in sizewright("recommend", example, "--store", store, "--model", "usl", path=tmp_path)


def test_verbs_take_a_model_that_is_registered(installed: Path, example: Path, store: str, tmp_path: Path) -> None:
    table = ROOT / "benchmarks" / "tables" / "counts.csv"
    options = ("--model", "power-law", "--seeds", 1)
    assert "power-law" in sizewright("models", "compare", table, *options, path=installed)
    answer = sizewright("recommend", example, "--store", store, "--model", "power-law", path=installed)
    assert "model power-law" in answer


def test_verbs_take_an_allocator_that_is_registered(installed: Path, tmp_path: Path) -> None:
    cluster = ROOT / "examples" / "cluster"
    args = (cluster / "cluster.yaml", cluster / "jobs.yaml", "--policy", "afs-l")
    assert "Policy afs-l, " in sizewright("allocate", *args, path=installed)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrived_s,duration_s,gpu\n" + "".join(f"{60 * i},{600 + 100 * i},2\n" for i in range(20)))
    for policies in ("fifo,afs-l", "all"):
        output = sizewright("simulate", trace, "--policy", policies, "-o", "json", path=installed)
        names = [row["policy"] for row in json.loads(output)["rows"]]
        assert names == (["fifo", "afs-l"] if policies != "all" else [*ALLOCATORS, "afs-l"])


@pytest.mark.parametrize("room", EXAMPLES)
def test_the_examples_keep_their_contracts(room: str) -> None:
    example = ROOT / "examples" / f"{room}_plugin"
    args = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "test_contract.py")
    completed = run(*args, path=example, folder=example)
    assert completed.returncode == 0, completed.stdout
    assert "failed" not in completed.stdout


@pytest.mark.long
def test_the_examples_install(tmp_path: Path) -> None:
    for room in EXAMPLES:
        source = shutil.copytree(ROOT / "examples" / f"{room}_plugin", tmp_path / room)  # building leaves files there
        args = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "site", source)
        completed = run(*args, path=tmp_path, folder=tmp_path)
        assert completed.returncode == 0, completed.stderr
    listing = run("-c", _FIND, path=tmp_path / "site", folder=tmp_path)
    assert listing.stdout == "processes power-law afs-l\n", listing.stderr
