"""A rich console on which printed text cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from sizewright.redaction import shown


class SafeConsole(Console):
    """Passes text through `shown` before it is wrapped, and what is rendered; the control codes of rich itself stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render like rich, with safe text."""
        if isinstance(renderable, str):
            renderable = shown(renderable)
        elif isinstance(renderable, Text) and (safe := shown(renderable.plain)) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = safe
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)
