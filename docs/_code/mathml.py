"""Formulas as MathML, converted at build time: pages fetch nothing to show them, and screen readers can read them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def _formula(text: str, display: str) -> str:
    """Return a formula as MathML. Raises ValueError for a command that the converter does not know."""
    mathml = str(convert(text, display=display))
    if unknown := re.search(r"\\\w+", re.sub(r"<[^>]+>", "", mathml)):
        raise ValueError(f"The formula {text} contains the unknown command {unknown[0]}.")
    return mathml


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_formula(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_formula(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
