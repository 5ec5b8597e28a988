"""Public names of a package: loaded on first use, so that importing it stays cheap; old ones with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping

from sizewright.errors import SizewrightDeprecationWarning

KEPT_RELEASES = 2
"""So many minor releases a deprecated name, option or field works on."""


def lazily(
    package: str,
    homes: Mapping[str, str],
    *,
    deprecated: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `homes` tells the module of each name that it does not hold itself.

    `deprecated` tells of each name that is on its way out since which release it is, such as "0.3", and the whole name
    of what takes its place, such as "sizewright.spec.Plan", which is what it gives.
    """
    old = deprecated or {}

    def load(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        if name in old:
            since, instead = old[name]
            warn_deprecated(f"{package}.{name}", since=since, instead=instead)
            module, _, attribute = instead.rpartition(".")
            return getattr(importlib.import_module(module), attribute)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: list(sys.modules[package].__all__)


def warn_deprecated(what: str, *, since: str, instead: str, stacklevel: int = 3) -> None:
    """Warn whoever calls the caller that `what` is on its way out since the release `since`; see docs/deprecations.md.

    Raises ValueError for a release that is not MAJOR.MINOR.
    """
    major, minor = map(int, since.split("."))
    gone = f"{major}.{minor + KEPT_RELEASES}"
    warnings.warn(
        f"{what} is deprecated since {since} and gone in {gone}; use {instead}.",
        SizewrightDeprecationWarning,
        stacklevel=stacklevel,
    )


def __getattr__(name: str) -> str:
    """`__version__`, which is looked up when somebody asks for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sizewright")
    except PackageNotFoundError:  # its source alone is on the path
        return "0+unknown"
