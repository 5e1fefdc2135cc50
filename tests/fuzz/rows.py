"""The rows of a messages.jsonl: none stops the reading, and both readers agree on each."""

from __future__ import annotations

from io import BytesIO

from lettaspace.conversation import jsontext
from lettaspace.letta import rows
from lettaspace.letta.identity import given_tid, identify
from lettaspace.letta.rows import BadRow, Kind
from tests.fuzz.texts import outcome

WORDS = (
    *(b'{"type":"message","id":"', b'{"type":"compaction","id":"', b'{"type":"session"', b"\r\n"),
    *(b'"message":{"role":"user","content":', b'"timestamp":"2026-03-03T06:11:00.000Z"', b"\0"),
    *(b'"parentId":', b'"firstKeptEntryId":', b'"parts":[]', b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b'"metadata":{"created_at":"', b'"tokensBefore":', b"NaN", b"\\ud800", b"[[", b"\n"),
)


def fuzz_rows(given: bytes) -> None:
    lines = list(rows.read_lines(BytesIO(given), max_row=4096))
    assert sum(line.length for line in lines) <= len(given)
    for line in lines:
        if line.raw is None:
            assert line.length > 4096
            continue
        assert given[line.offset : line.offset + line.length] == line.raw
        raw, offset = line.raw, line.offset
        value, refusal = outcome(lambda r=raw, o=offset: rows.parse(r, o), BadRow)
        exact, other = outcome(lambda r=raw, o=offset: rows.parse_exact(r, o), BadRow)
        assert refusal == other
        if refusal is None:
            assert value == exact or jsontext.count_constants(exact)
            kind, _ = outcome(lambda v=value: rows.recognise(v), BadRow)
            if kind is not None and kind[0] in (Kind.MESSAGE, Kind.COMPACTION):
                identify(value, kind[1], "2026-03-03T06:11:00.000Z")
                given_tid(value)
        elif (parted := rows.unglue(line)) is not None:
            head, tail = parted
            assert (head.raw or b"") + (tail.raw or b"") == raw
            rows.recognise(rows.parse(tail.raw or b"", tail.offset))
