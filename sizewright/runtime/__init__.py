"""A job while it runs: it is launched, observed, guarded and tuned, here or from another process.

`MetricsLog` and `AuditLog` read what `run` and `apply` write down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.runtime.audit_log import AuditLog, Entry
    from sizewright.runtime.metrics_log import MetricsLog, Observed
    from sizewright.runtime.run import RunProgress
    from sizewright.runtime.tuning import Tuning

_HOMES = {
    "Entry": "sizewright.runtime.audit_log",
    "AuditLog": "sizewright.runtime.audit_log",
    "MetricsLog": "sizewright.runtime.metrics_log",
    "Observed": "sizewright.runtime.metrics_log",
    "RunProgress": "sizewright.runtime.run",
    "Tuning": "sizewright.runtime.tuning",
}

__all__ = [
    "AuditLog",
    "Entry",
    "MetricsLog",
    "Observed",
    "RunProgress",
    "Tuning",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
