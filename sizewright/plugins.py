"""Things that are found by name: those that come with Sizewright, and those that other packages register.

A package registers what it has in an entry-point group, `sizewright.models` say. These are looked for only where a name
of ours is not meant: that takes some hundredths of a second, and an import runs another package's code.
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
    """Of one `noun`, such as executor: `ours` by name, as `module:attribute`, and those of an entry-point `group`."""

    noun: str
    group: str
    ours: Mapping[str, str]
    contract: str
    """In sizewright.testing: what each of them keeps."""
    base: type | None = None
    """What each is a subclass of, with its name as `name`; None where whatever makes one will do."""

    def names(self) -> list[str]:
        """Ours in their order, then the others, sorted. What cannot be loaded is warned of, and is not among them."""
        others = self._registered()
        return [*self.ours, *(name for name in sorted(others) if name not in self.ours and self._loads(others[name]))]

    def find(self, name: str) -> Any:
        """The class of that name; a name of ours is always ours.

        Raises InputError for an unknown name, with the nearest and all that are known, and for what cannot be loaded.
        """
        if name in self.ours:
            module, _, attribute = self.ours[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        point = self._registered().get(name)
        if point is None:
            known = self.names()
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean '{close[0]}'?" if close else "."
            raise InputError(f"There is no {self.noun} '{name}'{hint}", f"Known: {', '.join(known)}.")
        try:
            found = point.load()
        except Exception as error:  # whatever another package's import raises
            raise InputError(
                f"The {self.noun} '{name}' cannot be loaded from {point.value}: {error}.",
                "Mend or remove the package that registers it.",
            ) from error
        if fault := self._fault(name, found):
            raise self.none(name, fault)
        return found

    def none(self, name: str, fault: str) -> InputError:
        """The error of what is registered and is not what it should be."""
        return InputError(
            f"The {self.noun} '{name}' is none: {fault}.", f"Hold it against sizewright.testing.{self.contract}."
        )

    def _loads(self, point: EntryPoint) -> bool:
        try:
            fault = self._fault(point.name, point.load())
        except Exception as error:  # whatever another package's import raises
            fault = str(error)
        if fault:
            told = (self.noun, point.name, point.value, fault)
            _LOG.warning("The %s '%s' of %s cannot be loaded, and is left out: %s", *told)
        return not fault

    def _fault(self, name: str, found: Any) -> str:
        if self.base is None:
            return ""
        if not (isinstance(found, type) and issubclass(found, self.base)):
            return f"it is no subclass of {self.base.__name__}"
        if lacks := sorted(getattr(found, "__abstractmethods__", ())):
            return f"it lacks {', '.join(lacks)}"
        if (own := getattr(found, "name", None)) != name:
            return f"it calls itself '{own}'"
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            return f"it cannot be made without arguments ({error})"
        return ""

    def _registered(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self.group)}
