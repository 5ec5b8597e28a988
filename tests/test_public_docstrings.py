"""Docstrings of the public face tell which errors are raised and what every number is, and can be rendered."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import io
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sizewright.errors
from tests.helpers.public_names import MODULES, fields, functions, public

ERRORS = {name: getattr(sizewright.errors, name) for name in sizewright.errors.__all__}
FUNCTIONS = list(functions())
CLASSES = {id(thing): (name, thing) for name, thing in public() if inspect.isclass(thing)}
NUMBER = re.compile(r"\b(int|float|FiniteFloat|Floats|Ints|NDArray)\b")
# Numbers with these names need no unit.
PLAIN = {
    *(
        "batch_size",
        "count",
        "jobs",
        "n",
        "number",
        "ps",
        "replicas",
        "resources",
        "rows",
        "samples",
        "seed",
        "seeds",
        "steps",
    ),
    *("tables", "trials", "workers"),
}
UNITS = re.compile(r"_(s|ms|seconds|bytes|cpu|port|gbps)$")


def test_every_raised_error_is_documented() -> None:
    untold = [
        f"{name}: {error}"
        for name, made, kind in FUNCTIONS
        for error in sorted(raised(textwrap.dedent(inspect.getsource(made))))
        if not documented(ERRORS[error], doc(made, kind))
    ]
    assert not untold, "say `Raises ...`:\n" + "\n".join(untold)


def test_documented_errors_exist() -> None:
    known = {*ERRORS, *vars(builtins), "NotFittedError"}
    strange = [
        f"{name}: {error}"
        for name, made, kind in FUNCTIONS
        for error in re.findall(r"\b[A-Z]\w+Error\b", doc(made, kind))
        if error not in known
    ]
    assert not strange


def test_every_number_parameter_has_a_clear_unit() -> None:
    unclear = [
        f"{name}: {each.name}"
        for name, made, kind in FUNCTIONS
        for each in inspect.signature(made).parameters.values()
        if NUMBER.search(str(each.annotation)) and not clear(each.name, doc(made, kind))
    ]
    assert not unclear, "name the unit, or explain it:\n" + "\n".join(unclear)


def test_every_number_field_has_a_clear_unit() -> None:
    unclear = [
        f"{name}: {field}"
        for name, kind in CLASSES.values()
        for field, text, said in fields(kind)
        if NUMBER.search(text) and not said and not clear(field, kind.__doc__ or "")
    ]
    assert not unclear, "name the unit, or explain it:\n" + "\n".join(unclear)


def test_docstrings_are_rendered_without_a_warning() -> None:
    core = pytest.importorskip("docutils.core")
    texts = {name: importlib.import_module(name).__doc__ for name in MODULES}
    texts |= {name: kind.__doc__ for name, kind in CLASSES.values()}
    texts |= {name: made.__doc__ for name, made, _ in FUNCTIONS}
    faults = {}
    for name, text in texts.items():
        warnings = io.StringIO()
        settings = {"warning_stream": warnings, "report_level": 1, "halt_level": 5}
        tree = core.publish_doctree(inspect.cleandoc(text or ""), settings_overrides=settings)
        # An indented text is an example, and must be marked with `::` before it.
        if warnings.getvalue() or list(tree.findall(lambda node: node.tagname == "block_quote")):
            faults[name] = warnings.getvalue() or "an example without `::` before it"
    assert not faults


def test_reference_shows_all_sections() -> None:
    docs = Path(__file__).resolve().parents[1] / "docs"
    text = "".join((docs / name).read_text(encoding="utf-8") for name in ("api.md", "api-packages.md"))
    packages = {*MODULES} - {"sizewright"}
    assert {name for name in packages if f".. automodule:: {name}\n   :members:\n" not in text} == set()
    assert {name for name in sizewright.__all__ if f":: {name}\n" not in text} == {"SizewrightError", "skypilot"}, (
        "as modules"
    )


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("def f(x):\n    raise InputError('no', 'do')", {"InputError"}),
        ("def f(x):\n    if x:\n        raise StoreError('no') from None", {"StoreError"}),
        ("def f(x):\n    def g():\n        raise JobError('no')\n    return g", {"JobError"}),
        ("def f(x):\n    raise ValueError('no')", set()),
    ],
)
def test_raised_errors_are_found(text: str, errors: set[str]) -> None:
    assert set(raised(text)) == errors


def raised(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from {ast.unparse(node.exc.func)} & ERRORS.keys()


def documented(error: type[Exception], text: str) -> bool:
    """An error is documented by its name or by that of a parent class."""
    return any(base.__name__ in text for base in error.__mro__ if issubclass(base, sizewright.errors.SizewrightError))


def doc(made: Any, kind: type | None) -> str:
    """Return the text that documents it: its docstring and that of its class."""
    return f"{made.__doc__ or ''}\n{kind.__doc__ or '' if kind else ''}"


def clear(name: str, text: str) -> bool:
    return name in PLAIN or bool(UNITS.search(name)) or bool(re.search(rf"\b{name}\b", text))
