"""Configuration of the documentation build: `make docs`."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_code"))

from cli_page import cli_page  # noqa: E402
from figure_tables import figure_tables  # noqa: E402
from file_page import file_page  # noqa: E402

project = "Sizewright"
author = copyright = "the Sizewright contributors"
release = version = installed("sizewright")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
myst_enable_extensions = ["amsmath", "attrs_block", "deflist", "dollarmath"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "_made"]
templates_path: list[str] = []

default_role = "literal"  # docstrings put names in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_display_short_literal_types = True
python_maximum_signature_line_length = 100

html_math_renderer = "mathml"

html_theme = "furo"
html_title = "Sizewright"
html_static_path = ["_static"]
html_css_files = ["docs.css"]


def make_pages(app: Any) -> None:
    """Write the pages that are generated from the code and from the results.

    `cli.md` and `files.md` are kept for readers of the repository; a test compares them with the code.
    """
    (HERE / "_made").mkdir(exist_ok=True)
    figures = {f"_made/{name}": text for name, text in figure_tables(HERE.parent / "benchmarks").items()}
    for name, text in {"cli.md": cli_page(), "files.md": file_page(), **figures}.items():
        path = HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def set_off(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Mark indented lines of docstrings as literal blocks for reStructuredText: they are code or a drawing."""
    text = re.sub(r"(?m)^(\S.*[^:\n])?:?\n\n?(?=    \S)", lambda m: f"{m[1] or ''}::\n\n", "\n".join(lines))
    lines[:] = text.split("\n")


def setup(app: Any) -> None:
    """Connect the page generation, so that the pages exist before Sphinx looks for them."""
    app.connect("builder-inited", make_pages, priority=1)
    app.connect("autodoc-process-docstring", set_off)
