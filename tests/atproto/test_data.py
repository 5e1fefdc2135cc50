"""The JSON form: what the reference's vectors say, and where we are stricter and why."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import cbor, data
from lettaspace.atproto.cid import CID
from lettaspace.errors import InvalidInput, InvalidRecord

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "vectors" / "cids.json").read_text(encoding="utf-8")
)["cases"]
ENCODE = [case for case in CASES if case["kind"] == "encode"]

_FLOAT = "another reader makes a float of it; integers are written without fraction and exponent"
_SURROGATE = "not Unicode; the reference stores U+FFFD instead"
_NOT_A_LINK = "the written spec: an object with $link is a link; the reference stores the object"
_CID_FORM = "the written spec: CIDs are version 1, SHA-256, in lower-case base32"
_NOT_BYTES = "the written spec: an object with $bytes is bytes; the reference stores the object"
_BASE64 = "the written spec: RFC 4648 section 4; and one text per content"
_TYPE = "the written spec: $type is a non-empty string; the reference's strict mode agrees"
_BLOB = "the written spec: the type blob has one shape; the reference's strict mode agrees"

# What the reference's JSON reader accepts and ours refuses.
STRICTER = {
    "float 1.0 is an integer": _FLOAT,
    "1e3 is an integer": _FLOAT,
    "negative zero float": _FLOAT,
    "lone high surrogate": _SURROGATE,
    "lone low surrogate": _SURROGATE,
    "lone surrogate in key": _SURROGATE,
    "link not a cid": _NOT_A_LINK,
    "link with extra key": _NOT_A_LINK,
    "link number": _NOT_A_LINK,
    "link empty": _NOT_A_LINK,
    "link upper-case base32": _CID_FORM,
    "link base58 cid": _CID_FORM,
    "link cid v0": _CID_FORM,
    "link sha512 cid": _CID_FORM,
    "bytes invalid": _NOT_BYTES,
    "bytes with extra key": _NOT_BYTES,
    "bytes number": _NOT_BYTES,
    "bytes whitespace": _NOT_BYTES,
    "bytes length 5 mod 4 = 1": _NOT_BYTES,
    "bytes urlsafe alphabet": _BASE64,
    "bytes non-canonical trailing bits": _BASE64,
    "$type number nested": _TYPE,
    "$type empty nested": _TYPE,
    "blob negative size": _BLOB,
    "blob ref dag-cbor cid": _BLOB,
    "blob malformed ref": _BLOB,
    "blob extra key": _BLOB,
    "blob no mimetype": _BLOB,
    "duplicate keys keep last": "readers differ on which one counts",
}

# Where both read a value but not the same one afterwards.
DIFFERENT_TEXT = {
    "bom": "the reference drops a leading U+FEFF when it reads its own block back",
}
DIFFERENT_BLOBS = {
    "legacy blob shape": "the protocol refuses legacy blobs in spaces",
}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = TEXT.filter(lambda key: key not in ("$link", "$bytes", "$type", "__proto__"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | TEXT
    | st.binary(max_size=8)
    | st.builds(CID.for_raw, st.binary(max_size=4)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)
BLOB = CID.for_raw(b"blob")


@pytest.mark.parametrize("case", ENCODE, ids=lambda case: case["name"])
def test_reference_vectors(case):
    name, text = case["name"], case["json_text"]
    if case["expected"] == "error" or name in STRICTER:
        with pytest.raises(InvalidRecord):
            data.loads(text)
        return
    value = data.loads(text)
    block = cbor.encode(value)
    assert block.hex() == case["cbor_hex"]
    assert str(CID.for_cbor(block)) == case["cid"]
    back = cbor.decode(block)
    assert back == value
    if name not in DIFFERENT_TEXT:
        assert json.loads(data.dumps(back)) == json.loads(case["roundtrip_json_text"])


@pytest.mark.parametrize(
    "case", [case for case in ENCODE if case.get("blob_refs")], ids=lambda case: case["name"]
)
def test_reference_blob_refs(case):
    value = cbor.decode(bytes.fromhex(case["cbor_hex"]))
    found = [str(cid) for cid in data.blob_refs(value)]
    assert found == ([] if case["name"] in DIFFERENT_BLOBS else case["blob_refs"])


def test_whatever_the_strict_mode_of_the_reference_refuses_is_refused():
    refused = {case["name"] for case in ENCODE if case["strict_parse"] == "error"}
    assert refused <= STRICTER.keys() | {c["name"] for c in ENCODE if c["expected"] == "error"}
    assert len(refused) > 15


def test_every_exception_is_still_one():
    by_name = {case["name"]: case for case in ENCODE}
    assert all(by_name[name]["expected"] == "ok" for name in STRICTER)
    assert data.loads(by_name["bom"]["json_text"]) == {"v": "\ufeffx"}
    assert json.loads(by_name["bom"]["roundtrip_json_text"]) == {"v": "x"}
    legacy = by_name["legacy blob shape"]
    assert data.blob_refs(data.loads(legacy["json_text"])) == [] != legacy["blob_refs"]


@given(VALUES)
def test_round_trips(value):
    obj = data.to_json(value)
    assert data.from_json(obj) == value
    assert data.from_json(json.loads(json.dumps(obj))) == value
    assert data.loads(data.dumps(value)) == value
    assert data.loads(data.dumps(value).encode()) == value


@given(VALUES)
def test_the_text_is_that_of_the_object(value):
    text = json.dumps(data.to_json(value), ensure_ascii=False, separators=(",", ":"))
    assert data.dumps(value) == data.dumps(value, checked=True) == text


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"$link": "x"}},
        {"a": {"$bytes": "AA"}},
        {"a": [{"__proto__": 1}]},
        {"$type": ""},
        {"$type": 7},
        {"a": {"$type": "blob", "ref": 3}},
    ],
)
def test_what_would_mean_something_else_is_refused_though_checked(value):
    assert data.dumps({"v": '"$link":'}, checked=True) == r'{"v":"\"$link\":"}'
    with pytest.raises(InvalidRecord):
        data.dumps(value)
    with pytest.raises(InvalidRecord):
        data.dumps(value, checked=True)


def test_the_arguments_are_not_changed():
    obj = {"a": [{"$link": str(BLOB)}], "b": {"c": {"$bytes": "AQID"}}}
    before = json.dumps(obj)
    value = data.from_json(obj)
    assert value == {"a": [BLOB], "b": {"c": b"\x01\x02\x03"}}
    assert json.dumps(obj) == before
    assert data.to_json(value) == obj
    assert value == {"a": [BLOB], "b": {"c": b"\x01\x02\x03"}}
    value["a"].append(1)
    assert json.dumps(obj) == before


def test_scalars_at_the_top():
    assert data.loads(json.dumps({"$link": str(BLOB)})) == BLOB
    assert data.to_json(BLOB) == {"$link": str(BLOB)}
    assert data.dumps(b"") == '{"$bytes":""}'
    for text in ("null", "true", "-5", '"x"', "[]", "{}"):
        assert data.dumps(data.loads(text)) == text


@pytest.mark.parametrize("size", range(9))
def test_bytes_are_written_without_padding_and_read_with_or_without(size):
    raw = bytes(range(250, 250 + size)) if size < 6 else b"\xff" * size
    padded = b64encode(raw).decode()
    assert data.to_json(raw) == {"$bytes": padded.rstrip("=")}
    assert data.from_json({"$bytes": padded}) == raw
    assert data.from_json({"$bytes": padded.rstrip("=")}) == raw


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "AQI==",
        "AQ=",
        "AQ===",
        "AQID=",
        "AQID====",
        "====",
        "=",
        "AQ\nID",
        "AQID\n",
        "-_-_",
        "AQJ",
        "AR",
        "AQ=I",
        "é",
        "AQI\u0130",
        1,
        None,
        ["AQID"],
        {"$bytes": "AQID"},
    ],
)
def test_other_texts_are_not_bytes(text):
    with pytest.raises(InvalidRecord, match=r"^a\[0\]: \$bytes is not base64"):
        data.from_json({"a": [{"$bytes": text}]})


@pytest.mark.parametrize("link", ["", str(BLOB).upper(), str(BLOB)[1:], 5, None, [str(BLOB)], {}])
def test_other_texts_are_not_links(link):
    with pytest.raises(InvalidRecord, match=r"^a\[0\]: \$link: "):
        data.from_json({"a": [{"$link": link}]})


@pytest.mark.parametrize(
    "obj",
    [
        {"$link": str(BLOB), "x": 1},
        {"$bytes": "AQID", "x": 1},
        {"$bytes": "AQID", "$link": str(BLOB)},
        {"$link": str(BLOB), "$type": "com.example.x"},
    ],
)
def test_links_and_bytes_stand_alone(obj):
    with pytest.raises(InvalidRecord, match="other keys beside"):
        data.from_json(obj)


@pytest.mark.parametrize("key", ["$link", "$bytes"])
def test_what_would_read_back_as_something_else_is_not_written(key):
    for value in ({key: "x"}, {"a": [{key: str(BLOB), "b": 1}]}):
        with pytest.raises(InvalidRecord, match="meaning in JSON"):
            data.to_json(value)
        with pytest.raises(InvalidRecord, match="meaning in JSON"):
            data.dumps(value)


@pytest.mark.parametrize("convert", [data.from_json, data.to_json])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"__proto__": 1}}, "a: key __proto__"),
        ({"a": [{"$type": ""}]}, r"a\[0\]: \$type"),
        ({"a": {"$type": None}}, r"a: \$type"),
        ({"a": {"$type": "blob"}}, r"a: \$type is blob"),
        ({"a": [{"$type": "blob", "ref": "x", "mimeType": "a/b", "size": 1}]}, r"a\[0\]: \$type"),
        ({"a": 1.0}, "a: float"),
        ({"a": 2**53}, "a: integer"),
        ({"a": "\ud800"}, "a: text with a lone surrogate"),
        ({"a": {1: 2}}, "a: map key"),
        ({"a": (1,)}, "a: tuple"),
    ],
)
def test_both_ways_refuse_the_same(convert, value, message):
    with pytest.raises(InvalidRecord, match=f"^{message}"):
        convert(value)


@pytest.mark.parametrize("value", [b"x", BLOB])
def test_json_holds_no_values_of_ours(value):
    with pytest.raises(InvalidRecord, match=r"^a: not a JSON value"):
        data.from_json({"a": value})
    with pytest.raises(InvalidRecord, match=r"^value: not a JSON value"):
        data.from_json(value)


@pytest.mark.parametrize("number", ["1.0", "1e3", "1E3", "-0.0", "0.5", "1e400", "NaN", "Infinity"])
def test_numbers_with_fraction_or_exponent(number):
    with pytest.raises(InvalidRecord, match="fraction"):
        data.loads(f'{{"v":[{number}]}}')


@pytest.mark.parametrize("number", ["9007199254740992", "-9007199254740992", "9" * 5000])
def test_large_integers(number):
    with pytest.raises(InvalidRecord, match="integer beyond"):
        data.loads(f'{{"v":{number}}}')


def test_minus_zero_is_zero():
    assert data.dumps(data.loads('{"v":-0}')) == '{"v":0}'


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"x":{"b":1,"\\u0062":2}}]'])
def test_duplicate_keys(text):
    with pytest.raises(InvalidRecord, match="same key twice"):
        data.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "{'a':1}",
        "[1] x",
        "\ufeff{}",
        '"\n"',
        "01",
        '{"a":1} {"b":2}',
        b"\xff",
        b'"\xed\xa0\x80"',
        b'{"a":"\xc3"}',
        "\udc80",
        "nul",
    ],
)
def test_what_is_not_json(text):
    with pytest.raises(InvalidRecord, match="not JSON"):
        data.loads(text)


def test_messages_hold_no_content():
    with pytest.raises(InvalidRecord) as refusal:
        data.loads('{"a": "secret" "hunter2"}')
    assert "secret" not in str(refusal.value)
    assert "hunter" not in str(refusal.value)


@pytest.mark.parametrize("depth", [513, 5000, 200_000])
def test_depth_has_a_limit(depth):
    with pytest.raises(InvalidRecord, match="nested deeper"):
        data.loads("[" * depth + "]" * depth)
    with pytest.raises(InvalidRecord, match="nested deeper"):
        data.loads('{"a":' * depth + "1" + "}" * depth)
    assert data.loads("[" * 512 + "]" * 512)


def test_text_travels_as_itself():
    text = 'é 語 🧪 \u2028 \x7f \u0000 \ufeff \\ " / <>'
    assert data.loads(data.dumps({"t": text})) == {"t": text}
    assert data.dumps("é🧪") == '"é🧪"'


def blob(**changes):
    return {"$type": "blob", "ref": BLOB, "mimeType": "image/png", "size": 4} | changes


def test_blob_refs_at_any_depth_in_order():
    first, second, third = (CID.for_raw(bytes([n])) for n in range(3))
    value = {
        "z": blob(ref=first),
        "a": [{"x": [[blob(ref=second)]]}, blob(ref=third), blob(ref=first)],
        "link": BLOB,
    }
    assert data.blob_refs(value) == [first, second, third, first]
    assert data.blob_refs(blob()) == [BLOB]
    assert data.blob_refs([]) == data.blob_refs("x") == data.blob_refs(BLOB) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"$type": "com.example.blob"},
        {"ref": str(BLOB)},
        {"ref": {"$link": str(BLOB)}},
        {"mimeType": 5},
        {"size": "4"},
        {"size": True},
        {"alt": "x"},
    ],
)
def test_what_only_looks_like_a_blob(changes):
    assert data.blob_refs({"b": blob(**changes)}) == []


@pytest.mark.parametrize("missing", ["$type", "ref", "mimeType", "size"])
def test_a_blob_has_all_its_fields(missing):
    value = blob()
    del value[missing]
    assert data.blob_refs([value]) == []


def test_blobs_within_what_only_looks_like_a_blob_are_found():
    assert data.blob_refs(blob(alt=[blob()])) == [BLOB]


def test_a_blob_keeps_its_shape_in_json():
    text = data.dumps({"b": blob()})
    assert json.loads(text)["b"]["ref"] == {"$link": str(BLOB)}
    assert data.loads(text) == {"b": blob()}


def test_refusals_of_identifiers_stay_refusals_of_records():
    with pytest.raises(InvalidRecord):
        data.from_json({"$link": "x"})
    with pytest.raises(InvalidInput):
        CID.parse("x")


@pytest.mark.parametrize(
    "changes",
    [
        {"ref": str(BLOB)},
        {"ref": CID.for_cbor(b"")},
        {"size": -1},
        {"size": "4"},
        {"size": False},
        {"mimeType": None},
        {"mimeType": 5},
        {"alt": "x"},
    ],
)
def test_what_claims_to_be_a_blob_is_one(changes):
    value = {"a": [blob(**changes)]}
    with pytest.raises(InvalidRecord, match=r"^a\[0\]: \$type is blob, but this is none"):
        data.to_json(value)
    obj = {"a": [blob(**({"ref": BLOB} | changes))]}
    if isinstance(obj["a"][0]["ref"], CID):
        obj["a"][0]["ref"] = {"$link": str(obj["a"][0]["ref"])}
    with pytest.raises(InvalidRecord, match=r"^a\[0\]: \$type is blob, but this is none"):
        data.from_json(obj)


def test_a_blob_whose_link_is_malformed():
    for ref in ({"$link": "x"}, {"$link": str(BLOB), "x": 1}, {}):
        with pytest.raises(InvalidRecord, match=r"^b: "):
            data.from_json({"b": blob(ref=ref)})


ODD_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.sampled_from(["", "text", "blob", "é🏺", "\ud83c", "bafkreia", "AAA", "image/png"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["a", "$type", "$link", "$bytes", "__proto__", "ref", "mimeType", "size", "\udfff"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def result(work, *args):
    try:
        return work(*args)
    except InvalidRecord as error:
        return str(error)


@given(ODD_JSON)
def test_a_text_is_read_as_what_it_was_parsed_to(obj):
    expected = result(data.from_json, obj)
    assert result(data.loads, json.dumps(obj)) == expected
    assert result(data.loads, json.dumps(obj).encode()) == expected
    raw = json.dumps(obj, ensure_ascii=False)
    assert result(data.loads, raw) == expected


@given(ODD_JSON | VALUES | st.floats())
def test_a_text_is_written_as_the_document_of_the_value(value):
    document = result(data.to_json, value)
    written = result(data.dumps, value)
    assert written == document or json.loads(written) == document
