"""A manifest that was built from a plan: objects for the cluster, and one text for the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sizewright.executors.kubernetes.yaml_text import YamlText
from sizewright.executors.yaml_documents import from_yaml, to_yaml


@dataclass(frozen=True)
class Manifest:
    """Complete objects, or a user's base in which sizes were changed; the text is written only if it is needed."""

    content: Sequence[dict[str, Any]] | YamlText
    header: Sequence[str] = ()
    """The comment lines above complete objects."""
    remarks: Sequence[str] = ()
    """Sentences on what a person has to check."""

    @cached_property
    def text(self) -> str:
        """The manifest as a user gets it; a base keeps its comments and its layout."""
        return self.content.text if isinstance(self.content, YamlText) else to_yaml([*self.header], *self.content)

    @cached_property
    def documents(self) -> list[Any]:
        """The plain objects, as the API server reads them.

        Those of a base are read from its text: the server reads YAML 1.1, in which `yes` is true and `010` is 8, while
        `YamlText` keeps such words as the user wrote them.
        """
        return from_yaml(self.text) if isinstance(self.content, YamlText) else [*self.content]
