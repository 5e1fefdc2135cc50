"""DAG-CBOR: bytes are refused, or are the encoding of what they decode to."""

from __future__ import annotations

from lettaspace.atproto import cbor
from lettaspace.atproto.data import blob_refs
from lettaspace.errors import InvalidInput
from tests.fuzz.texts import outcome

WORDS = (b"\xd8\x2a\x58\x25\x00\x01\x71\x12\x20", b"\xa1\x61a", b"\x9f", b"\xbf", b"\xfb", b"\x1b")


def fuzz_cbor(given: bytes) -> None:
    value, refusal = outcome(lambda: cbor.decode(given), InvalidInput)
    if refusal is None:
        assert cbor.encode(value) == given
        blob_refs(value)
