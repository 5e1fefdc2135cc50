"""Files with a JSON value on each line: read row by row, whatever stands in it.

Rows end at b"\n" and nowhere else: U+2028 and the like stand raw inside strings. A byte-order
mark before the first row and a carriage return at a row's end are tolerated. Nothing here
refuses a file; what cannot be read becomes a `BadRow`, and reading goes on behind it.
"""

from collections.abc import Iterator
from json import JSONDecoder
from typing import Any, Final, NamedTuple, Protocol

from lettaspace.conversation import jsontext
from lettaspace.errors import InvalidInput

UNREADABLE_ROW: Final = "unreadableRow"
"""The kind of damage that a row is which holds no JSON value."""

MAX_ROW = 256 * 1024 * 1024
"""Bytes of a row, without its end. Larger ones are reported, not read."""

NUL = "NUL bytes"
NOT_UTF8 = "not UTF-8"
NOT_JSON = "not JSON"
TOO_DEEP = "nested too deeply"
TOO_LARGE = "too large"

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
_BLANK = b" \t\r\n\v\f"

# The standard library's decoder is several times faster than the exact one.
_decode = JSONDecoder().decode


class BadRow(Exception):
    """A row that cannot be taken over: the kind of damage, and the reason in words."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Line(NamedTuple):
    """A row that is not blank."""

    number: int
    """Of the physical line, from 1."""
    offset: int
    """Of its first byte in the file."""
    length: int
    """In bytes, including the newline."""
    raw: bytes | None
    """The bytes, a leading byte-order mark included; None for a row that is too large."""
    ended: bool
    """Whether a newline follows; only the last row may have none."""


class Lines(Protocol):
    """What rows are read from: a file opened in binary mode, as a rule."""

    def readline(self, limit: int, /) -> bytes: ...


def read_lines(
    file: Lines, *, offset: int = 0, number: int = 0, max_row: int = MAX_ROW
) -> Iterator[Line]:
    """The rows of a file, without the blank ones.

    They are read from where the file stands: behind `number` lines, which end at `offset`.
    """
    while raw := file.readline(max_row + 2):
        number += 1
        length = len(raw)
        ended = raw.endswith(b"\n")
        kept: bytes | None = raw
        if not ended and length > max_row:
            kept = None
            while rest := file.readline(_CHUNK):
                length += len(rest)
                if rest.endswith(b"\n"):
                    ended = True
                    break
        if kept is None or kept.strip(_BLANK):
            yield Line(number, offset, length, kept, ended)
        offset += length


def row_text(raw: bytes, offset: int) -> str:
    """A row as text. Raises BadRow when it is not UTF-8."""
    if not offset and raw.startswith(_BOM):
        raw = raw[len(_BOM) :]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadRow(UNREADABLE_ROW, NUL if b"\0" in raw else NOT_UTF8) from None


def parse(raw: bytes, offset: int) -> Any:
    """The value of a row, its numbers as Python reads them. Raises BadRow.

    Accepts exactly what `parse_exact` accepts, so that what the first pass counted on is
    there in the second.
    """
    text = row_text(raw, offset)
    # More brackets than that may be too deep, which only the exact reader tells.
    if text.count("[") + text.count("{") <= jsontext.MAX_DEPTH:
        try:
            return _decode(text)
        except (ValueError, RecursionError):
            # Not JSON, or a number with more digits than Python converts.
            pass
    return parse_exact(raw, offset)


def parse_exact(raw: bytes, offset: int) -> Any:
    """The value of a row as `jsontext.loads` gives it. Raises BadRow."""
    text = row_text(raw, offset)
    try:
        return jsontext.loads(text)
    except InvalidInput as error:
        if b"\0" in raw:
            reason = NUL
        else:
            reason = TOO_DEEP if "nested too deeply" in str(error) else NOT_JSON
        raise BadRow(UNREADABLE_ROW, reason) from None
