"""Reading rows: where they end, what they are, what is wrong with them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation import jsontext
from lettaspace.letta import rows
from lettaspace.letta.rows import BadRow, Kind, read_lines
from lettaspace.letta.scan import Entry, scan
from tests.letta.build import at, jsonl, message, row

GOOD = jsonl([row(message(1, "user", "hi"), "e1", None)])


def test_lines_know_their_place() -> None:
    data = b"a\r\n\n \t\nb\xe2\x80\xa8c\nlast"
    lines = list(read_lines(io.BytesIO(data)))
    assert [(each.number, each.offset, each.raw, each.ended) for each in lines] == [
        (1, 0, b"a\r\n", True),
        (4, 7, b"b\xe2\x80\xa8c\n", True),
        (5, 13, b"last", False),
    ]
    assert all(data[each.offset :].startswith(each.raw or b"?") for each in lines)


@pytest.mark.parametrize("size", [9, 10, 12, 13, 5_000_000])
@pytest.mark.parametrize("end", [b"\n", b"\nnext\n", b""])
def test_too_large_rows_are_passed_over(size: int, end: bytes) -> None:
    lines = list(read_lines(io.BytesIO(b"a\n" + b"x" * size + end), max_row=10))
    assert lines[1].length == size + (end != b"")
    assert (lines[1].raw is None) == (size > 11 or (size > 10 and end == b""))
    assert [each.raw for each in lines[2:]] == [b"next\n"] * (len(end) > 1)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", rows.NOT_JSON),
        (b"garbage\n", rows.NOT_JSON),
        (b'{"a":1}{"b":2}', rows.NOT_JSON),
        (b"\0\0\0\0\n", rows.NUL),
        (b'{"a":"\0"}', rows.NUL),
        (b"\0\xff", rows.NUL),
        (b'{"a":"\xff"}', rows.NOT_UTF8),
        (b'{"a":"\xed\xa0\x80"}', rows.NOT_UTF8),
        (b"[" * 600 + b"]" * 600, rows.TOO_DEEP),
        (b"[" * 100_000, rows.TOO_DEEP),
    ],
)
@pytest.mark.parametrize("parse", [rows.parse, rows.parse_exact])
def test_unreadable_rows(raw: bytes, reason: str, parse: Any) -> None:
    with pytest.raises(BadRow) as caught:
        parse(raw, 1)
    assert (caught.value.kind, caught.value.reason) == ("unreadableRow", reason)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":[1,2.5,NaN]}\r\n',
        b"1" * 5000,
        b"[" * 512 + b"]" * 512,
        b'{"x":"' + b"[" * 1000 + b'"}',
        b'"\\ud83c"',
    ],
)
def test_both_readers_accept_the_same(raw: bytes) -> None:
    rows.parse(raw, 1)
    rows.parse_exact(raw, 1)


def test_a_mark_counts_only_at_the_start() -> None:
    assert rows.parse(b"\xef\xbb\xbf1", 0) == 1
    with pytest.raises(BadRow):
        rows.parse(b"\xef\xbb\xbf1", 7)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"type": "session"}, Kind.HEADER),
        ({"type": "message", "message": {"id": "a"}}, Kind.MESSAGE),
        ({"type": "compaction", "message": {}}, Kind.COMPACTION),
        ({"role": "user", "content": []}, Kind.BARE),
        ({"role": "user", "content": "text"}, Kind.BARE),
        ({"role": "user", "parts": []}, Kind.LEGACY),
        ({"type": "message", "message": {"parts": []}}, Kind.LEGACY),
        ({"type": "label"}, Kind.UNKNOWN),
        ({"content": []}, Kind.UNKNOWN),
        ([], Kind.UNKNOWN),
        (7, Kind.UNKNOWN),
    ],
)
def test_recognise(value: Any, kind: Kind) -> None:
    assert rows.recognise(value)[0] is kind


@pytest.mark.parametrize("value", [None, [], "x"])
@pytest.mark.parametrize("kind", ["message", "compaction"])
def test_rows_without_their_message(value: Any, kind: str) -> None:
    with pytest.raises(BadRow) as caught:
        rows.recognise({"type": kind, "message": value})
    assert caught.value.kind == "missingMessage"


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (b'{"a', "tornRow"),
        (b'{"a":"\xc3', "tornRow"),
        (b'{"type":"message"}', "missingMessage"),
        (b"\0\0", "unreadableRow"),
    ],
)
def test_the_last_row(tmp_path: Path, bad: bytes, kind: str) -> None:
    path = tmp_path / "m"
    path.write_bytes(GOOD + bad)
    scanned = scan(path, "2222222222222", at(0))
    assert [(each.kind, each.row) for each in scanned.findings] == [(kind, 2)]
    assert list(scanned.kinds) == [Entry.MESSAGE, Entry.DAMAGED]
    path.write_bytes(GOOD.rstrip(b"\n"))
    assert not scan(path, "2222222222222", at(0)).findings.entries


def test_a_row_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(GOOD + jsonl([row(message(2, "user", "x" * 5000), "e2", "e1")]) + GOOD)
    scanned = scan(path, "2222222222222", at(0), max_row=2000)
    assert [(each.kind, each.row) for each in scanned.findings] == [("unreadableRow", 2)]
    assert "too large" in scanned.findings.entries[0].note
    assert len(scanned) == 3


def test_odd_messages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "m"
    odd = [
        {"type": "message", "message": {"content": []}},
        {"type": "message", "id": 7, "parentId": 8, "timestamp": 9, "message": {"role": "\ud800"}},
        {"type": "message", "id": "a", "message": {"timestamp": 1e300, "metadata": "none"}},
        {"type": "message", "id": "b", "message": {"timestamp": 1709632800000}},
        {"type": "note"},
    ]
    path.write_bytes(b"".join(jsontext.dumps(each).encode() + b"\n" for each in odd))
    scanned = scan(path, "2222222222222", at(0))
    assert list(scanned.kinds) == [Entry.MESSAGE] * 4
    assert [(each.kind, each.row) for each in scanned.findings] == [
        ("noTime", 1),
        ("noTime", 2),
        ("loneSurrogate", 2),
        ("noTime", 3),
        ("unknownRow", None),
    ]


def test_too_many_findings_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x\n" * 1500)
    found = scan(path, "2222222222222", at(0)).findings
    assert (len(found.entries), found.left_out, found.losses) == (1000, 500, 1500)
