"""The rows of a messages.jsonl: none stops the reading, and both readers agree on each."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from lettaspace.atproto.syntax import is_tid
from lettaspace.conversation import jsontext
from lettaspace.letta import rows
from lettaspace.letta.identity import given_tid, identify
from lettaspace.letta.plan import Status
from lettaspace.letta.replay import replay
from lettaspace.letta.rows import BadRow, Kind
from lettaspace.letta.scan import Scan, Scanner
from tests.fuzz.texts import outcome

WORDS = (
    *(b'{"type":"message","id":"', b'{"type":"compaction","id":"', b'{"type":"session"', b"\r\n"),
    *(b'"message":{"role":"user","content":', b'"timestamp":"2026-03-03T06:11:00.000Z"', b"\0"),
    *(b'"parentId":', b'"firstKeptEntryId":', b'"parts":[]', b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b'"metadata":{"created_at":"', b'"tokensBefore":', b"NaN", b"\\ud800", b"[[", b"\n"),
)


CONVERSATION = "3mgmzct4q5gka"
TIME = "2026-03-03T06:11:00.000Z"


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
                identify(value, kind[1], TIME)
                given_tid(value)
        elif (parted := rows.unglue(line)) is not None:
            head, tail = parted
            assert (head.raw or b"") + (tail.raw or b"") == raw
            rows.recognise(rows.parse(tail.raw or b"", tail.offset))
    _check_plan(given, lines)


def _check_plan(given: bytes, lines: list[rows.Line]) -> None:
    """Every message has a TID and a seq of its own, whatever the list of the window says."""
    scanner = Scanner(Scan(Path("messages.jsonl"), CONVERSATION, TIME))
    for line in lines:
        scanner.line(line)
    for listed in (None, ["m-1", "m-2", "m-1", ""], [str(i) for i in range(5)]):
        scan = scanner.result()
        plan = replay(scan, BytesIO(given), listed)
        messages = [int(entry) for entry in plan.messages()]
        assert len({plan.seqs[entry] for entry in messages}) == len(messages)
        assert len({scan.tid(entry) for entry in messages}) == len(messages)
        assert all(is_tid(scan.tid(entry)) for entry in messages)
        assert {entry for entry in messages if plan.status[entry] == Status.ACTIVE} == {
            *plan.window
        }
