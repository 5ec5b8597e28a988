"""The settings that Sizewright reads from the environment: each variable, its meaning and its default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple


class Variable(NamedTuple):
    """A variable of the environment."""

    name: str
    meaning: str
    default: str = ""
    """The value that commands use if the variable is not set; empty if they do without one."""


def _setting(name: str, meaning: str, default: str = "") -> Any:
    return field(default=None, metadata={"variable": Variable(name, meaning, default)})


@dataclass(frozen=True)
class EnvironmentSettings:
    """The variables that are set; one that is unset or empty is None."""

    store: str | None = _setting(
        "SIZEWRIGHT_STORE", "The trial store: a file or an SQLAlchemy URL.", "sqlite:///sizewright.db"
    )
    tracking_uri: str | None = _setting(
        "SIZEWRIGHT_TRACKING_URI",
        "Registry of learned priors: an MLflow server, or sqlite:///FILE.",
        "sqlite:///sizewright-models.db",
    )
    ledger: str | None = _setting(
        "SIZEWRIGHT_LEDGER", "Audit log: a file that records every plan and who requested it.", "sizewright-plans.jsonl"
    )
    rails: str | None = _setting("SIZEWRIGHT_RAILS", "File of guardrails that plans must satisfy.")
    cache_home: str | None = _setting("XDG_CACHE_HOME", "Folder of caches, in `sizewright` below it.", "~/.cache")
    runtime_dir: str | None = _setting(
        "XDG_RUNTIME_DIR",
        "Folder of the sockets of running jobs, in `sizewright` below it; else a private temporary folder.",
    )

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> EnvironmentSettings:
        """Return the settings of this moment, by default from `os.environ`."""
        env = os.environ if env is None else env
        return cls(**{setting.name: env.get(setting.metadata["variable"].name) or None for setting in fields(cls)})

    @classmethod
    def variables(cls) -> dict[str, Variable]:
        """Return the variable of each setting, by the name of the setting."""
        return {setting.name: setting.metadata["variable"] for setting in fields(cls)}

    @property
    def cache_folder(self) -> Path:
        """The folder of Sizewright's caches."""
        home = Path(self.cache_home) if self.cache_home else Path(_VARIABLES["cache_home"].default).expanduser()
        return home / "sizewright"


_VARIABLES = EnvironmentSettings.variables()
STORE_VARIABLE, DEFAULT_STORE = _VARIABLES["store"].name, _VARIABLES["store"].default
TRACKING_VARIABLE, DEFAULT_TRACKING = _VARIABLES["tracking_uri"].name, _VARIABLES["tracking_uri"].default
DEFAULT_LEDGER = _VARIABLES["ledger"].default
