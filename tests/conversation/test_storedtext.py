"""The quick way from what is stored to JSON text gives the bytes that the long way gives."""

import json
from typing import Any

import cbrrr
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec
from lettaspace.conversation.jsontext import JSON_ESCAPE, dumps, loads
from lettaspace.conversation.shapes import FREE, LOCAL_MESSAGE
from lettaspace.conversation.storedtext import quick_text
from lettaspace.errors import Damaged, InvalidInput, NotFound

from .jsongen import NUMBERS, keys, strings, texts_with_constants

BLOB_TEXT = JSON_ESCAPE.replace("#json", "#blobText")
ESCAPED_ONE = json.dumps({"json": "1", "$type": JSON_ESCAPE}, separators=(",", ":"))


def no_blob(cid: CID) -> bytes:
    raise NotFound(f"no blob {cid}")


def quick(value: Any) -> bytes | None:
    data = cbor.encode(value)
    return quick_text(cbor.decode(data, checked=True), data)


def long(value: Any, open_blob: Any = no_blob) -> bytes:
    return dumps(codec.decode(cbor.decode(cbor.encode(value)), open_blob)).encode()


def agree(value: Any) -> None:
    """Where the long way refuses a value the quick one has nothing to say, and where both have
    a text it is the same."""
    found = quick(value)
    try:
        expected = long(value)
    except (Damaged, InvalidInput, NotFound):
        assert found is None
    else:
        assert found in (None, expected)


def escape(text: Any) -> dict[str, Any]:
    return {"json": text, "$type": JSON_ESCAPE}


# ---- what harnesses write ---------------------------------------------------------------------


@given(texts_with_constants)
def test_any_payload(text: str) -> None:
    for shape in (FREE, LOCAL_MESSAGE):
        for payload in (loads(text), {"x": [loads(text)]}, {"content": loads(text)}):
            encoded = codec.encode(payload, shape)
            found = quick(encoded.value)
            expected = long(encoded.value, encoded.blobs.__getitem__)
            assert found in (None, expected)


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"m","content":[{"type":"text","text":"a\\u2028\\u0000\\u007f \\\\ \\"{"}],"n":[]}',
        '{"cost":{"input":0.07479250000000001,"output":1e-7,"other":-0,"total":1E+5}}',
        '{"arguments":{"path":"a","all":null,"deep":{"z":[{}],"a":"\\ud83e\\uddea"}}}',
        '{"b":{"zz":1.0,"y":[1e400,"\\ud800 alone","\\ufeff"]},"n":12345678901234567890123}',
        '{"text":"the two halves \\ud83e","more":"\\uddea of one"}',
    ],
)
def test_the_quick_way_is_taken(text: str) -> None:
    value = codec.encode(loads(text)).value
    assert quick(value) == long(value)


@pytest.mark.parametrize("number", [*NUMBERS, "-1.5E-0009", "12" * 2500])
def test_numbers_keep_their_text(number: str) -> None:
    value = {"x": codec.encode({"n": loads(number)}).value}
    assert quick(value) == b'{"x":{"n":%b}}' % number.encode()
    assert quick({"n": escape(number)}) == long({"n": escape(number)})


def test_every_character() -> None:
    for start in range(0, 0x110000, 0x1000):
        text = "".join(
            chr(code) for code in range(start, start + 0x1000) if not 0xD800 <= code <= 0xDFFF
        )
        assert quick({"a": text}) == long({"a": text})


# ---- what anybody else may have written -------------------------------------------------------

_sources = st.one_of(
    texts_with_constants,
    st.sampled_from(NUMBERS),
    st.sampled_from(["", " 1", "1 ", "01", "1.", "+1", "NaN", '"', '{"a":1,"a":2}', "\ufeff1"]),
    strings.filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text)),
    st.just(JSON_ESCAPE).map(lambda name: json.dumps({"json": "1.0", "$type": name})),
)
_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-cbor.MAX_INT, cbor.MAX_INT),
    st.text(max_size=6),
    st.binary(max_size=4),
    st.binary(max_size=4).map(CID.for_raw),
    st.sampled_from([JSON_ESCAPE, BLOB_TEXT, ESCAPED_ONE, '{"json":"', "{", '\\{"json":"1"', '"']),
)
_names = keys.filter(lambda key: not any("\ud800" <= char <= "\udfff" for char in key))


def _objects(inner: Any) -> Any:
    typed = st.sampled_from([JSON_ESCAPE, BLOB_TEXT, "blob", 1, None])
    return st.one_of(
        st.dictionaries(_names, inner, max_size=4),
        _sources.map(escape),
        st.fixed_dictionaries(
            {"$type": typed}, optional={"json": _sources, "a": inner, "zzzzzz": inner}
        ),
        st.fixed_dictionaries({"json": inner, "$type": typed}),
    )


_values = st.recursive(
    _plain, lambda inner: st.one_of(st.lists(inner, max_size=3), _objects(inner)), max_leaves=10
)


@given(st.dictionaries(_names, _values, max_size=4))
@example({"a": "{", "json": "1", "$type": JSON_ESCAPE})
@example({"a": ESCAPED_ONE, "b": escape("1")})
@example({"a": [escape("1"), JSON_ESCAPE]})
@example({"json": escape("1"), "$type": JSON_ESCAPE})
@example({"json": escape('"1"'), "$type": JSON_ESCAPE})
@example({"x": escape(ESCAPED_ONE)})
@example({"x": escape("[" * 300 + "]" * 300)})
@example({"x": escape("[" * 600 + "]" * 600)})
def test_any_value(value: dict[str, Any]) -> None:
    agree(value)


@given(
    st.dictionaries(_names, _values, max_size=2),
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(cbor.MAX_INT + 1, (1 << 63) - 1),
        st.integers(-(1 << 63), -cbor.MAX_INT - 1),
    ),
)
def test_no_value_that_the_data_model_lacks(value: dict[str, Any], odd: float) -> None:
    """Such a record is never stored; one that is damaged does not come out as if it were."""
    data = cbrrr.encode_dag_cbor({**value, "odd": [odd]}, cid_type=CID)
    with pytest.raises(InvalidInput):
        cbor.decode(data)
    try:
        found = cbor.decode(data, checked=True)
    except InvalidInput:
        return
    assert type(odd) is int, "a float is always found"
    assert quick_text(found, data) is None


@pytest.mark.parametrize("outer", [1, 60, 200, 252, 253, 254, 255, 300, 509])
@pytest.mark.parametrize("inner", [1, 199, 200, 201, 300, 511, 512])
def test_any_depth(outer: int, inner: int) -> None:
    value: Any = escape("[" * inner + "]" * inner)
    for _ in range(outer):
        value = [value]
    agree({"x": value})
