"""The documentation builds without a warning, fetches nothing, and has every benchmark and every verb."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_code"))

from cli_page import cli_page  # noqa: E402
from figure_tables import figure_tables, missed  # noqa: E402
from file_page import file_page  # noqa: E402

BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))


@pytest.mark.long
def test_docs_build_without_a_warning_and_fetch_nothing(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    args = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    completed = subprocess.run(
        [*args, ROOT / "docs", tmp_path], capture_output=True, text=True, timeout=300, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "get-started.html").exists()
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="((?:https?:)?//[^"]*)"', page.read_text())
        assert not fetched, page


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_section_with_its_figures(name: str) -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert f"\n## {name}\n" in text
    section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
    has_result = (ROOT / "benchmarks" / "results" / f"{name}.json").exists()
    assert (f"figures-{name}.md" in section) == has_result


def test_missed_targets_are_found_in_results() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "cluster.json").read_text())
    assert set(missed(result)) == {"loaning_use_gain"}
    record = {
        "a": 1.0, "b": 2.0, "c": 0.5, "d": 3.0, "e": 18.0, "f": 80.0, "g": 0.5,
        "h": 9_000.0, "i": 6.0, "j": 5.6,
        "targets": {
            "a": "≤ 0.9 (0.8 is wanted)", "b": ">= 2", "c": "0.6 to 1", "d": "as many as can be",
            "e": "≥ 20, or g < 1", "f": "≤ 200 and ≤ e", "g": "< 0.4, or left alone",
            "h": "≥ 10,000", "i": "≤ c + 5", "j": "≤ 5 + 0.5",
        },
    }  # fmt: skip
    assert set(missed(record)) == {"a", "c", "f", "g", "h", "i", "j"}
    page = figure_tables(ROOT / "benchmarks")["figures-cluster.md"]
    assert page.startswith("Beyond its target: `loaning_use_gain`")
    assert f"Measured at commit `{result['commit']}`." in page


def test_stored_reference_is_that_of_the_code() -> None:
    docs = ROOT / "docs"
    assert (docs / "cli.md").read_text(encoding="utf-8") == cli_page(), "run: make docs"
    assert (docs / "files.md").read_text(encoding="utf-8") == file_page(), "run: make docs"


def test_the_reference_has_every_verb_and_every_key() -> None:
    text = cli_page()
    for verb in ("recommend", "trials import", "models compare", "bank measure", "doctor"):
        assert f"\n## {verb}\n" in text
    assert "SIZEWRIGHT_STORE" in text
    keys = file_page()
    assert "| `bounds.worker.replicas` |" in keys
    assert "| `hosts[].cpu` |" in keys
    reference = keys.split("## Trial table")[0]
    assert not re.findall(r"^\| `(\S+)` .*\|  \|$", reference, re.MULTILINE), (
        "each key that people write says what it is"
    )
