"""What an API server's refusals mean to a user."""

from __future__ import annotations

from typing import Any

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.spec._json import loads

BUSY = (429, 500, 502, 503, 504)
"""Those after which the same may be asked again."""
_MISTYPED = "failed to create typed patch object"


def busy(error: Any) -> bool:
    """Whether the same may be asked again. Server-side apply calls what is wrong in a body a failure of its own."""
    return error.status in BUSY and _MISTYPED not in str(error.body)


def told(what: str, error: Any) -> SizewrightError:
    """Of an ApiException on the way to do `what`; fields are named where the server names them."""
    try:
        status = loads(error.body)
        causes = (status.get("details") or {}).get("causes") or []
        fields = "; ".join(f"{each.get('field')}: {each.get('message')}" for each in causes)
    except (TypeError, ValueError, AttributeError):
        status, fields = {}, ""
    said = str(status.get("message") or error.reason or error.status).rstrip(".")
    if error.status == 409:
        return InputError(
            f"Cannot {what}: {said}.", "Let the other owner give those fields up, or take them out of the manifest."
        )
    if error.status in (401, 403):
        return InputError(f"Not allowed to {what}: {said}.", "Ask for a role that may, or use another context.")
    if _MISTYPED in said:
        fields = said.partition("): ")[2]
    if error.status in (400, 413, 415, 422) or _MISTYPED in said:
        return InputError(f"The cluster refuses to {what}: {fields or said}.", "Correct this, and try again.")
    return EngineError(
        f"The API server failed to {what}: {said} ({error.status}).",
        "See how it is, and ask again.",
    )
