"""What every picture is: a matplotlib figure that also tells in words and numbers what it shows."""

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
"""Told apart from each other, and from white and from nearly black alike (at least 3 to 1)."""
GREY = "#808080"
INK = "#000000"
"""What a page turns into the colour of its text."""
FAINT = 0.16
MEASURED, RESCALED, PREDICTED = "measured", "measured at other sizes, rescaled", "predicted"
"""Words of every legend. Filled marks and solid lines are of what was measured, and of nothing else; what was rescaled
is a cross, what is predicted has hollow marks and dashed lines."""
DASHED = (0, (5, 2.5))


class Picture(Figure):
    """A figure of `width` × `height` inches with a text alternative, labels of its points, and its numbers."""

    def __init__(self, width: float = 7.0, height: float = 4.2) -> None:
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)
        self.alt = ""
        """What it shows, in a sentence or two."""
        self.labels: dict[str, list[str]] = {}
        """By the gid of an artist, what each of its points is."""
        self.numbers: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ())
        """Column names, and rows."""

    def label(self, artist: Artist, texts: Sequence[str]) -> None:
        """Say what each point of an artist is."""
        name = f"points-{len(self.labels) + 1}"
        artist.set_gid(name)
        self.labels[name] = list(texts)

    def _repr_png_(self) -> bytes:
        """As notebooks show it."""
        import io

        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def tidy(axes: Any, **labels: Any) -> None:
    """Axes without a box, with a faint grid."""
    axes.set(**labels)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for name, axis in (("xlabel", axes.xaxis), ("ylabel", axes.yaxis)):
        if "samples/s" in labels.get(name, ""):
            axis.set_major_formatter("{x:,.10g}")


def time_unit(seconds: float) -> tuple[float, str]:
    """What an axis of so many seconds is told in: seconds of one, and its name."""
    return (3600.0, "h") if seconds > 7200 else (60.0, "min") if seconds > 120 else (1.0, "s")
