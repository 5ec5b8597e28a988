"""The public interface as text: the names of the public modules with the signatures of functions and classes."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, ForwardRef

from pydantic import BaseModel

MODULES = (
    "sizewright",
    "sizewright.cluster",
    "sizewright.cluster.allocators",
    "sizewright.datasets",
    "sizewright.errors",
    "sizewright.executors",
    "sizewright.models",
    "sizewright.plots",
    "sizewright.profiler",
    "sizewright.progress",
    "sizewright.recommender",
    "sizewright.retraining",
    "sizewright.runtime",
    "sizewright.skypilot",
    "sizewright.spec",
    "sizewright.testing",
)


def public() -> Iterator[tuple[str, Any]]:
    """Yield every public name in full with its object."""
    for name in MODULES:
        module = importlib.import_module(name)
        yield from ((f"{name}.{each}", getattr(module, each)) for each in module.__all__)


def functions() -> Iterator[tuple[str, Any, type | None]]:
    """Yield public functions and the constructors, methods and properties of public classes, once each."""
    done = set()
    for name, thing in public():
        if id(thing) in done:
            continue
        done.add(id(thing))
        if inspect.isfunction(thing):
            yield name, thing, None
        elif inspect.isclass(thing):
            makers = ((each, vars(thing).get(each)) for each in ("__init__", "__post_init__", "__call__"))
            defined = (
                (each, function)
                for each, function in makers
                if function and "<string>" not in function.__code__.co_filename
            )
            yield from ((f"{name}.{each}", function, thing) for each, function in (*defined, *methods(thing)))


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that Sizewright defines, including inherited ones, as functions."""
    for name in sorted({name for base in kind.__mro__ if _ours(base) for name in vars(base)} - vars(BaseModel).keys()):
        static = inspect.getattr_static(kind, name)
        function = getattr(static, "fget", None) or getattr(static, "func", None) or getattr(static, "__func__", static)
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("sizewright"):
            yield name, function


def fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of each field of a record, dataclass, named tuple or typed dictionary."""
    if not (issubclass(kind, (BaseModel, dict, tuple)) or is_dataclass(kind)):
        return
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    docstrings = {
        one.target.id: after.value.value
        for one, after in pairwise(body)
        if isinstance(one, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    described = {name: field.description for name, field in getattr(kind, "model_fields", {}).items()}
    for name, text in inspect.get_annotations(kind).items():
        if not name.startswith("_"):
            yield name, _text(text), described.get(name) or docstrings.get(name) or ""


def listing() -> str:
    """Return one line per name, and below a class one line per constructor argument and method."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    homes: dict[int, str] = {}
    for name, thing in public():
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and id(thing) in homes:
            yield f"{name} = {homes[id(thing)]}"
            continue
        homes[id(thing)] = name
        if inspect.isclass(thing):
            bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
            yield f"class {name}({bases})"
            yield from (f"    {each}" for each in _arguments(thing))
            yield from (f"    .{each}{_method(thing, each, method)}" for each, method in methods(thing))
        else:
            yield f"{name}{_signature(thing) if inspect.isfunction(thing) else ''}"


def _ours(kind: type) -> bool:
    return kind.__module__.startswith("sizewright")


def _method(kind: type, name: str, function: Any) -> str:
    static = inspect.getattr_static(kind, name)
    if isinstance(static, property) or hasattr(static, "func"):
        return f" -> {_text(inspect.signature(function).return_annotation)}"
    return _signature(function)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    back = "" if signature.return_annotation is signature.empty else f" -> {_text(signature.return_annotation)}"
    return f"({', '.join(_parameters(signature))}){back}"


def _arguments(kind: type) -> list[str]:
    """Return the arguments of the constructor; for records, typed dictionaries and named tuples, the fields."""
    if issubclass(kind, BaseModel):
        annotations = {
            name: text for base in reversed(kind.__mro__) for name, text in inspect.get_annotations(base).items()
        }
        return [
            f"{name}: {_text(annotations[name])}{'' if field.is_required() else f' = {_default(field.default)}'}"
            for name, field in kind.model_fields.items()
        ]
    if issubclass(kind, (dict, tuple)):
        defaults = getattr(kind, "_field_defaults", {})
        return [
            f"{name}: {_text(text)}{f' = {_default(defaults[name])}' if name in defaults else ''}"
            for name, text in inspect.get_annotations(kind).items()
        ]
    constructor = kind.__init__  # type: ignore[misc]
    listed = inspect.isfunction(constructor) and (constructor.__module__.startswith("sizewright") or is_dataclass(kind))
    return list(_parameters(inspect.signature(kind))) if listed else []


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred |= each.kind is each.VAR_POSITIONAL
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_text(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        yield f"{stars}{each.name}{kind}{default}"


def _text(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation.strip("\"'")
    return "None" if annotation is None else getattr(annotation, "__name__", str(annotation))


def _default(value: Any) -> str:
    """Return a plain value as text, and "..." for others, whose text depends on the Python version."""
    plain = isinstance(value, (int, float, str)) or value is None
    return repr(value) if plain or (isinstance(value, tuple) and all(map(_plain, value))) else "..."


def _plain(value: object) -> bool:
    return isinstance(value, (int, float, str))
