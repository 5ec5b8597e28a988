"""A table that is readable on any terminal: it adapts its layout to the width, and never truncates a cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

_MIN_TEXT_WIDTH = 20
"""A wider column of text is not made narrower than this."""
_MAX_TRANSPOSED_ROWS = 5


class TableRow(NamedTuple):
    """The cells of a row, its style, and the `styles` of its first cells; `section` draws a line above it."""

    cells: tuple[str, ...]
    style: str = ""
    section: bool = False
    styles: tuple[str, ...] = ()


class DataTable:
    """Rows under a title. The columns in `text` are left-aligned and wrap; the others hold numbers, right-aligned.

    The first layout that fits the width is used: a table; a narrower table whose text wraps, with columns of equal
    cells moved to a line below; the transposed table; a block of lines for each row.
    """

    def __init__(self, title: str, *columns: str, text: Collection[str] = ()) -> None:
        self.title = title
        self._columns = columns
        self._text = text
        self._rows = list[TableRow]()
        self._section = False

    def add_row(self, *cells: str, style: str = "", styles: tuple[str, ...] = ()) -> None:
        """Add one cell per column; `style` applies to the row, `styles` to its first cells."""
        self._rows.append(TableRow(cells, style, self._section, styles))
        self._section = False

    def add_section(self) -> None:
        """Draw a line above the next row."""
        self._section = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if self.title:
            yield Text(self.title, style="italic")
        yield from self._lines(options.max_width)
        if self.title:
            yield Text("")

    def _lines(self, width: int) -> Iterable[Text]:
        """Return the lines of the first layout that fits the width."""
        full = _Grid(self._columns, self._text, self._rows)
        reduced, note_of_reduced = self._without_repeats()
        for gaps in ((3, 2), (1,)):
            for grid, note in ((full, ""), (reduced, note_of_reduced)):
                for widths, gap in grid.column_widths(width, gaps):
                    lines = grid.lines(widths, gap)
                    return [*lines, *(Text(line, style="dim") for line in _wrap(note, width) if note)]
        if 1 < len(self._rows) <= _MAX_TRANSPOSED_ROWS:
            transposed = self._transposed()
            for widths, gap in transposed.column_widths(width, (3, 2)):
                return transposed.lines(widths, gap)
        return full.blocks(width)

    def _without_repeats(self) -> tuple[_Grid, str]:
        """Return the table without columns whose cells are all equal, and a sentence with these cells."""
        repeated = {
            i: cells[0]
            for i, cells in enumerate(zip(*(row.cells for row in self._rows), strict=True))
            if len(self._rows) > 1 and len(set(cells)) == 1 and self._columns[i]
        }
        keep = [i for i in range(len(self._columns)) if i not in repeated]
        rows = [row._replace(cells=tuple(row.cells[i] for i in keep)) for row in self._rows]
        text = "; ".join(f"{self._columns[i]} {cell}" for i, cell in repeated.items())
        return _Grid([self._columns[i] for i in keep], self._text, rows), f"In every row: {text}." if text else ""

    def _transposed(self) -> _Grid:
        """Return the table with one row per column; the first column becomes the header."""
        name, *columns = zip(self._columns, *(row.cells for row in self._rows), strict=True)
        rows = [TableRow(cells) for cells in columns]
        return _Grid(name, (name[0],), rows)


class _Grid:
    """Columns with their rows and widths."""

    def __init__(self, columns: Sequence[str], text: Collection[str], rows: Sequence[TableRow]) -> None:
        self._columns = tuple(columns)
        self._is_text = [column in text for column in columns]
        self._rows = rows
        cells = [[row.cells[i] for row in rows] for i in range(len(columns))]
        self._cell_widths = [max(map(_widest, each), default=0) for each in cells]
        self._max_widths = [max(_widest(name), width) for name, width in zip(columns, self._cell_widths, strict=True)]
        self._min_widths = [
            max(_longest_word(column), *map(_longest_word if is_text else _widest, each), 0)
            for column, each, is_text in zip(columns, cells, self._is_text, strict=True)
        ]

    def column_widths(self, width: int, gaps: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Yield widths of the columns, and gaps between them, that fit in `width`, the widest first."""
        for gap in gaps:
            room = width - gap * (len(self._columns) - 1)
            if sum(self._max_widths) <= room:
                yield self._max_widths, gap
        for gap in gaps:
            room = width - gap * (len(self._columns) - 1)
            widths = [
                max(low, min(high, _MIN_TEXT_WIDTH)) if is_text else low
                for low, high, is_text in zip(self._min_widths, self._max_widths, self._is_text, strict=True)
            ]
            if sum(widths) <= room:
                yield self._distribute(widths, room), gap

    def _distribute(self, widths: list[int], room: int) -> list[int]:
        """Widen columns of text within the room, those that need least first."""
        remaining = room - sum(widths)
        for i in sorted(range(len(widths)), key=lambda i: self._max_widths[i] - widths[i]):
            more = min(remaining, self._max_widths[i] - widths[i]) if self._is_text[i] else 0
            widths[i] += more
            remaining -= more
        return widths

    def lines(self, widths: Sequence[int], gap: int) -> list[Text]:
        """Return the header, a rule, and one or more lines per row."""

        def text(wrapped: Sequence[Sequence[str]], style: str, styles: Sequence[str] = ()) -> Iterator[Text]:
            for parts in zip_longest(*wrapped, fillvalue=""):
                cells = map(_pad, parts, widths, self._is_text)
                line = Text(style=style)
                for number, cell in enumerate(cells):
                    line.append(" " * gap if number else "")
                    line.append(cell, style=styles[number] if number < len(styles) else None)
                line.rstrip()
                yield line

        rule = Text("─" * (sum(widths) + gap * (len(widths) - 1)), style="dim")
        lines = list[Text]()
        if any(self._columns):
            names = [_wrap(name, width) for name, width in zip(self._columns, widths, strict=True)]
            height = max(map(len, names))
            lines += [*text([[""] * (height - len(name)) + name for name in names], "bold"), rule]
        for row in self._rows:
            if row.section:
                lines.append(rule)
            cells = [_wrap(cell, width) for cell, width in zip(row.cells, widths, strict=True)]
            lines += text(cells, row.style, row.styles)
        return lines

    def blocks(self, width: int) -> list[Text]:
        """Return a block of `name value` pairs for each row."""
        lines = list[Text]()
        for number, row in enumerate(self._rows):
            if number:
                lines.append(Text(""))
            cells = map(_pad, row.cells, self._cell_widths, self._is_text)
            pairs = [f"{name} {cell}" if name else cell for name, cell in zip(self._columns, cells, strict=True)]
            lines += [Text(line, style=row.style) for line in _fill_lines([pair for pair in pairs if pair], width)]
        return lines


def _widest(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def _longest_word(cell: str) -> int:
    return max(map(cell_len, cell.split()), default=0)


def _pad(cell: str, width: int, is_text: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if is_text else space + cell


def _fill_lines(parts: Sequence[str], width: int) -> list[str]:
    """Return lines with as many parts each as fit; a part that is wider than a line is wrapped."""
    lines = list[str]()
    for part in parts:
        if lines and cell_len(lines[-1]) + 3 + cell_len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines += _wrap(part, width)
    return [line.rstrip() for line in lines]


def _wrap(cell: str, width: int) -> list[str]:
    """Break the lines of a cell between words; a word is never broken."""
    lines = []
    for line in cell.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        current = ""
        for word in line.split():
            if current and cell_len(current) + 1 + cell_len(word) > width:
                lines.append(current)
                current = word
            else:
                current = f"{current} {word}" if current else word
        lines.append(current)
    return lines
