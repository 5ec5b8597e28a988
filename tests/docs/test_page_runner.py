"""The runner of pages notices errors of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.page_blocks import read_page
from tests.helpers.page_runner import run_page


def run_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    run_page(read_page(path), tmp_path, {})


def test_blocks_run_in_order_and_see_each_other(tmp_path: Path) -> None:
    run_text(
        tmp_path,
        "<!-- file: sub/words.txt -->\n```text\nalpha beta\n```\n"
        "```python\nlines = open('sub/words.txt').read().split()\n```\n"
        "```python\nassert lines == ['alpha', 'beta']\n```\n"
        "```console\n$ cat sub/words.txt \\\n    | tr a-z A-Z\nALPHA 17 …\n$ false   # exits 1: as it should\n```\n"
        "```text\nnot run: exit 7\n```\n",
    )


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```console\n$ true   # exits 3\n```\n", "ends with 0"),
        ("```console\n$ exit 3\n```\n", "ends with 3"),
        ("```console\n$ echo other words\nthese words\n```\n", "'these'"),
        ("```python\nassert 1 == 2\n```\n", "AssertionError"),
        ("```console\n$ echo 'Traceback (most recent call last)'\n```\n", "Traceback"),
    ],
)
def test_wrong_output_of_a_block_fails_with_its_line(tmp_path: Path, block: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        run_text(tmp_path, f"# Page\n\n{block}")
    assert "page.md:4" in str(caught.value)


def test_a_server_ends_with_its_page(tmp_path: Path) -> None:
    run_text(
        tmp_path,
        "```console\n$ sh -c 'echo $$ > pid; exec sleep 600' &\n$ while [ ! -s pid ]; do sleep 0.1; done\n```\n",
    )
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_unclosed_block_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"page.md:1: the block does not end"):
        run_text(tmp_path, "```console\n$ true\n")
