"""Standard output: lines and tables for people, one JSON document for programs."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from lettaspace.cli.text import clip, isolated, width
from lettaspace.page.inert import inert

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_GAP = "  "
_LINE = 100
"""Columns of a line of a table when nobody is watching."""
_CELL = 64
"""Columns of a cell: Letta's longest ids fit."""


class Output:
    """Writes to one stream. What it is given to print for people must be inert already."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.colours = (
            self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self.columns = shutil.get_terminal_size().columns if self.is_terminal else _LINE
        self.started = False
        """Whether anything was written."""

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def write(self, text: str) -> None:
        self.started = True
        self._stream.write(text)

    def style(self, text: str, *styles: str) -> str:
        """The text in these styles, where there are colours."""
        if not self.colours or not text:
            return text
        codes = ";".join(_STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str | int]]) -> None:
        """Columns as wide as they need to be; the last one takes what is left of the line.

        Cells are made inert here. Numbers stand to the right.
        """
        numbers: set[int] = set()
        cells: list[list[str]] = []
        for row in rows:
            numbers.update(at for at, cell in enumerate(row) if isinstance(cell, int))
            *most, rest = (inert(str(cell)) for cell in row)
            cells.append([*(clip(cell, _CELL) for cell in most), rest])
        last = len(heads) - 1
        widths = [
            max(width(head), *(width(row[at]) for row in cells)) if cells else width(head)
            for at, head in enumerate(heads[:last])
        ]
        left = max(20, self.columns - sum(widths) - len(_GAP) * last)
        for number, row in enumerate([list(heads), *cells]):
            parts = [
                " " * (widths[at] - width(cell)) + isolated(cell)
                if at in numbers
                else isolated(cell) + " " * (widths[at] - width(cell))
                for at, cell in enumerate(row[:last])
            ]
            line = _GAP.join([*parts, isolated(clip(row[last], left))]).rstrip()
            self.line(line if number else self.style(line, "bold"))

    def json(self, value: Any) -> None:
        """One JSON document."""
        self.line(json_text(value))

    def json_list(self, items: Iterable[Any]) -> None:
        """A JSON list, one element a line, written as they come."""
        self._elements("[", items, "]\n")

    def json_object(self, fields: Mapping[str, Any]) -> None:
        """A JSON object whose values may be iterators: those are written as lists, one element
        a line, as they come, so that no number of elements is too large."""
        lead = "{"
        for key, value in fields.items():
            self.write(f"{lead}{json_text(key)}:")
            if isinstance(value, Iterator):
                self._elements("[", value, "]")
            else:
                self.write(json_text(value))
            lead = ",\n"
        self.write("}\n")

    def _elements(self, start: str, items: Iterable[Any], end: str) -> None:
        lead = start + "\n"
        empty = True
        for item in items:
            self.write(lead + json_text(item))
            lead = ",\n"
            empty = False
        self.write(start + end if empty else "\n" + end)


def json_text(value: Any) -> str:
    """JSON text in ASCII: valid in every encoding, and it cannot drive a terminal."""
    from lettaspace.conversation.jsontext import dumps

    return dumps(value, ascii=True)
