"""The first pass over a messages.jsonl: every row read once, and a few dozen bytes kept of it.

Texts are kept as 64-bit hashes of this process, to be compared with each other. Where a hit
decides something, the rows themselves are read again (`Scan.reread`), so that the outcome is
a function of the file alone.
"""

from array import array
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lettaspace.conversation.derive import message_tid
from lettaspace.conversation.jsontext import count_constants, well_formed
from lettaspace.conversation.times import valid
from lettaspace.letta import rows
from lettaspace.letta.damage import (
    LEGACY_ROW,
    LONE_SURROGATE,
    MISSING_PARENT,
    NO_TIME,
    NOT_A_NUMBER,
    TORN_ROW,
    UNKNOWN_ROW,
    UNREADABLE_ROW,
    Findings,
)
from lettaspace.letta.identity import Identity, given_tid, identify
from lettaspace.letta.rows import BadRow, Kind

TID_LENGTH = 13


class Entry(IntEnum):
    """What stands in a row that takes a place in the conversation's order."""

    DAMAGED = 0
    MESSAGE = 1
    SUMMARY = 2
    LEGACY = 3


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction row says besides its summary."""

    entry: int
    first_kept: int | None
    """Hash of the row id of the first message that stays."""
    before: int | None
    after: int | None
    time: str


@dataclass(slots=True)
class Scan:
    """The rows that hold messages, compactions or damage, in file order: one entry each."""

    path: Path
    conversation: str
    """Its TID."""
    created_at: str
    """Stands in where a message has no time of its own."""
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    checks: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    kinds: bytearray = field(default_factory=bytearray)
    unfinished: bytearray = field(default_factory=bytearray)
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    row_ids: "array[int]" = field(default_factory=lambda: array("q"))
    identities: "array[int]" = field(default_factory=lambda: array("q"))
    tids: bytearray = field(default_factory=bytearray)
    given: bytearray = field(default_factory=bytearray)
    """Flags: the row carries its message's TID, so it is one that lettaspace wrote."""
    compactions: list[Compaction] = field(default_factory=list[Compaction])
    header: dict[str, Any] | None = None
    unknown: int = 0
    bare: int = 0
    findings: Findings = field(default_factory=Findings)

    def __len__(self) -> int:
        return len(self.offsets)

    def copy(self) -> "Scan":
        """Another one with the same rows, whose TIDs and findings may be changed."""
        return replace(self, tids=bytearray(self.tids), findings=self.findings.copy())

    def tid(self, entry: int) -> str:
        """The TID of the message that the entry began."""
        return self.tids[entry * TID_LENGTH : (entry + 1) * TID_LENGTH].decode()

    def set_tid(self, entry: int, tid: str) -> None:
        self.tids[entry * TID_LENGTH : (entry + 1) * TID_LENGTH] = tid.encode()

    def tid_array(self) -> NDArray[Any]:
        """The TIDs as a numpy array of byte strings (a copy)."""
        return np.array(np.frombuffer(bytes(self.tids), dtype=f"S{TID_LENGTH}"))

    def reread(self, file: BinaryIO, entry: int) -> dict[str, Any]:
        """The row of an entry that is not damaged, as Python reads it."""
        raw = self.raw(file, entry)
        value: dict[str, Any] = rows.parse(raw, self.offsets[entry])
        return value

    def raw(self, file: BinaryIO, entry: int) -> bytes:
        """The bytes of an entry's row. Raises Changed if they are no longer those scanned."""
        offset = self.offsets[entry]
        if file.tell() != offset:
            file.seek(offset)
        raw = file.read(self.lengths[entry])
        if hash(raw) != self.checks[entry]:
            raise Changed
        return raw

    def identity(self, row: dict[str, Any], message: dict[str, Any]) -> Identity:
        """The identity of a message in its row."""
        return identify(row, message, self.created_at)[0]


class Changed(Exception):
    """The file is not what it was in the first pass."""


def scan(path: Path, conversation: str, created_at: str, *, max_row: int = rows.MAX_ROW) -> Scan:
    """Reads a messages.jsonl through. A missing file has no rows.

    `conversation` and `created_at` are those of the `Scan`.
    """
    scanner = Scanner(Scan(path, conversation, created_at))
    try:
        file = path.open("rb", buffering=1 << 18)
    except FileNotFoundError:
        return scanner.scan
    with file:
        for line in rows.read_lines(file, max_row=max_row):
            scanner.line(line)
    return scanner.result()


class Scanner:
    """Adds rows to a scan, one by one."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.previous: str | None = None
        # Parents that are not simply the row before: hash and row number.
        self.parents: array[int] = array("q")
        self.parent_rows: array[int] = array("q")
        self.saw_surrogate = False

    def result(self) -> Scan:
        """The scan of the rows so far. More may be added afterwards."""
        scan = self.scan.copy()
        if scan.unknown:
            scan.findings.add(UNKNOWN_ROW, None, f"{scan.unknown} rows of another type")
        if self.parents:
            known = np.isin(np.array(self.parents), np.array(scan.row_ids))
            for row in np.array(self.parent_rows)[~known].tolist():
                scan.findings.add(MISSING_PARENT, row)
        return scan

    def line(self, line: rows.Line) -> None:
        """Adds a row."""
        scan, raw = self.scan, line.raw
        if raw is None:
            self.damaged(line, UNREADABLE_ROW, rows.TOO_LARGE)
            return
        try:
            value = rows.parse(raw, line.offset)
            kind, message = rows.recognise(value)
        except BadRow as bad:
            if glued := rows.unglue(line):
                for part in glued:
                    self.line(part)
                return
            # Cut off anywhere, also within a character.
            torn = not line.ended and bad.reason in (rows.NOT_JSON, rows.NOT_UTF8)
            self.damaged(line, TORN_ROW if torn else bad.kind, bad.reason)
            return
        if kind is Kind.UNKNOWN:
            scan.unknown += 1
        elif kind is Kind.HEADER:
            # A header is no parent, and later ones tell nothing new.
            if scan.header is None:
                scan.header = rows.parse_exact(raw, line.offset)
        else:
            self.message(line, raw, value, kind, message)

    def damaged(self, line: rows.Line, kind: str, reason: str) -> None:
        self.scan.findings.add(kind, line.number, f"{reason}, {line.length} bytes")
        self.entry(line, Entry.DAMAGED, 0, 0, 0, bytes(TID_LENGTH))

    def entry(
        self,
        line: rows.Line,
        kind: Entry,
        message_id: int,
        row_id: int,
        identity: int,
        tid: bytes,
        *,
        given: bool = False,
    ) -> None:
        scan = self.scan
        scan.offsets.append(line.offset)
        scan.lengths.append(line.length)
        scan.checks.append(hash(line.raw))
        scan.numbers.append(line.number)
        scan.kinds.append(kind)
        scan.unfinished.append(0)
        scan.ids.append(message_id)
        scan.row_ids.append(row_id)
        scan.identities.append(identity)
        scan.tids += tid
        scan.given.append(given)

    def message(
        self,
        line: rows.Line,
        raw: bytes,
        value: dict[str, Any],
        kind: Kind,
        message: dict[str, Any],
    ) -> None:
        scan = self.scan
        identity, made_up = identify(value, message, scan.created_at)
        if made_up:
            scan.findings.add(NO_TIME, line.number)
        if kind is Kind.LEGACY:
            scan.findings.add(LEGACY_ROW, line.number)
            entry = Entry.LEGACY
        elif kind is Kind.COMPACTION:
            scan.compactions.append(_compaction(value, message, len(scan), identity.created_at))
            entry = Entry.SUMMARY
        else:
            scan.bare += kind is Kind.BARE
            entry = Entry.MESSAGE
        row_id = value.get("id")
        if type(row_id) is not str:
            row_id = identity.message_id
        given = given_tid(value)
        tid = given or message_tid(scan.conversation, *identity)
        self.entry(
            line,
            entry,
            hash(identity.message_id),
            hash(row_id),
            hash(identity),
            tid.encode(),
            given=given is not None,
        )
        if identity.role == "assistant" and message.get("stopReason") in _UNFINISHED:
            scan.unfinished[-1] = 1
        parent = value.get("parentId")
        if parent != self.previous and type(parent) is str:
            self.parents.append(hash(parent))
            self.parent_rows.append(line.number)
        self.previous = row_id
        if (b"NaN" in raw or b"Infinity" in raw) and _has_constant(raw, line.offset):
            scan.findings.add(NOT_A_NUMBER, line.number)
        if not self.saw_surrogate and _ESCAPED_SURROGATE(raw) and _has_surrogate(value):
            # One is enough to know: they are kept exactly, and shown as a mark.
            self.saw_surrogate = True
            scan.findings.add(LONE_SURROGATE, line.number)


_UNFINISHED = (None, "error", "aborted")


def _ESCAPED_SURROGATE(raw: bytes) -> bool:  # noqa: N802
    return b"\\ud" in raw or b"\\uD" in raw


def _compaction(
    row: dict[str, Any], message: dict[str, Any], entry: int, created_at: str
) -> Compaction:
    stats: Any = message
    for key in ("metadata", "compaction", "stats"):
        stats = stats.get(key) if type(stats) is dict else None
    if type(stats) is not dict:
        stats = {}
    first = row.get("firstKeptEntryId")
    return Compaction(
        entry,
        hash(first) if type(first) is str else None,
        _count(stats.get("messages_count_before")),
        _count(stats.get("messages_count_after")),
        valid(row.get("timestamp")) or created_at,
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _has_constant(raw: bytes, offset: int) -> bool:
    return count_constants(rows.parse_exact(raw, offset)) > 0


def _has_surrogate(value: Any) -> bool:
    rest: list[Any] = [value]
    while rest:
        item = rest.pop()
        if type(item) is str:
            if not well_formed(item):
                return True
        elif type(item) is dict:
            rest.extend(item)
            rest.extend(item.values())
        elif type(item) is list:
            rest.extend(item)
    return False
