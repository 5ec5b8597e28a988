"""Formulas as MathML, made when the pages are: nothing is fetched to show them, and they can be read aloud."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def _formula(text: str, display: str) -> str:
    """Raises ValueError for what is not understood."""
    made = str(convert(text, display=display))
    if left := re.search(r"\\\w+", re.sub(r"<[^>]+>", "", made)):
        raise ValueError(f"{left[0]} is not understood in the formula {text}")
    return made


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_formula(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_formula(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
