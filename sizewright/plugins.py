"""Look up plugins by name: the built-in ones, and those that other packages register as entry points.

A package registers its plugins in an entry-point group such as `sizewright.models`. Entry points are searched only when
no built-in name matches, since the search takes some hundredths of a second and an import runs another package's code.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sizewright.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugins:
    """Plugins of one kind, `noun`: the built-in ones (`builtin`) and those of an entry-point `group`."""

    noun: str
    group: str
    builtin: Mapping[str, str]
    """`module:attribute` by name."""
    contract: str
    """Name of the contract tests in sizewright.testing that each plugin has to pass."""
    base: type | None = None
    """Required base class, whose `name` is the registered name; None where any callable will do."""

    def names(self) -> list[str]:
        """Return the built-in names, then the others, sorted; one that cannot be loaded is left out with a warning."""
        others = self._registered()
        return [
            *self.builtin,
            *(name for name in sorted(others) if name not in self.builtin and self._loads(others[name])),
        ]

    def find(self, name: str) -> Any:
        """Return the class of that name; a built-in one takes precedence.

        Raises InputError for an unknown name, with the closest match and all known names, and for a plugin that cannot
        be loaded or is invalid.
        """
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        point = self._registered().get(name)
        if point is None:
            known = self.names()
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean '{close[0]}'?" if close else "."
            raise InputError(f"There is no {self.noun} '{name}'{hint}", f"Known: {', '.join(known)}.")
        try:
            plugin = point.load()
        except Exception as error:  # whatever another package's import raises
            raise InputError(
                f"The {self.noun} '{name}' cannot be loaded from {point.value}: {error}.",
                "Repair or remove the package that registers it.",
            ) from error
        if fault := self._fault(name, plugin):
            raise self.invalid(name, fault)
        return plugin

    def invalid(self, name: str, fault: str) -> InputError:
        """Return the error for a plugin that is invalid."""
        return InputError(
            f"'{name}' is not a valid {self.noun}: {fault}.", f"Test it with sizewright.testing.{self.contract}."
        )

    def _loads(self, point: EntryPoint) -> bool:
        try:
            fault = self._fault(point.name, point.load())
        except Exception as error:  # whatever another package's import raises
            fault = str(error)
        if fault:
            _LOG.warning(
                "The %s '%s' from %s cannot be loaded and is left out: %s", self.noun, point.name, point.value, fault
            )
        return not fault

    def _fault(self, name: str, plugin: Any) -> str:
        """Return what makes a plugin invalid; an empty string if it is valid."""
        if self.base is None:
            return ""
        if not (isinstance(plugin, type) and issubclass(plugin, self.base)):
            return f"it is not a subclass of {self.base.__name__}"
        if missing := sorted(getattr(plugin, "__abstractmethods__", ())):
            return f"it does not implement {', '.join(missing)}"
        if (class_name := getattr(plugin, "name", None)) != name:
            return f"its `name` is '{class_name}'"
        try:
            inspect.signature(plugin).bind()
        except TypeError as error:
            return f"it cannot be created without arguments ({error})"
        return ""

    def _registered(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self.group)}
