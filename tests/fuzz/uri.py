"""AT-URIs: what is parsed prints as it was, and the patterns agree with the parsers."""

from __future__ import annotations

from lettaspace.atproto.uri import (
    RecordUri,
    SpaceRef,
    is_at_uri,
    is_space_ref,
    parse_at_uri,
    parse_record_uri,
    parse_space_ref,
)
from lettaspace.errors import InvalidInput
from tests.fuzz.texts import outcome, text

WORDS = (b"at://", b"did:plc:", b"did:web:", b"/space/", b"com.example.note", b"#/", b"%25", b"..")


def fuzz_uri(given: bytes) -> None:
    name = text(given)
    uri, refusal = outcome(lambda: parse_at_uri(name), InvalidInput)
    assert is_at_uri(name) is (refusal is None)
    space, refusal = outcome(lambda: parse_space_ref(name), InvalidInput)
    assert is_space_ref(name) is (refusal is None) is isinstance(uri, SpaceRef)
    record, refusal = outcome(lambda: parse_record_uri(name), InvalidInput)
    assert (refusal is None) is (isinstance(uri, RecordUri) and uri.fragment is None)
    for found in (uri, space, record):
        assert found is None or (str(found) == name and parse_at_uri(str(found)) == found)
