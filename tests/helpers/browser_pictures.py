"""The browser of the long tests, and the screenshots in the documentation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = Path(__file__).resolve().parent / "browser"
DOCS = BROWSER.parents[2] / "docs"


def browser() -> str:
    """Return the path of Chromium and install its driver; skip the test without Chromium."""
    chromium, npm = shutil.which("chromium"), shutil.which("npm")
    if not chromium or not npm:
        pytest.skip("chromium and npm are needed (make test-long installs chromium)")
    subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--prefix", BROWSER], check=True, capture_output=True)
    return chromium


def keep_picture(picture: Path) -> None:
    """Copy a picture into the documentation if KEEP_PICTURES is 1."""
    if os.environ.get("KEEP_PICTURES") == "1":
        shutil.copy(picture, DOCS / picture.name)
