"""A session file of pi, read: its header, its entries, and what is wrong with it.

Source: SessionManager of pi 0.73 and 1.6, which passes over lines that are no JSON.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from lettaspace.conversation import jsonlines, jsontext
from lettaspace.conversation.jsonlines import UNREADABLE_ROW, BadRow, Line
from lettaspace.conversation.text import plain_strings
from lettaspace.conversation.times import EPOCH, from_millis, valid
from lettaspace.errors import InvalidInput, StoreUnavailable

# Something could not be read.
TORN_ROW: Final = "tornRow"
MISSING_MESSAGE: Final = "missingMessage"

# All is there; somebody may want to know.
MISSING_PARENT: Final = "missingParent"
SAME_ID: Final = "sameId"
NO_ID: Final = "noId"
NO_TIME: Final = "noTime"
NOT_A_NUMBER: Final = "notANumber"
LONE_SURROGATE: Final = "loneSurrogate"
OLDER_COPY: Final = "olderCopy"

_LOSSES = frozenset({TORN_ROW, UNREADABLE_ROW, MISSING_MESSAGE})

# Inside an entry's texts quotes are escaped, so what looks like the start of one is one.
_STARTS = re.compile(rb'\{"type":"[a-z_]{1,64}","id":"[^"]{1,64}","parentId":')


class Finding(NamedTuple):
    """Something odd in a file: by place and kind, never by content."""

    kind: str
    row: int | None = None
    """The line, from 1."""
    note: str = ""

    @property
    def is_loss(self) -> bool:
        return self.kind in _LOSSES

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "row": self.row, "note": self.note, "loss": self.is_loss}


class Row(NamedTuple):
    """A line that holds an object."""

    row: int
    value: dict[str, Any]
    """As `jsontext.loads` gives it."""

    @property
    def id(self) -> str | None:
        """What other entries call it."""
        found = self.value.get("id")
        return found if isinstance(found, str) else None

    @property
    def type(self) -> str | None:
        found = self.value.get("type")
        return found if isinstance(found, str) else None

    @property
    def message(self) -> dict[str, Any]:
        """The message in it; {} where there is none."""
        found = self.value.get("message")
        return found if self.type == "message" and isinstance(found, dict) else {}

    @property
    def time(self) -> str | None:
        """When it was written, as a record may say it."""
        at = valid(self.value.get("timestamp"))
        return at or from_millis(self.message.get("timestamp"))


@dataclass(slots=True)
class Session:
    """A session file."""

    header: dict[str, Any]
    entries: list[Row]
    """What follows the header, in the order of the file."""
    bad_rows: list[int] = field(default_factory=list[int])
    """Lines of which nothing could be read."""
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def id(self) -> str:
        return str(self.header["id"])

    @property
    def version(self) -> int:
        """Of the form of the file. In the first one, entries have neither ids nor parents."""
        found = self.header.get("version")
        return found if type(found) is int else 1

    @property
    def created_at(self) -> str:
        """The header's time, or else the first one that anything has."""
        times = (valid(self.header.get("timestamp")), *(row.time for row in self.entries))
        return next((time for time in times if time is not None), EPOCH)


def read_session(path: Path) -> Session:
    """Reads a session file.

    Raises InvalidInput for what is none, StoreUnavailable for what cannot be opened.
    """
    try:
        with path.open("rb", buffering=1 << 18) as file:
            return parse_session(file, str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise StoreUnavailable(f"cannot read {path}: {reason}") from None


def parse_session(file: BinaryIO, name: str) -> Session:
    """The same of an open file, from its start."""
    bad: list[int] = []
    findings: list[Finding] = []
    rows: list[Row] = []
    for line in jsonlines.read_lines(file):
        for row in _rows(line, bad, findings):
            rows.append(row)
            if len(rows) == 1 and (row.type != "session" or row.id is None or not row.id):
                raise InvalidInput(f"{name} is no session of pi's: it begins with no header")
    if not rows:
        raise InvalidInput(f"{name} is no session of pi's: it begins with no header")
    return Session(rows[0].value, rows[1:], bad, findings)


def _rows(line: Line, bad: list[int], findings: list[Finding]) -> Iterator[Row]:
    """What a line holds; two entries where a crash left the first one without its end."""
    raw = line.raw
    if raw is None:
        bad.append(line.number)
        findings.append(Finding(UNREADABLE_ROW, line.number, jsonlines.TOO_LARGE))
        return
    try:
        value = _object(raw, line.offset)
    except BadRow as error:
        bad.append(line.number)
        torn = not line.ended
        findings.append(Finding(TORN_ROW if torn else error.kind, line.number, error.reason))
        cut = max((found.start() for found in _STARTS.finditer(raw)), default=0)
        if not cut:
            return
        try:
            value = _object(raw[cut:], line.offset + cut)
        except BadRow:
            return
    _look(line.number, raw, value, findings)
    yield Row(line.number, value)


def _object(raw: bytes, offset: int) -> dict[str, Any]:
    value = jsonlines.parse_exact(raw, offset)
    if type(value) is not dict:
        raise BadRow(UNREADABLE_ROW, "no object")
    return value


def _look(row: int, raw: bytes, value: dict[str, Any], findings: list[Finding]) -> None:
    """Notes what is odd about a value that is kept as it is."""
    if value.get("type") == "message" and not isinstance(value.get("message"), dict):
        findings.append(Finding(MISSING_MESSAGE, row, "no message in it"))
    if (b"NaN" in raw or b"Infinity" in raw) and jsontext.count_constants(value):
        findings.append(Finding(NOT_A_NUMBER, row))
    if b"\\u" in raw and not jsontext.well_formed(_halves(value)):
        findings.append(Finding(LONE_SURROGATE, row))


def _halves(value: Any) -> str:
    """All strings of a value, joined so that halves of characters don't meet."""
    return "\n".join(plain_strings(value))
