"""The pages of equations are correct: each block computes a formula, and the code must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.page_blocks import read_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted([DOCS / "equations.md", *(DOCS / "equations").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_from_top_to_bottom(page: Path) -> None:
    """The blocks run in this process, because they start nothing."""
    blocks = list(read_page(page).of("python"))
    assert blocks
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")  # a failure shows the line of the page
        exec(code, namespace)
