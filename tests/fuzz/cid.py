"""CIDs, as text and as bytes: each has one form."""

from __future__ import annotations

import copy

from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_cid_string
from lettaspace.errors import InvalidInput
from tests.fuzz.texts import outcome, text

WORDS = (b"bafyrei", b"bafkrei", b"\x01\x71\x12\x20", b"\x01\x55\x12\x20")


def fuzz_cid(given: bytes) -> None:
    name = text(given)
    cid, refusal = outcome(lambda: CID.parse(name), InvalidInput)
    assert is_cid_string(name) is (refusal is None)
    if cid is not None:
        assert str(cid) == name
        assert CID.from_bytes(bytes(cid)) == cid
    cid, _ = outcome(lambda: CID.from_bytes(given), InvalidInput)
    if cid is not None:
        assert bytes(cid) == given
        assert CID.parse(str(cid)) == cid == copy.copy(cid)
