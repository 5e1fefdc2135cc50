"""The rows of a messages.jsonl, each recognised by itself. `conversation.jsonlines` reads them."""

from enum import IntEnum
from typing import Any

from lettaspace.conversation.jsonlines import MAX_ROW as MAX_ROW
from lettaspace.conversation.jsonlines import NOT_JSON as NOT_JSON
from lettaspace.conversation.jsonlines import NOT_UTF8 as NOT_UTF8
from lettaspace.conversation.jsonlines import NUL as NUL
from lettaspace.conversation.jsonlines import TOO_DEEP as TOO_DEEP
from lettaspace.conversation.jsonlines import TOO_LARGE as TOO_LARGE
from lettaspace.conversation.jsonlines import BadRow as BadRow
from lettaspace.conversation.jsonlines import Line as Line
from lettaspace.conversation.jsonlines import parse as parse
from lettaspace.conversation.jsonlines import parse_exact as parse_exact
from lettaspace.conversation.jsonlines import read_lines as read_lines
from lettaspace.conversation.jsonlines import row_text as row_text
from lettaspace.letta.damage import MISSING_MESSAGE


class Kind(IntEnum):
    """What a row turned out to be."""

    HEADER = 0
    MESSAGE = 1
    COMPACTION = 2
    BARE = 3
    """A message that is a line by itself, as in manifest version 1."""
    LEGACY = 4
    """A message of the generation before: `parts`, and no `content`."""
    UNKNOWN = 5


def recognise(value: Any) -> tuple[Kind, dict[str, Any]]:
    """What a row is, and the message in it (the row itself for a header, {} for unknown).

    More tolerant than Letta, which passes over a message row without a parent or timestamp.
    Raises BadRow for a row that says it holds a message and does not.
    """
    if type(value) is not dict:
        return Kind.UNKNOWN, {}
    kind = value.get("type")
    if kind == "message" or kind == "compaction":
        message = value.get("message")
        if type(message) is not dict:
            raise BadRow(MISSING_MESSAGE, "no message in it")
        if kind == "compaction":
            return Kind.COMPACTION, message
        return Kind.LEGACY if _is_legacy(message) else Kind.MESSAGE, message
    if kind == "session":
        return Kind.HEADER, value
    if _is_legacy(value):
        return Kind.LEGACY, value
    if type(value.get("role")) is str and "content" in value:
        return Kind.BARE, value
    return Kind.UNKNOWN, {}


_ROW_STARTS = (b'{"type":"message","id":', b'{"type":"compaction","id":')


def unglue(line: Line) -> tuple[Line, Line] | None:
    """A bad row as what a crash left of one row, and the whole row behind it.

    Where a row got no newline, Letta glues the next one to it. Inside a row's texts quotes are
    escaped, so what looks like the beginning of a row, and can be read to the end, is one.
    """
    raw = line.raw or b""
    cut = max(raw.rfind(start, 1) for start in _ROW_STARTS)
    if cut < 1:
        return None
    offset = line.offset + cut
    try:
        recognise(parse(raw[cut:], offset))
    except BadRow:
        return None
    head = Line(line.number, line.offset, cut, raw[:cut], True)
    return head, Line(line.number, offset, line.length - cut, raw[cut:], line.ended)


def _is_legacy(message: dict[str, Any]) -> bool:
    return "content" not in message and type(message.get("parts")) is list
