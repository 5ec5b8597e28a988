"""The browser that long tests look at pages with, and the pictures of them that the documentation shows."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = Path(__file__).resolve().parent / "browser"
DOCS = BROWSER.parents[2] / "docs"


def browser() -> str:
    """Where Chromium is, with what drives it; skips where there is none."""
    chromium, npm = shutil.which("chromium"), shutil.which("npm")
    if not chromium or not npm:
        pytest.skip("chromium and npm are needed (make test-long installs chromium)")
    subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--prefix", BROWSER], check=True, capture_output=True)
    return chromium


def keep_picture(picture: Path) -> None:
    """With KEEP_PICTURES=1 it becomes the one in the documentation."""
    if os.environ.get("KEEP_PICTURES") == "1":
        shutil.copy(picture, DOCS / picture.name)
