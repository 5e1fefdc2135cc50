"""No request makes the server fail, and every answer has the shape that all have."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lettaspace.atproto.lexicon import METHODS, Lexicons
from lettaspace.atproto.methods import JSON, shipped
from tests.fuzz.xrpc import NSIDS, VERBS, check, fuzz_xrpc

ADA = "did:web:ada.example"
LEXICONS = Lexicons.load(METHODS)
REF = f"at://{ADA}/space/com.example.forum/self"
FITTING = {
    "at-identifier": ADA,
    "cid": "bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
    "did": ADA,
    "handle": "ada.example",
    "nsid": "com.example.note",
    "record-key": "a",
    "space-ref": REF,
    "tid": "3mbo6jo6e222b",
}
NAMES = ["space", "repo", "collection", "rkey", "record", "writes", "limit", "cursor", "did"]
NAMES += ["validate", "hash", "credentials", "readPolicy", "$type", "value", "$bytes", "$link"]

texts = st.sampled_from([*FITTING.values(), "", "true", "1", "\ufeff", "\0"]) | st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=10,
)
anything = settings(max_examples=150, deadline=None)


@anything
@given(st.binary(max_size=300))
@example(b"\x01\x00\x00\x00\n{}")
@example(b"\x00\xff\x00\x00%ff&&==+\n")
def test_any_bytes(data):
    fuzz_xrpc(data)


@anything
@given(
    st.sampled_from(NSIDS),
    st.sampled_from(VERBS),
    st.lists(st.tuples(st.sampled_from(NAMES) | texts, texts), max_size=6),
)
def test_any_query(nsid, verb, pairs):
    pairs = [(n.encode("utf-8", "replace"), v.encode("utf-8", "replace")) for n, v in pairs]
    check(verb, f"/xrpc/{nsid}", urlencode(pairs).encode(), [], [b""])


@anything
@given(st.sampled_from(NSIDS), values)
def test_any_body(nsid, value):
    body = json.dumps(value).encode()
    check("POST", f"/xrpc/{nsid}", b"", [("content-type", "application/json")], [body])


@anything
@given(st.sampled_from([n for n in NSIDS if shipped()[n].takes == JSON]), st.data())
def test_a_body_that_almost_fits(nsid, data):
    schema = LEXICONS.definition(nsid)["input"]["schema"]
    body = {}
    for name, field in schema["properties"].items():
        body[name] = data.draw(
            st.just(FITTING.get(field.get("format"), True if field["type"] == "boolean" else "x"))
            | values
        )
    raw = json.dumps(body).encode()
    check("POST", f"/xrpc/{nsid}", b"", [("content-type", "application/json")], [raw[:9], raw[9:]])


@anything
@given(st.text(max_size=30), st.sampled_from(VERBS))
def test_any_path(path, verb):
    check(verb, "/xrpc/" + path, b"", [], [b""])


@pytest.mark.parametrize("nsid", NSIDS)
def test_what_fits_is_answered(nsid):
    """So that the tests above do not only look at refusals."""
    method = shipped()[nsid]
    query = urlencode(
        {"space": REF, "repo": ADA, "rkey": "a", "collection": "com.example.note"}
        | {"cid": FITTING["cid"], "user": ADA, "access": "read", "handle": "ada.example"}
    ).encode()
    if method.kind == "query":
        assert check("GET", f"/xrpc/{nsid}", query, [], [b""]).status == 200
        assert check("GET", f"/xrpc/{nsid}", b"limit=0", [], [b""]).status in (200, 400)
        return
    assert check("POST", f"/xrpc/{nsid}", query, [], [b"\xff"]).status == 400
    if method.takes is None:
        assert check("POST", f"/xrpc/{nsid}", query, [], [b""]).status == 200
