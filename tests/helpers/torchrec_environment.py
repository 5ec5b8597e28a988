"""A virtual environment with TorchRec, which is no dependency. It takes torch and all else from the tests' own."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "examples" / "torchrec" / "requirements.txt"


@functools.cache
def shared_environment() -> Path:
    """Return the folder of programs of an environment that is set up once and removed at the end of the process."""
    folder = Path(tempfile.mkdtemp(prefix="sizewright-torchrec-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_environment(folder)


def make_environment(folder: Path) -> Path:
    """Set up the environment in a folder and return its folder of programs; skip the test if packages cannot be had."""
    pytest.importorskip("torch")
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "tests_own.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")  # ROOT: `sizewright`
    pip = [str(programs / "python"), "-m", "pip", "install", "-q", "--no-cache-dir", "--no-deps"]
    installed = subprocess.run([*pip, "-r", str(REQUIREMENTS)], capture_output=True, text=True, timeout=600)
    if installed.returncode:
        pytest.skip(f"TorchRec cannot be installed: {installed.stderr.strip().splitlines()[-1]}")
    loads = subprocess.run([programs / "python", "-c", "import torchrec"], capture_output=True, text=True, timeout=120)
    if loads.returncode:
        pytest.skip(f"TorchRec does not load with torch of {sys.prefix}: {loads.stderr.strip().splitlines()[-1]}")
    return programs
