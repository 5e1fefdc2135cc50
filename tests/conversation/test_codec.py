import base64
import doctest
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.atproto.lexicon import shipped
from lettaspace.conversation import codec, leaves
from lettaspace.conversation.codec import decode, encode
from lettaspace.conversation.jsontext import Number, dumps, loads, source_text
from lettaspace.conversation.shapes import FREE, LOCAL_MESSAGE, SHAPES, Known, ListOf
from lettaspace.errors import Damaged, InvalidInput, NotFound

from .jsongen import CONSTANTS, quote, string_texts, texts, texts_with_constants, tree

JSON = "xyz.quasigod.lab.letta.defs#json"
DOCUMENT = Path(__file__).parents[2] / "docs" / "records.md"
DEFS = "xyz.quasigod.lab.letta.defs"


def escape(text):
    return {"$type": JSON, "json": text}


def no_blob(cid):
    raise NotFound(f"no blob {cid}")


def round_trip(payload, shape=FREE):
    """What comes back after the record was stored, with everything that must always hold."""
    encoded = encode(payload, shape)
    data = cbor.encode(encoded.value)
    assert cbor.decode(data) == encoded.value
    assert len(data) <= leaves.DATA_LIMIT
    assert type(encoded.value) is dict
    assert set(blob_refs(encoded.value)) == set(encoded.blobs)
    assert all(len(blob) <= 4 * 1024 * 1024 for blob in encoded.blobs.values())
    again = encode(payload, shape)
    assert (again.value, again.blobs) == (encoded.value, encoded.blobs)
    decoded = decode(cbor.decode(data), encoded.blobs.__getitem__)
    assert source_text(decode(encoded.value, encoded.blobs.__getitem__)) == source_text(decoded)
    twice = encode(decoded, shape)
    assert (twice.value, twice.blobs) == (encoded.value, encoded.blobs)
    return decoded


# ---- arbitrary JSON ---------------------------------------------------------------------------


@given(texts_with_constants)
def test_any_json_comes_back_exactly(text):
    assert tree(source_text(round_trip(loads(text)))) == tree(text)


@given(texts_with_constants)
def test_any_json_comes_back_from_within_a_list(text):
    """The root is always an object; this is what a part of a payload goes through."""
    found = round_trip({"x": [loads(text)]})
    assert tree(source_text(found)) == tree(f'{{"x":[{text}]}}')


@given(texts())
def test_values_keep_to_the_data_model(text):
    def check(value, depth):
        assert depth <= codec.MAX_DEPTH + 1
        if isinstance(value, dict):
            if "$type" in value:
                assert value.keys() == {"$type", "json"}
                assert value["$type"] == JSON
                assert value["json"].isascii()
                return
            assert codec.RESERVED.isdisjoint(value)
            for key, item in value.items():
                check(key, depth)
                check(item, depth + 1)
        elif isinstance(value, list):
            for item in value:
                check(item, depth + 1)
        elif isinstance(value, str):
            assert not value.startswith("\ufeff")
            value.encode()
        else:
            assert value is None or isinstance(value, bool) or abs(value) < 2**53

    value = encode({"x": loads(text)}).value
    check(value, 1)


def message_texts():
    """Messages whose known objects have their keys in any order, and odd extras."""
    anything = texts(max_leaves=4)
    short = string_texts()

    def known(required, extra=3):
        extras = st.lists(
            st.tuples(string_texts(st.text("xyz$", max_size=2)), anything), max_size=extra
        )
        return st.tuples(st.fixed_dictionaries({}, optional=required), extras, st.randoms()).map(
            _object
        )

    stats = known({"tokens": anything, "n": anything})
    cost = known({"input": anything, "output": anything, "total": anything})
    image = st.binary(max_size=9).map(lambda raw: quote(base64.b64encode(raw).decode(), 0))
    part = known(
        {
            "type": st.sampled_from(['"text"', '"image"', '"toolCall"']) | short,
            "text": short,
            "data": image | short,
            "mimeType": st.sampled_from(['"image/png"', '"\\u0000"', "1"]) | short,
            "arguments": anything,
        }
    )
    content = st.lists(part | anything, max_size=3).map(lambda parts: "[" + ",".join(parts) + "]")
    metadata = known(
        {
            "created_at": short,
            "provider": anything,
            "compaction": known({"summary": short, "stats": stats | anything}),
        }
    )
    return known(
        {
            "id": short,
            "role": short,
            "content": content | anything,
            "metadata": metadata | anything,
            "usage": known({"input": anything, "cost": cost | anything}),
            "timestamp": anything,
        }
    )


def _object(drawn):
    required, extras, order = drawn
    pairs = [*((quote(key, 0), value) for key, value in required.items()), *extras]
    order.shuffle(pairs)
    return "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}"


KNOWN = [
    (),
    ("content", None),
    ("metadata",),
    ("metadata", "compaction"),
    ("metadata", "compaction", "stats"),
    ("metadata", "provider"),
    ("metadata", "provider", "usage"),
    ("metadata", "provider", "usage", "cost"),
    ("usage",),
    ("usage", "cost"),
]


def without_known_order(found, path=()):
    """A tree whose known objects have their keys sorted, everything else as it was."""
    if found[:1] == ("object",) and path in KNOWN:
        pairs = [
            (key, without_known_order(item, (*path, key)) if isinstance(item, tuple) else item)
            for key, item in found[1:]
        ]
        return ("object", *sorted(pairs, key=lambda pair: pair[0]))
    if found[:1] == ("list",) and path == ("content",):
        return (
            "list",
            *(
                without_known_order(item, (*path, None)) if isinstance(item, tuple) else item
                for item in found[1:]
            ),
        )
    return found


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(message_texts())
def test_messages_come_back_but_for_the_order_of_known_keys(text):
    found = source_text(round_trip(loads(text), LOCAL_MESSAGE))
    assert without_known_order(tree(found)) == without_known_order(tree(text))


@given(message_texts(), st.randoms())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_the_order_of_known_keys_makes_no_difference(text, order):
    payload = loads(text)
    pairs = list(payload.items())
    order.shuffle(pairs)
    # A root with a reserved key is wrapped whole, and then keeps its order.
    if "$type" not in encode(payload, LOCAL_MESSAGE).value:
        first, second = encode(payload, LOCAL_MESSAGE), encode(dict(pairs), LOCAL_MESSAGE)
        assert (first.value, first.blobs) == (second.value, second.blobs)


# ---- each rule --------------------------------------------------------------------------------

RULES = {
    '{"a":1.0}': {"a": escape("1.0")},
    '{"a":-0}': {"a": escape("-0")},
    '{"a":9007199254740991}': {"a": 9007199254740991},
    '{"a":9007199254740992}': {"a": escape("9007199254740992")},
    '{"a":-9007199254740992}': {"a": escape("-9007199254740992")},
    '{"a":NaN}': {"a": escape("NaN")},
    '{"a":"x\\ud83c"}': {"a": escape('"x\\ud83c"')},
    '{"a":"\ufeffx"}': {"a": escape('"\\ufeffx"')},
    '{"a":"x\ufeff"}': {"a": "x\ufeff"},
    '{"a":"\\u0000"}': {"a": "\0"},
    '{"a":["é",true,null,{"b":1.50}]}': {"a": ["é", True, None, {"b": escape("1.50")}]},
    '{"a":{"$type":"x"}}': {"a": escape('{"$type":"x"}')},
    '{"a":{"$link":1}}': {"a": escape('{"$link":1}')},
    '{"a":{"$bytes":1}}': {"a": escape('{"$bytes":1}')},
    '{"a":{"__proto__":1}}': {"a": escape('{"__proto__":1}')},
    '{"a":{"":1}}': {"a": escape('{"":1}')},
    '{"a":{"$other":1}}': {"a": {"$other": 1}},
    '{"a":{"\ufeffk":1}}': {"a": escape('{"\\ufeffk":1}')},
    '{"a":{"k\\udfff":1}}': {"a": escape('{"k\\udfff":1}')},
    '{"a":{"b":1,"c":2,"aa":3}}': {"a": {"b": 1, "c": 2, "aa": 3}},
    '{"a":{"b":1,"aa":2,"c":3}}': {"a": escape('{"b":1,"aa":2,"c":3}')},
    '{"a":{"zz":1,"é":2}}': {"a": {"zz": 1, "é": 2}},
    '{"a":{"é":1,"zz":2}}': {"a": escape('{"\\u00e9":1,"zz":2}')},
    '{"a":{"\uffff":1,"🧪":2}}': {"a": {"\uffff": 1, "🧪": 2}},
    '{"b":1,"a":2}': escape('{"b":1,"a":2}'),
    "[1, 2]": escape("[1,2]"),
    '"x"': escape('"x"'),
    "null": escape("null"),
}


@pytest.mark.parametrize("text", RULES)
def test_what_cannot_travel_is_escaped_in_the_smallest_place(text):
    assert encode(loads(text)).value == RULES[text]
    round_trip(loads(text))


def test_user_data_that_looks_like_an_escape_is_wrapped_again():
    inner = escape("NaN")
    text = '{"$type":"xyz.quasigod.lab.letta.defs#json","json":"NaN"}'
    assert encode({"a": inner}).value == {"a": escape(text)}
    assert round_trip({"a": inner}) == {"a": inner}
    assert round_trip(inner) == inner


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_what_stands_deeper_than_64_is_escaped(opening):
    closing = {"[": "]", '{"a":': "}"}[opening]
    root = '{"a":'

    for levels, deep in ((63, False), (64, False), (65, True), (200, True)):
        text = root + opening * (levels - 1) + "1" + closing * (levels - 1) + "}"
        value = encode(loads(text)).value
        assert (JSON in str(value)) is deep
        assert dumps(round_trip(loads(text))) == text
    at_65 = encode(loads(root + opening * 64 + "1" + closing * 64 + "}")).value
    for _ in range(64):
        at_65 = at_65["a"] if isinstance(at_65, dict) else at_65[0]
    assert at_65 == escape(opening + "1" + closing)


def test_keys_of_known_objects_come_back_in_canonical_order():
    text = '{"role":"user","id":"m","content":[{"type":"text","text":"x","extra":{"b":1,"a":2}}]}'
    found = decode(encode(loads(text), LOCAL_MESSAGE).value, no_blob)
    assert dumps(found) == (
        '{"id":"m","role":"user","content":[{"text":"x","type":"text","extra":{"b":1,"a":2}}]}'
    )


def test_a_known_place_that_holds_something_else_is_free_form():
    for text in ('{"content":{"b":1,"a":2}}', '{"usage":[{"b":1,"a":2}]}', '{"metadata":"x"}'):
        assert dumps(round_trip(loads(text), LOCAL_MESSAGE)) == text


def test_every_given_format_has_a_shape():
    assert set(SHAPES) >= {
        ("letta.localMessage", 1),
        ("letta.localAgentRecord", 1),
        ("letta.localConversation", 1),
    }


@pytest.mark.parametrize(
    "payload", [{"a": b"x"}, {"a": (1,)}, {1: 2}, {"a": {None: 1}}, {"a": {1}}]
)
def test_what_json_has_not_is_refused(payload):
    with pytest.raises(InvalidInput):
        encode(payload)


def test_a_cycle_is_refused():
    loop = {}
    loop["a"] = loop
    with pytest.raises(InvalidInput):
        encode(loop)


def test_plain_python_floats_are_escaped():
    assert encode({"a": 0.5, "b": float("inf")}).value == {
        "a": escape("0.5"),
        "b": escape("Infinity"),
    }


# ---- other writers ----------------------------------------------------------------------------


def test_values_of_other_writers_are_taken_as_they_are():
    cid = CID.for_raw(b"x")
    value = {
        "data": b"\x00\x01",
        "more": {"zz": 1, "a": [cid, 0.5, 2**60]},
        "typed": {"$type": "other.thing", "ref": cid, "x": escape("1.0")},
        "blob": {"$type": "blob", "ref": cid, "size": 1, "mimeType": "image/png"},
        "odd": {"$type": 5},
    }
    found = decode(value, no_blob)
    assert found == {
        "odd": {"$type": 5},
        "blob": {"$type": "blob", "ref": {"$link": str(cid)}, "size": 1, "mimeType": "image/png"},
        "data": {"$bytes": "AAE"},
        "more": {"a": [{"$link": str(cid)}, 0.5, 2**60], "zz": 1},
        "typed": {"x": 1.0, "ref": {"$link": str(cid)}, "$type": "other.thing"},
    }
    assert list(found) == ["odd", "blob", "data", "more", "typed"]
    assert list(found["more"]) == ["a", "zz"]
    assert decode({"x": {"$type": JSON, "json": "[1]", "more": 1}}, no_blob) == {"x": [1]}


@pytest.mark.parametrize(
    "text", ["", "{", "1 2", "secret words", "[" * 600 + "]" * 600, 5, None, {}]
)
def test_a_malformed_escape_is_damaged(text):
    with pytest.raises(Damaged) as caught:
        decode({"a": {"$type": JSON, "json": text}}, no_blob)
    assert "secret" not in str(caught.value)
    with pytest.raises(Damaged):
        decode({"$type": JSON}, no_blob)


def test_values_nested_too_deeply_are_damaged():
    value = 1
    for _ in range(450):
        value = [value]
    assert decode(value, no_blob) == value
    for _ in range(450):
        value = {"a": value}
    with pytest.raises(Damaged, match="nested too deeply"):
        decode(value, no_blob)


def test_a_malformed_leaf_is_damaged():
    leaf, blobs = leaves.make_leaf(leaves.BLOB_TEXT, b"plum", "text/plain")
    assert decode({"a": leaf}, blobs.__getitem__) == {"a": "plum"}
    for change in (
        {"blobs": None},
        {"blobs": []},
        {"blobs": ["x"]},
        {"blobs": [{"ref": "x"}]},
        {"blobs": [{"ref": {"$link": "x"}}]},
        {"blobs": leaf["blobs"] * 2},
        {"key": "x"},
        {"key": b"x"},
        {"key": {"$bytes": "*"}},
        {"key": bytes(32)},
        {"size": 5},
        {"size": "4"},
        {"size": True},
    ):
        with pytest.raises(Damaged):
            decode({"a": {**leaf, **change}}, blobs.__getitem__)
        for field in change:
            with pytest.raises(Damaged):
                decode({name: leaf[name] for name in leaf if name != field}, blobs.__getitem__)
    with pytest.raises(NotFound):
        decode({"a": leaf}, no_blob)
    with pytest.raises(Damaged):
        decode({"a": leaf}, lambda _: b"other bytes, twenty1")


def test_a_leaf_whose_content_is_not_of_its_kind_is_damaged():
    for kind, content in (
        (leaves.BLOB_TEXT, b"\xff"),
        (leaves.BLOB_JSON, b"{"),
        (leaves.BLOB_JSON, b"\xff"),
    ):
        leaf, blobs = leaves.make_leaf(kind, content, "x/y")
        with pytest.raises(Damaged):
            decode({"a": leaf}, blobs.__getitem__)


def test_bytes_leaves_are_no_part_of_payloads_and_stay():
    leaf, blobs = leaves.make_leaf(leaves.BLOB_BYTES, b"bundle", "application/x-git-bundle")
    found = decode({"a": leaf}, no_blob)
    assert found["a"]["$type"] == f"{DEFS}#blobBytes"
    assert leaves.open_leaf(found["a"], blobs.__getitem__) == b"bundle"
    assert leaves.open_leaf(leaf, blobs.__getitem__) == b"bundle"


# ---- size -------------------------------------------------------------------------------------


def text_message(*texts):
    return {"role": "toolResult", "content": [{"type": "text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("char", "length"),
    [
        ("x", 400_000),
        ("x", 1_300_000),
        ("x ", 70_000),
        ("é", 70_000),
        ("語\0", 2_000_000),
        ("\ud83c", 70_000),
    ],
)
def test_o13_large_text_comes_back_byte_identical(char, length):
    message = text_message(char * length)
    assert dumps(round_trip(message, LOCAL_MESSAGE)) == dumps(
        loads(
            dumps({"role": message["role"], "content": [{"text": char * length, "type": "text"}]})
        )
    )
    leaf = encode(message, LOCAL_MESSAGE).value["content"][0]["text"]
    kind = {"x": "blobBase64", "\ud83c": "blobJson"}.get(char, "blobText")
    assert leaf["$type"] == f"{DEFS}#{kind}"


def test_o13_the_largest_leaf_goes_first_and_only_as_many_as_needed():
    message = text_message("a b" * 30_000, "c d" * 40_000, "e f" * 10)
    parts = encode(message, LOCAL_MESSAGE).value["content"]
    assert parts[0]["text"] == "a b" * 30_000
    assert parts[1]["text"] == {
        "$type": f"{DEFS}#blobText",
        "blobs": parts[1]["text"]["blobs"],
        "key": parts[1]["text"]["key"],
        "mimeType": "text/plain",
        "size": 120_000,
    }
    assert [sorted(blob) for blob in parts[1]["text"]["blobs"]] == [
        ["$type", "mimeType", "ref", "size"]
    ]
    assert parts[2]["text"] == "e f" * 10
    round_trip(message, LOCAL_MESSAGE)


def test_o13_ties_go_to_the_first_in_canonical_order():
    payload = {"b": "x y" * 20_000, "a": "x z" * 20_000, "c": "x w" * 20_000}
    value = encode(payload, Known()).value
    assert [type(value[key]) for key in "abc"] == [dict, str, str]


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_o13_the_limit_is_exact(extra):
    empty = len(cbor.encode({"a": "x" * 70_000})) - 70_000
    text = " " * (leaves.DATA_LIMIT - empty + extra)
    value = encode({"a": text}).value
    assert (type(value["a"]) is dict) is (extra > 0)
    assert round_trip({"a": text}) == {"a": text}


def test_o13_a_huge_list_is_sealed_as_json_where_it_stands():
    numbers = list(range(60_000))
    message = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "fig"},
            {"type": "toolCall", "id": "c", "name": "n", "arguments": {"x": [1], "y": numbers}},
        ],
    }
    value = encode(message, LOCAL_MESSAGE).value
    assert value["content"][0] == {"type": "text", "text": "fig"}
    assert value["content"][1]["arguments"]["x"] == [1]
    assert value["content"][1]["arguments"]["y"]["$type"] == f"{DEFS}#blobJson"
    assert round_trip(message, LOCAL_MESSAGE) == message


def test_o13_many_small_leaves_are_sealed_together():
    message = text_message(*(f"{number} " * 9 for number in range(10_000)))
    value = encode(message, LOCAL_MESSAGE).value
    assert value["role"] == "toolResult"
    assert value["content"]["$type"] == f"{DEFS}#blobJson"
    assert round_trip(message, LOCAL_MESSAGE) == message


def test_o13_a_wide_root_is_sealed_whole():
    payload = {f"key{number:06}": "x" * 500 for number in range(1_000)}
    assert encode(payload).value["$type"] == f"{DEFS}#blobJson"
    assert round_trip(payload) == payload


def test_o13_a_large_escape_is_sealed_as_json():
    payload = {"b": "x" * 200_000, "a": 1.5}
    value = encode(payload).value
    assert value["$type"] == f"{DEFS}#blobJson"
    assert value["size"] == len(source_text(payload))
    assert dumps(round_trip(payload)) == dumps(payload)
    assert round_trip("y z" * 100_000) == "y z" * 100_000
    assert round_trip([1.5] * 100_000) == [1.5] * 100_000


def test_o13_images_inside_a_sealed_list_are_not_stored_twice():
    image = {
        "type": "image",
        "mimeType": "image/png",
        "data": base64.b64encode(b"png" * 99).decode(),
    }
    message = {"content": [image, *text_message(*("x " * 40,) * 3_000)["content"]]}
    encoded = encode(message, LOCAL_MESSAGE)
    assert len(encoded.blobs) == 1
    assert round_trip(message, LOCAL_MESSAGE) == message


def test_o46_work_grows_with_size_and_not_with_its_square():
    big = text_message("one row of fifty megabytes; " * 1_800_000)
    assert round_trip(big, LOCAL_MESSAGE) == big
    many = text_message(*(f"{number:05} " * 200 for number in range(10_000)))
    assert round_trip(many, LOCAL_MESSAGE) == many


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(codec, "DATA_LIMIT", 2_000)
    monkeypatch.setattr(leaves, "DATA_LIMIT", 2_000)
    monkeypatch.setattr(leaves, "MIN_LEAF", 450)


def large_texts():
    large = st.builds(
        lambda text, times, style: quote(text * times, style),
        st.sampled_from(["x", "abcd", "x y", "é", "🧪", "\ud83c", "\0", "\ufeff"]),
        st.integers(1, 2_500),
        st.just(0),
    )
    leaf = st.one_of(large, st.sampled_from(["1", "1.0", "null", '"AAAA"']))
    key = st.sampled_from(
        ["a", "b", "c", "dd", "type", "data", "mimeType", "content", "usage", "cost"]
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=5).map(lambda items: "[" + ",".join(items) + "]"),
            st.tuples(inner, st.integers(1, 300)).map(
                lambda found: (
                    "[" + ",".join([found[0][:200].count("1") * "1" or "0"] * found[1]) + "]"
                )
            ),
            st.dictionaries(key, inner, max_size=5).map(
                lambda found: "{" + ",".join(f'"{k}":{v}' for k, v in found.items()) + "}"
            ),
        ),
        max_leaves=15,
    )


@settings(
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
    deadline=None,
)
@given(large_texts(), st.booleans())
def test_the_limit_is_always_met(small_limit, text, is_message):
    shape = Known({"content": ListOf(Known(images=True))}) if is_message else FREE
    payload = loads(f'{{"content":[{text},{{"type":"image","data":{text}}}]}}')
    found = source_text(round_trip(payload, shape))
    assert tree(found, ordered=False) == tree(source_text(payload), ordered=False)
    if not is_message:
        assert tree(found) == tree(source_text(payload))


@given(texts_with_constants)
@example("[23, 24, 255, 256, 65535, 65536, 4294967295, 4294967296]")
@example("[-24, -25, -256, -257, -65536, -65537, -4294967296, -4294967297]")
def test_sizes_are_measured_exactly(text):
    """The limit is decided without encoding, so the measure has to be that of the encoding."""
    payload = {"x": loads(text), "image": [{"type": "image", "data": "AAAA" * 99}]}
    encoder = codec._Encoder()
    value = encoder.value(payload, Known({"image": ListOf(Known(images=True))}), 1)
    size = leaves._Plan().measure(payload, value, [value], 0, None).size
    assert size == len(cbor.encode(value))
    assert encoder.bound >= size


@pytest.mark.parametrize("size", [0, 1, 300, 70_000, 4_194_288, 4_194_289, 30_000_000])
@pytest.mark.parametrize("mime", ["a/b", "application/octet-stream", f"{'x' * 63}/{'y' * 63}"])
def test_leaf_sizes_are_exact_and_bounded(size, mime):
    for kind in leaves.LEAF_TYPES:
        leaf, _ = leaves.make_leaf(kind, bytes(size), mime)
        assert leaves._leaf_size(leaf) == len(cbor.encode(leaf)) <= leaves.leaf_bound(size)


# ---- images -----------------------------------------------------------------------------------


def image_message(raw, mime="image/png"):
    part = {"type": "image", "mimeType": mime, "data": base64.b64encode(raw).decode()}
    return {"role": "toolResult", "content": [part]}


def test_o15_identical_bytes_have_identical_blobs():
    png = random.Random(15).randbytes(300_000)
    large = random.Random(16).randbytes(9_000_000)
    stored = {}
    for number in range(3):
        message = {**image_message(png), "toolCallId": f"call_{number}"}
        encoded = encode(message, LOCAL_MESSAGE)
        assert len(cbor.encode(encoded.value)) < 500
        stored.update(encoded.blobs)
        assert round_trip(message, LOCAL_MESSAGE) == message
    assert len(stored) == 1
    encoded = encode(image_message(large), LOCAL_MESSAGE)
    assert len(encoded.blobs) == 3
    assert round_trip(image_message(large), LOCAL_MESSAGE) == image_message(large)


def test_images_go_to_blobs_however_small():
    encoded = encode(image_message(b"\x89PNG"), LOCAL_MESSAGE)
    leaf = encoded.value["content"][0]["data"]
    assert leaf["$type"] == f"{DEFS}#blobBase64"
    assert leaf["mimeType"] == "image/png"
    assert leaf["size"] == 4
    assert len(encoded.blobs) == 1


@pytest.mark.parametrize(
    "mime", [None, 5, "", "image", "image/png; x=1", "\ud83c/x", "é/x", "x/" + "y" * 99]
)
def test_an_odd_media_type_is_not_taken_over(mime):
    message = image_message(b"\x89PNG", mime)
    leaf = encode(message, LOCAL_MESSAGE).value["content"][0]["data"]
    assert leaf["mimeType"] == "application/octet-stream"
    assert round_trip(message, LOCAL_MESSAGE) == message


@pytest.mark.parametrize(
    "data",
    ["", "AAB=", "AAA", "AA==\n", "A-_A", "====", "AAAA====", "data:image/png;base64,AAAA", "é"],
)
def test_image_data_that_is_no_exact_base64_stays(data):
    for text in (data, data * 50_001):
        message = {"content": [{"type": "image", "data": text}]}
        assert round_trip(message, LOCAL_MESSAGE) == message
        found = encode(message, LOCAL_MESSAGE).value["content"][0]["data"]
        assert found == text or found["$type"] == f"{DEFS}#blobText"
        assert isinstance(found, str) or len(text) > 100_000


@given(
    st.text("AB/+=a-\n", max_size=9)
    | st.binary(max_size=9).map(lambda raw: base64.b64encode(raw).decode())
)
def test_exact_base64_is_what_gives_the_same_text(text):
    try:
        expected = base64.b64decode(text, validate=True)
    except ValueError:
        expected = None
    if not text or expected is None or base64.b64encode(expected).decode() != text:
        expected = None
    assert leaves.exact_base64(text) == expected


def test_images_can_stay_closed():
    message = {**image_message(b"\x89PNG"), "note": "x y" * 60_000}
    encoded = encode(message, LOCAL_MESSAGE)
    opened = []

    def open_blob(cid):
        opened.append(cid)
        return encoded.blobs[cid]

    found = decode(encoded.value, open_blob, images=False)
    leaf = found["content"][0]["data"]
    assert found["note"] == message["note"]
    assert leaf["$type"] == f"{DEFS}#blobBase64"
    json.dumps(leaf)
    assert len(opened) == 1
    assert leaves.open_leaf(leaf, open_blob) == b"\x89PNG"


# ---- cases ------------------------------------------------------------------------------------


def test_o16_a_lone_surrogate_survives():
    text = r'{"content":[{"text":"tag \ud83c end","type":"text"},{"text":"fine 🧪","type":"text"}]}'
    value = encode(loads(text), LOCAL_MESSAGE).value
    cbor.encode(value).decode("latin-1").encode("latin-1")
    assert value["content"][0]["text"] == escape(r'"tag \ud83c end"')
    assert value["content"][1]["text"] == "fine 🧪"
    assert dumps(round_trip(loads(text), LOCAL_MESSAGE)) == text


def test_o17_an_escaped_pair_is_stored_as_the_character():
    for text in (r'{"t":"\ud83e\uddea"}', '{"t":"🧪"}'):
        data = cbor.encode(encode(loads(text)).value)
        assert data.hex() == "a1617464f09fa7aa"
        assert (
            str(CID.for_cbor(data)) == "bafyreiemlgzxim6azlz2654gcntfg37duvbfr6sbbr45zjysduzoxan4va"
        )


def test_o18_line_separators_stay_raw():
    text = '{"text":"a\u2028b\u2029c\u0085d \\u000b"}'
    assert encode(loads(text)).value == {"text": "a\u2028b\u2029c\u0085d \x0b"}
    assert dumps(round_trip(loads(text))) == text


def test_o19_nul_is_stored_as_it_is():
    text = r'{"content":[{"text":"a\u0000b","type":"text"}]}'
    assert encode(loads(text), LOCAL_MESSAGE).value["content"][0]["text"] == "a\0b"
    assert dumps(round_trip(loads(text), LOCAL_MESSAGE)) == text


def test_o22_numbers_come_back_with_their_text():
    text = (
        '{"usage":{"cost":{"x":-0.0,"input":0.0123,"total":1e-7,"output":1.0}},'
        '"content":[{"type":"toolCall","arguments":{"id":9007199254740993,"n":1}}]}'
    )
    value = encode(loads(text), LOCAL_MESSAGE).value
    assert value["usage"]["cost"]["total"] == escape("1e-7")
    assert value["content"][0]["arguments"] == escape('{"id":9007199254740993,"n":1}')
    assert dumps(round_trip(loads(text), LOCAL_MESSAGE)) == text.replace(" ", "")


@pytest.mark.parametrize("token", CONSTANTS)
def test_o22_constants_are_kept_reversibly(token):
    found = round_trip(loads(f'{{"a":{token},"b":{{"z":{token},"y":1}}}}'))
    assert type(found["a"]) is Number
    assert (found["a"].text, found["b"]["z"].text) == (token, token)
    # What is exported is an object, and that comes back as the object from then on.
    exported = dumps(found)
    assert token not in exported.replace(f'"json":"{token}"', "")
    assert dumps(round_trip(loads(exported))) == exported


def test_o41_parts_keep_types_ids_and_times():
    text = (
        '{"id":"ui-msg-4","otid":"o","role":"user","content":[{"type":"thinking","thinking":"hm"},'
        '{"data":"iVBORw==","type":"image","mimeType":"image/png"}],"metadata":{"created_at":'
        '"2026-08-30T10:00:00.123Z","updated_at":"2026-08-30T10:00:00.123Z"},"timestamp":1788084000123}'
    )
    first = dumps(round_trip(loads(text), LOCAL_MESSAGE))
    assert tree(first, ordered=False) == tree(text, ordered=False)
    assert dumps(round_trip(loads(first), LOCAL_MESSAGE)) == first


def test_o43_thinking_parts_come_back_exactly():
    parts = [
        {"thinking": " first \n", "thinkingSignature": "c2ln\u00e9=="},
        {"thinking": "", "thinkingSignature": "EqQBCkYIBxgC" * 20_000},
        {"thinking": "no signature\u200b"},
        {"thinking": "x", "redacted": True, "unknownField": {"z": 1.50, "a": [None]}},
    ]
    message = {"role": "assistant", "content": [{"type": "thinking", **part} for part in parts]}
    found = round_trip(loads(dumps(message)), LOCAL_MESSAGE)
    assert found == message
    assert list(found["content"][3]["unknownField"]) == ["z", "a"]
    assert [part["thinking"] for part in found["content"]] == [part["thinking"] for part in parts]


# ---- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5, 5_000_000])
def test_escapes_and_leaves_satisfy_their_lexicons(size):
    for kind in leaves.LEAF_TYPES:
        leaf, _ = leaves.make_leaf(kind, bytes(size), "image/png")
        shipped().validate(kind, leaf)
    shipped().validate(JSON, encode({"a": 1.5}).value["a"])
    envelope = {"format": "letta.localMessage", "version": 1}
    for payload in ({"a": 1}, [1.5] * size, {"b": 1, "a": {"$type": 1}}):
        value = encode(payload, LOCAL_MESSAGE).value
        shipped().validate(f"{DEFS}#envelope", {**envelope, "data": value})


def test_the_document_of_the_records_runs():
    found = doctest.testfile(str(DOCUMENT), module_relative=False, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0


# ---- the format never changes -----------------------------------------------------------------

GOLDEN = {
    "plain": ("bafyreibb64lhawxeguccihfru4h4dktngwzzm6jvldk2ya3cqske5fu56u", []),
    "escapes": ("bafyreidardlrrkg35h55qqty6vllyfkxgr6y72aotozwyd4m2umd5dotdm", []),
    "image": (
        "bafyreiaajlxhtoyay3vnmg5uiddbyx6izki7yrwo4tgol2vogby44vbimy",
        ["bafkreig7eqdhr2d2s5uksu6nmbux7yk2rhbda6s2orpbxkinw642tsrskm"],
    ),
    "large": (
        "bafyreiccwffpj7vcjoxybgrzyt33y6pnxqcg2ex3k3aevhxh7r5dzkimta",
        ["bafkreicywlweuywc6s225cwiwqxoao5wr65fdsc73jet3dfvpah7l3rw3m"],
    ),
    "list": (
        "bafyreiajgx23v5yon3gb4lex2aaqpgblydwirpz5l5tb46ict65bifunfi",
        ["bafkreibb2kuo5s3jlmlb2fspplhr2zo43xinimlfe2m2svgue722ss653y"],
    ),
}
GOLDEN_TEXTS = {
    "plain": '{"role":"user","content":[{"type":"text","text":"List the jars. 🧪"}]}',
    "escapes": (
        r'{"usage":{"cost":{"total":1e-7}},"content":[{"type":"toolCall","arguments":{"b":1,"a":"\ud83c"}}],'
        r'"metadata":{"provider":{"$type":"x","n":9007199254740992}}}'
    ),
    "image": '{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]}',
    "large": '{"content":[{"type":"text","text":"' + "plum and fig; " * 20_000 + '"}]}',
    "list": '{"content":[{"type":"toolCall","arguments":{"x":[' + "1.5," * 40_000 + "0]}}]}",
}


def golden(name):
    encoded = encode(loads(GOLDEN_TEXTS[name]), LOCAL_MESSAGE)
    return (
        str(CID.for_cbor(cbor.encode(encoded.value))),
        [str(cid) for cid in encoded.blobs],
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_the_format_never_changes(name):
    assert golden(name) == GOLDEN[name]
