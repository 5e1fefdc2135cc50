"""Identifiers and formats: whatever the text, each says yes or no, and means it."""

from __future__ import annotations

import re
from datetime import datetime

from lettaspace.atproto import graphemes, syntax, tid
from lettaspace.atproto.syntax import MAX_HANDLE, MAX_NSID
from lettaspace.atproto.validate import FORMATS
from lettaspace.errors import InvalidInput
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b"did:web:", b"did:plc:", b"did:key:z", b"com.example", b"xn--", b"-", b".", b"%3A"),
    *(b"2026-02-29T23:59:59.999Z", b"+00:00", b"-00:00", b"i-klingon", b"x-", b"zh-Hant-TW", b"\n"),
)

_FORMATS = [check for check in vars(syntax).values() if getattr(check, "__name__", "")[:3] == "is_"]
_label = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?", re.ASCII)


def fuzz_syntax(given: bytes) -> None:
    name = text(given)
    for check in _FORMATS:
        if check(name):
            assert name.isascii()
            assert name.isprintable()
            assert name
    for check in FORMATS.values():
        assert check(name) in (True, False)
    assert syntax.is_handle(name) is _is_name(name, MAX_HANDLE, 2)
    if syntax.is_nsid(name):
        assert _is_name(name, MAX_NSID, 3, last_digit=True)
    moment, refusal = outcome(lambda: tid.decode(name), InvalidInput)
    assert syntax.is_tid(name) is (refusal is None)
    if moment is not None and moment[0] <= tid.MAX_MICROS:
        assert tid.encode(*moment) == name
    if syntax.is_datetime(name):
        # Fractions as long as Python reads them.
        datetime.fromisoformat(re.sub(r"(\.[0-9]{1,6})[0-9]*", r"\1", name))
    assert 0 <= graphemes.count(name) <= len(name)


def _is_name(name: str, longest: int, fewest: int, *, last_digit: bool = False) -> bool:
    labels = name.split(".")
    return (
        len(name) <= longest
        and len(labels) >= fewest
        and all(len(one) <= 63 and _label.fullmatch(one) for one in labels)
        and (last_digit or labels[-1][0].isalpha())
    )
