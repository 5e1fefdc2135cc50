"""The JSON form of values: what is read can be written, encoded, and read again."""

from __future__ import annotations

import json

from lettaspace.atproto import cbor, data
from lettaspace.errors import InvalidRecord
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b'"$type":', b'"$link":', b'"$bytes":', b'"__proto__":', b'{"$bytes":"AA"}', b'"blob"'),
    *(b"1e3", b"-0", b"1.0", b"NaN", b"9007199254740992", b'"\\ud800"', b"\\u0000", b"[[", b'""'),
)


def fuzz_data(given: bytes) -> None:
    value, refusal = outcome(lambda: data.loads(given), InvalidRecord)
    _, again = outcome(lambda: data.loads(text(given)), InvalidRecord)
    assert again == refusal
    if refusal is not None:
        return
    json.loads(given)
    written = data.dumps(value)
    assert data.loads(written) == value
    encoded = cbor.encode(value)
    assert cbor.decode(encoded) == value
    assert cbor.encode(data.loads(written.encode())) == encoded
    data.blob_refs(value)
