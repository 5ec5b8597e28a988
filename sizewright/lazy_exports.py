"""Load the public names of a package on first use, so that importing it stays cheap; deprecated ones with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping

from sizewright.errors import SizewrightDeprecationWarning

KEPT_RELEASES = 2
"""Number of minor releases during which a deprecated name, option or field still works."""


def lazy_exports(
    package: str,
    homes: Mapping[str, str],
    *,
    deprecated: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `homes` maps each lazily loaded name to its module.

    A name whose module is the package's own of that name is the module itself.
    `deprecated` maps each deprecated name to the release that deprecated it, such as "0.3", and to the full name of its
    replacement, such as "sizewright.spec.Plan", which is returned instead.
    """
    old = deprecated or {}

    def load(name: str) -> object:
        if name in homes:
            home = importlib.import_module(homes[name])
            return home if homes[name] == f"{package}.{name}" else getattr(home, name)
        if name in old:
            since, instead = old[name]
            warn_deprecated(f"{package}.{name}", since=since, instead=instead)
            module, _, attribute = instead.rpartition(".")
            return getattr(importlib.import_module(module), attribute)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: list(sys.modules[package].__all__)


def warn_deprecated(what: str, *, since: str, instead: str, stacklevel: int = 3) -> None:
    """Warn the caller's caller that `what` is deprecated since the release `since`; see docs/deprecations.md.

    Raises ValueError for a release that is not MAJOR.MINOR.
    """
    major, minor = map(int, since.split("."))
    removed_in = f"{major}.{minor + KEPT_RELEASES}"
    warnings.warn(
        f"{what} is deprecated since {since} and will be removed in {removed_in}; use {instead}.",
        SizewrightDeprecationWarning,
        stacklevel=stacklevel,
    )


def __getattr__(name: str) -> str:
    """Return `__version__`, which is looked up on first use."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sizewright")
    except PackageNotFoundError:  # its source alone is on the path
        return "0+unknown"
