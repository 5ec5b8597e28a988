"""The pages of equations hold: each block computes a formula from its symbols, and the code must agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted([DOCS / "equations.md", *(DOCS / "equations").glob("*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_from_top_to_bottom(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    assert blocks
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        code = compile("\n" * line + block[1], str(page), "exec")  # so that a failure names the line of the page
        exec(code, namespace)
