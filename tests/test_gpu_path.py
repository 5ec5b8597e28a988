"""A torchrun command is profiled and sized with a part of the core packages alone, as on a machine with PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

tomllib = pytest.importorskip("tomllib")  # of Python 3.11
ROOT = Path(__file__).resolve().parents[1]
NEEDED = ROOT / "benchmarks" / "gpu-requirements.txt"
SCIENTIFIC = {"numpy", "pandas", "scipy", "scikit-learn"}
"""Packages that a machine for training has beside PyTorch."""
MODULES = {
    "pyyaml": "yaml",
    "ruamel.yaml": "ruamel",
    "nvidia-ml-py": "pynvml",
    "prometheus-client": "prometheus_client",
}
BLOCKER = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)

sys.meta_path.insert(0, Blocked())
"""
NVML = """
import sys
from tests.helpers.stand_in_nvml import StandInGpu, StandInNvml

sys.modules[__name__] = StandInNvml(StandInGpu(1 << 30, 40, 100_000), StandInGpu(1 << 30, 40, 100_000))
"""
SCRIPT = """
import os, sys, time
from sizewright import log_samples

assert os.environ["MASTER_ADDR"] and os.environ["LOCAL_RANK"] == os.environ["RANK"]
assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == int(os.environ["WORLD_SIZE"])
while True:
    time.sleep(0.02)
    log_samples(int(sys.argv[1]), compute_s=0.02)
"""


def needed() -> set[str]:
    """The packages that `make gpu-check` installs."""
    lines = [line.partition("#")[0].strip() for line in NEEDED.read_text().splitlines()]
    return {Requirement(line).name for line in lines if line}


def declared() -> dict[str, str]:
    """The packages of the core and of all extras, each with its requirement."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(text for each in project["optional-dependencies"].values() for text in each)]
    return {Requirement(text).name: text.partition(";")[0].strip() for text in texts if "sizewright" not in text}


def test_the_packages_of_the_gpu_check_are_those_of_the_project() -> None:
    known = declared()
    lines = [line.partition("#")[0].strip() for line in NEEDED.read_text().splitlines()]
    assert [line for line in lines if line and known.get(Requirement(line).name) != line] == []


def test_gpu_check_ends_with_one_sentence_without_a_gpu(tmp_path: Path) -> None:
    without_torch = tmp_path / "python"
    without_torch.write_text("#!/bin/sh\nexit 1\n")
    without_torch.chmod(0o755)
    words = ["make", "--no-print-directory", "gpu-check", f"PYTHON={without_torch}", f"GPU_VENV={tmp_path / 'venv'}"]
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(words, cwd=ROOT, env=own, text=True, capture_output=True, timeout=60, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("make:")]
    assert done.returncode != 0
    assert said == [f"gpu-check needs a GPU and a PyTorch that finds it; {without_torch} has none here."]
    assert not (tmp_path / "venv").exists()


@pytest.mark.long
def test_the_packages_of_the_gpu_check_are_small(tmp_path: Path) -> None:
    names = sorted(needed() - SCIENTIFIC)
    words = ["download", "--quiet", "--only-binary=:all:", "--dest", tmp_path, "-c", ROOT / "constraints.txt", *names]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, timeout=600)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 60e6


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with two GPUs of a stand-in for NVML, where only the packages needed and their own are found."""
    blocked = {MODULES.get(name, name.replace("-", "_")) for name in declared().keys() - needed() - SCIENTIFIC}
    blocked |= {"torchrec"}
    assert {"ray", "torch", "torchrec", "pyarrow", "lightgbm", "highspy", "mlflow"} <= blocked
    (tmp_path / "blocker").mkdir()
    (tmp_path / "blocker" / "sitecustomize.py").write_text(BLOCKER.format(names=blocked))
    (tmp_path / "blocker" / "pynvml.py").write_text(NVML)
    return {**os.environ, "PYTHONPATH": f"{tmp_path / 'blocker'}:{ROOT}"}


def test_torchrun_command_is_profiled_and_sized_without_ray(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    job = {
        "name": "on-cuda",
        "command": {"run": [sys.executable, "train.py", "{batch_size}"], "rendezvous": "torchrun", "processes": "gpu"},
        "training": {"batch_size": 64, "samples": 10**9, "sync": "sync", "device": "cuda"},
        "bounds": {
            "worker": {
                "replicas": 1,
                "cpu": [0.2, 0.4],
                "memory": ["64Mi", "1Gi"],
                "gpu": {"kind": "a100", "count": [1, 2]},
            },
            "batch_size": [64, 256],
        },
        "objective": "time",
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))

    def sizewright(*words: str) -> str:
        args = [sys.executable, "-c", "from sizewright.cli.main import run; run()", *words]
        done = subprocess.run(
            args, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=250, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    trials = json.loads(sizewright("profile", "job.yaml", "--trials", "5", "--accept-drift", "-o", "json"))
    assert {trial["worker_gpu"] for trial in trials} == {1, 2}
    assert {trial["gpu_kind"] for trial in trials} == {"a100"}
    for trial in trials:
        assert trial["gpu_utilization"] > 0
        assert trial["gpu_power_w"] == pytest.approx(trial["gpu_utilization"] / 0.4 * 100)
    answer = json.loads(sizewright("recommend", "job.yaml", "-o", "json"))
    assert answer["status"] == "ok"
    assert answer["target"]["batch_size"] == 256  # each step lasts as long, whatever its batch size
    assert answer["target"]["worker"][0]["gpu"] == {"kind": "a100", "count": 2}
    manifest = sizewright("recommend", "job.yaml", "--executor", "trainjob")
    assert "numProcPerNode: 2" in manifest
    assert "nvidia.com/gpu: 2" in manifest
