"""A table that is readable on any terminal: it changes its layout where there is no room, and never cuts a cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

_LEAST_TEXT = 20
"""Columns that a column of text keeps, where it is wider than that."""
_MOST_TRANSPOSED = 5


class Row(NamedTuple):
    """The cells of a row, with the style of all or of the first ones; `section` draws a line above it."""

    cells: tuple[str, ...]
    style: str = ""
    section: bool = False
    styles: tuple[str, ...] = ()


class DataTable:
    """Rows under a title. Columns of `text` are set to the left and wrap between words; all others hold numbers, which
    are set to the right and stay whole.

    The first layout that fits the width is taken: a table; a narrower one, whose text wraps, and where a column that
    says the same in every row is said once below; the same with rows for columns; a block of lines for each row.
    """

    def __init__(self, title: str, *columns: str, text: Collection[str] = ()) -> None:
        self.title = title
        self._columns = columns
        self._text = text
        self._rows = list[Row]()
        self._section = False

    def add_row(self, *cells: str, style: str = "", styles: tuple[str, ...] = ()) -> None:
        """Add one cell a column; `style` is of the row, `styles` are of its first cells."""
        self._rows.append(Row(cells, style, self._section, styles))
        self._section = False

    def add_section(self) -> None:
        """Draw a line above the next row."""
        self._section = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if self.title:
            yield Text(self.title, style="italic")
        yield from self._fitting(options.max_width)
        if self.title:
            yield Text("")

    def _fitting(self, width: int) -> Iterable[Text]:
        everything = _Grid(self._columns, self._text, self._rows)
        fewer, same = self._without_repeats()
        for gaps in ((3, 2), (1,)):
            for grid, note in ((everything, ""), (fewer, same)):
                for widths, gap in grid.settings(width, gaps):
                    lines = grid.lines(widths, gap)
                    return [*lines, *(Text(line, style="dim") for line in _wrapped(note, width) if note)]
        if 1 < len(self._rows) <= _MOST_TRANSPOSED:
            turned = self._transposed()
            for widths, gap in turned.settings(width, (3, 2)):
                return turned.lines(widths, gap)
        return everything.blocks(width)

    def _without_repeats(self) -> tuple[_Grid, str]:
        """Return the table without the columns that say the same in every row, and what they say."""
        repeated = {
            i: cells[0]
            for i, cells in enumerate(zip(*(row.cells for row in self._rows), strict=True))
            if len(self._rows) > 1 and len(set(cells)) == 1 and self._columns[i]
        }
        keep = [i for i in range(len(self._columns)) if i not in repeated]
        rows = [row._replace(cells=tuple(row.cells[i] for i in keep)) for row in self._rows]
        same = "; ".join(f"{self._columns[i]} {cell}" for i, cell in repeated.items())
        return _Grid([self._columns[i] for i in keep], self._text, rows), f"In every row: {same}." if same else ""

    def _transposed(self) -> _Grid:
        """Return the table with a row for each column; the first column becomes the header."""
        name, *columns = zip(self._columns, *(row.cells for row in self._rows), strict=True)
        rows = [Row(cells) for cells in columns]
        return _Grid(name, (name[0],), rows)


class _Grid:
    """Columns with their rows, and how wide they are."""

    def __init__(self, columns: Sequence[str], text: Collection[str], rows: Sequence[Row]) -> None:
        self._columns = tuple(columns)
        self._is_text = [column in text for column in columns]
        self._rows = rows
        cells = [[row.cells[i] for row in rows] for i in range(len(columns))]
        self._natural_cells = [max(map(_widest, each), default=0) for each in cells]
        self._natural = [max(_widest(name), cell) for name, cell in zip(columns, self._natural_cells, strict=True)]
        self._tight = [
            max(_longest_word(column), *map(_longest_word if is_text else _widest, each), 0)
            for column, each, is_text in zip(columns, cells, self._is_text, strict=True)
        ]

    def settings(self, width: int, gaps: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Yield the widths of columns, and the gap between them, that fit, the roomiest first."""
        for gap in gaps:
            room = width - gap * (len(self._columns) - 1)
            if sum(self._natural) <= room:
                yield self._natural, gap
        for gap in gaps:
            room = width - gap * (len(self._columns) - 1)
            widths = [
                max(tight, min(natural, _LEAST_TEXT)) if is_text else tight
                for tight, natural, is_text in zip(self._tight, self._natural, self._is_text, strict=True)
            ]
            if sum(widths) <= room:
                yield self._spread(widths, room), gap

    def _spread(self, widths: list[int], room: int) -> list[int]:
        """Give the room that is left to the columns that would be wider, the narrowest first."""
        left = room - sum(widths)
        for i in sorted(range(len(widths)), key=lambda i: self._natural[i] - widths[i]):
            more = min(left, self._natural[i] - widths[i]) if self._is_text[i] else 0
            widths[i] += more
            left -= more
        return widths

    def lines(self, widths: Sequence[int], gap: int) -> list[Text]:
        """Return a line of names, a rule, and a line or more for each row."""

        def text(wrapped: Sequence[Sequence[str]], style: str, styles: Sequence[str] = ()) -> Iterator[Text]:
            for parts in zip_longest(*wrapped, fillvalue=""):
                cells = map(_padded, parts, widths, self._is_text)
                line = Text(style=style)
                for number, cell in enumerate(cells):
                    line.append(" " * gap if number else "")
                    line.append(cell, style=styles[number] if number < len(styles) else None)
                line.rstrip()
                yield line

        rule = Text("─" * (sum(widths) + gap * (len(widths) - 1)), style="dim")
        made = list[Text]()
        if any(self._columns):
            names = [_wrapped(name, width) for name, width in zip(self._columns, widths, strict=True)]
            height = max(map(len, names))
            made += [*text([[""] * (height - len(name)) + name for name in names], "bold"), rule]
        for row in self._rows:
            made += [rule] if row.section else []
            made += text(
                [_wrapped(cell, width) for cell, width in zip(row.cells, widths, strict=True)], row.style, row.styles
            )
        return made

    def blocks(self, width: int) -> list[Text]:
        """Return a block of `name value` pairs for each row; pairs stand below each other where there is room."""
        made = list[Text]()
        for number, row in enumerate(self._rows):
            made += [Text("")] if number else []
            cells = map(_padded, row.cells, self._natural_cells, self._is_text)
            pairs = [f"{name} {cell}" if name else cell for name, cell in zip(self._columns, cells, strict=True)]
            made += [Text(line, style=row.style) for line in _packed([pair for pair in pairs if pair], width)]
        return made


def _widest(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def _longest_word(cell: str) -> int:
    return max(map(cell_len, cell.split()), default=0)


def _padded(cell: str, width: int, is_text: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if is_text else space + cell


def _packed(parts: Sequence[str], width: int) -> list[str]:
    """Put as many parts on each line as there is room for; a part that is wider than a line is wrapped."""
    lines = list[str]()
    for part in parts:
        if lines and cell_len(lines[-1]) + 3 + cell_len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines += _wrapped(part, width)
    return [line.rstrip() for line in lines]


def _wrapped(cell: str, width: int) -> list[str]:
    """Break a cell between words, where a line of it is wider; a word is never broken."""
    lines = []
    for line in cell.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        made = ""
        for word in line.split():
            if made and cell_len(made) + 1 + cell_len(word) > width:
                lines.append(made)
                made = word
            else:
                made = f"{made} {word}" if made else word
        lines.append(made)
    return lines
