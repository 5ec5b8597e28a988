"""The base of all pictures: a matplotlib figure with a text alternative and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sizewright.errors import MissingExtraError

try:
    from matplotlib.artist import Artist
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    raise MissingExtraError("plots", "matplotlib") from None

COLORS = ("#3b7dc4", "#d2691e", "#2f8f46", "#9a5fc8", "#d43f57", "#0e8f8f", "#8a7a1f")
"""Distinguishable from each other, from white and from nearly black (contrast of at least 3 to 1)."""
GREY = "#808080"
INK = "#000000"
"""The report replaces this colour by that of the page's text."""
FAINT = 0.16
MEASURED, RESCALED, PREDICTED = "measured", "measured at other sizes, rescaled", "predicted"
"""Words of every legend. Only measurements have filled marks and solid lines; rescaled measurements are crosses;
predictions have hollow marks and dashed lines."""
DASHED = (0, (5, 2.5))


class Picture(Figure):
    """A figure of `width` × `height` inches with a text alternative, labels of its points, and its numbers."""

    def __init__(self, width: float = 7.0, height: float = 4.2) -> None:
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)
        self.alt = ""
        """The text alternative: what the picture shows, in a sentence or two."""
        self.labels: dict[str, list[str]] = {}
        """The label of each point of an artist, by the artist's gid."""
        self.numbers: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ())
        """Column names, and rows."""

    def label(self, artist: Artist, texts: Sequence[str]) -> None:
        """Label each point of an artist."""
        name = f"points-{len(self.labels) + 1}"
        artist.set_gid(name)
        self.labels[name] = list(texts)

    def _repr_png_(self) -> bytes:
        """Return the PNG that notebooks show."""
        import io

        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def tidy(axes: Any, **labels: Any) -> None:
    """Set labels and limits of axes, remove their box, and add a faint grid."""
    axes.set(**labels)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for name, axis in (("xlabel", axes.xaxis), ("ylabel", axes.yaxis)):
        if "samples/s" in labels.get(name, ""):
            axis.set_major_formatter("{x:,.10g}")


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit for an axis of that many seconds: its length in seconds, and its name."""
    return (3600.0, "h") if seconds > 7200 else (60.0, "min") if seconds > 120 else (1.0, "s")
