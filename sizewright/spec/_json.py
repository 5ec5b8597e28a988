"""Read JSON texts from other sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def loads(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a text. Raises JSONDecodeError, also when it is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise json.JSONDecodeError("lists or objects are nested too deeply", "", 0) from None
