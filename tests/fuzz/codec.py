"""Payloads become values of the data model and come back; others' values are read or refused.

The first byte chooses: what is known of the payload's structure, or that the rest is a value as
another writer may have stored it.
"""

from __future__ import annotations

from typing import Any

import lettaspace.conversation.local_message  # noqa: F401 - registers its format
from lettaspace.atproto import cbor, data
from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec, formats, jsontext, text
from lettaspace.conversation.leaves import DATA_LIMIT
from lettaspace.conversation.payload import parse_message
from lettaspace.conversation.redaction import Redactor
from lettaspace.conversation.shapes import FREE, LOCAL_AGENT, LOCAL_MESSAGE
from lettaspace.errors import Damaged, InvalidInput, InvalidRecord, NotFound
from tests.fuzz.texts import outcome

WORDS = (
    *(b'{"role":"user","content":[{"type":"text","text":"', b'"type":"image","data":"AAAA"'),
    *(b'{"type":"toolCall","id":"a","name":"b","arguments":{', b'"metadata":{"compaction":{'),
    *(b'"$type":"xyz.quasigod.lab.letta.defs#json"', b'"$link":"bafkrei', b'"$bytes":"AA"', b"NaN"),
    *(b'"$type":"xyz.quasigod.lab.letta.defs#blobText"', b'"blobs":[', b'"key":', b'"size":'),
    *(b'"mimeType":"image/png"', b"\\ufeff", b"\\ud800", b'"__proto__"', b'"usage":{"cost":{'),
    *(b"[[",),
)


def fuzz_codec(given: bytes) -> None:
    kind, rest = given[:1], given[1:]
    if kind == b"v":
        _check_value(rest)
        return
    payload, refusal = outcome(lambda: jsontext.loads(rest), InvalidInput)
    if refusal is None:
        shape = {b"m": LOCAL_MESSAGE, b"a": LOCAL_AGENT}.get(kind, FREE)
        _check_payload(payload, shape)


def _check_payload(payload: Any, shape: Any) -> None:
    encoded = codec.encode(payload, shape)
    assert len(cbor.encode(encoded.value)) <= DATA_LIMIT
    assert set(data.blob_refs(encoded.value)) == set(encoded.blobs)
    stored = data.loads(data.dumps(encoded.value))
    assert stored == encoded.value
    decoded = codec.decode(stored, encoded.blobs.__getitem__)
    if shape is FREE:
        assert jsontext.source_text(decoded) == jsontext.source_text(payload)
    # Keys of known structure come in an order of their own, to which this is the fixed point.
    again = codec.encode(decoded, shape)
    assert again == encoded
    outcome(lambda: parse_message(payload), InvalidInput, InvalidRecord)
    Redactor().json(payload)


def _check_value(raw: bytes) -> None:
    value, refusal = outcome(lambda: data.loads(raw), InvalidRecord)
    if refusal is not None or type(value) is not dict:
        return
    for images in (True, False):
        decoded, _ = outcome(lambda i=images: codec.decode(value, _missing, images=i), *_UNREADABLE)
        if decoded is not None:
            codec.encode(decoded)
    message = {"message": {"format": "letta.localMessage", "version": 1, "data": value}}
    outcome(lambda: list(text.pieces(message, _missing)), *_UNREADABLE)
    found = formats.of(message)
    assert found is not None
    outcome(lambda: found.calls(value, _missing), *_UNREADABLE)
    found.answers(value)
    found.is_placeholder(value)


_UNREADABLE = (Damaged, NotFound)


def _missing(cid: CID) -> bytes:
    if cid == CID.for_raw(b""):
        return b""
    raise NotFound("no such blob")
