"""Which Sizewright this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("sizewright")
except PackageNotFoundError:  # its source alone is on the path
    __version__ = "0+unknown"
