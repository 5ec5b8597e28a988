"""Published definitions of custom resources, found as the tests find them.

They lie in `crds/` of the folder that SIZEWRIGHT_SHARED names, or of the folder `shared` next to the project.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def validator(kind: str) -> Any:
    """Return the validator of a kind, or end the benchmark if the definitions are missing."""
    try:
        return importlib.import_module("tests.helpers.crds").validator(kind)
    except pytest.skip.Exception as missing:
        raise SystemExit(str(missing)) from None
