"""Every Lexicon type and constraint, on both sides of each limit."""

from __future__ import annotations

import pytest

from lettaspace.atproto.cid import CID
from lettaspace.atproto.lexicon import Lexicons
from lettaspace.errors import InvalidRecord

ID = "com.example.test"
LINK = CID.for_cbor(b"\xa0")
BLOB = CID.for_raw(b"blob")
DID = "did:web:ada.example"


def lexicons(schema, **defs):
    """One document whose `main` is an object with the schema at `v`."""
    main = {"type": "object", "properties": {"v": schema}}
    other = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    return Lexicons(
        [
            {"lexicon": 1, "id": ID, "defs": {"main": main} | defs},
            {"lexicon": 1, "id": "com.example.other", "defs": {"main": other, "part": other}},
        ]
    )


def blob(**changes):
    return {"$type": "blob", "ref": BLOB, "mimeType": "image/png", "size": 100} | changes


NOTHING = object()
ANY = [None, True, 1, 1.5, "x", b"x", LINK, [], {}]

CASES = [
    ({"type": "null"}, [None], [False, 0, "", {}]),
    ({"type": "boolean"}, [True, False], [None, 0, 1, "true"]),
    ({"type": "boolean", "const": False}, [False], [True, 0, None]),
    ({"type": "integer"}, [0, -5, 2**53 - 1], [None, True, "1", 1.0]),
    ({"type": "integer", "minimum": -2, "maximum": 2}, [-2, 0, 2], [-3, 3]),
    ({"type": "integer", "minimum": 0}, [0], [-1]),
    ({"type": "integer", "maximum": 0}, [0, -9], [1]),
    ({"type": "integer", "enum": [1, 3]}, [1, 3], [2, True]),
    ({"type": "integer", "const": 0}, [0], [1, False]),
    ({"type": "string"}, ["", "x\n", "🧪"], [None, 1, b"x", ["x"]]),
    ({"type": "string", "maxLength": 4}, ["", "abcd", "éé", "🧪"], ["abcde", "ééa", "🧪a", "語語"]),
    ({"type": "string", "maxLength": 0}, [""], ["a"]),
    ({"type": "string", "minLength": 2}, ["ab", "é", "🧪"], ["", "a"]),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "é"], ["", "語"]),
    ({"type": "string", "maxLength": 3}, ["\ud800"], ["\ud800a"]),
    (
        {"type": "string", "maxGraphemes": 2},
        ["", "ab", "👩‍👩‍👧‍👦🇩🇪", "e\u0301e\u0301"],
        ["abc", "👩‍👩‍👧‍👦🇩🇪a"],
    ),
    ({"type": "string", "minGraphemes": 2}, ["ab", "🇩🇪🇫🇷"], ["a", "🇩🇪", "e\u0301", ""]),
    ({"type": "string", "minGraphemes": 1, "maxGraphemes": 1}, ["🧪", "é"], ["", "ab"]),
    ({"type": "string", "maxGraphemes": 5, "maxLength": 6}, ["abcde"], ["éééé"]),
    ({"type": "string", "enum": ["a", "b"]}, ["a", "b"], ["c", "A", ""]),
    ({"type": "string", "enum": ["a"], "maxLength": 9}, ["a"], ["b"]),
    ({"type": "string", "const": "a"}, ["a"], ["b", ""]),
    ({"type": "string", "knownValues": ["a"]}, ["a", "anything"], [1]),
    ({"type": "string", "format": "did"}, [DID], ["ada.example", "did:", 1, None]),
    ({"type": "string", "format": "handle"}, ["ada.example"], [DID, "ada"]),
    ({"type": "string", "format": "at-identifier"}, [DID, "ada.example"], ["ada"]),
    ({"type": "string", "format": "nsid"}, [ID], ["com.example", ID + "#a"]),
    ({"type": "string", "format": "tid"}, ["3mbo6jo6e222b"], ["self"]),
    ({"type": "string", "format": "record-key"}, ["self"], ["..", "a/b"]),
    ({"type": "string", "format": "cid"}, [str(LINK), str(BLOB)], ["x", str(LINK).upper()]),
    ({"type": "string", "format": "datetime"}, ["2026-01-01T00:00:00Z"], ["2026-01-01"]),
    ({"type": "string", "format": "language"}, ["de-CH"], ["d"]),
    ({"type": "string", "format": "uri"}, ["https://a.example/"], ["a.example"]),
    (
        {"type": "string", "format": "at-uri"},
        [
            f"at://{DID}",
            f"at://ada.example/{ID}/self",
            f"at://{DID}/space/{ID}/self",
            f"at://{DID}/space/{ID}/self/{DID}/{ID}/a",
        ],
        [f"at://{DID}/", f"at://{DID}/space/{ID}", f"at://{DID}/space/{ID}/self/{DID}", DID],
    ),
    (
        {"type": "string", "format": "space-ref"},
        [f"at://{DID}/space/{ID}/self"],
        [
            f"at://{DID}",
            f"at://{DID}/space/{ID}/self/{DID}/{ID}/a",
            f"at://{DID}/space/{ID}/self#/a",
        ],
    ),
    ({"type": "string", "format": "tid", "maxLength": 13}, ["3mbo6jo6e222b"], ["3mbo6jo6e222bb"]),
    ({"type": "string", "format": "did", "maxLength": 20}, [DID], [DID + "aaaaaa"]),
    ({"type": "bytes"}, [b"", b"x"], [None, "x", bytearray(b"x"), {"$bytes": "AQID"}]),
    ({"type": "bytes", "minLength": 1, "maxLength": 2}, [b"a", b"ab"], [b"", b"abc"]),
    ({"type": "cid-link"}, [LINK, BLOB], [None, str(LINK), bytes(LINK), {"$link": str(LINK)}]),
    (
        {"type": "array", "items": {"type": "integer"}},
        [[], [1, 2]],
        [None, [1, "2"], (1,), {}, "12"],
    ),
    (
        {"type": "array", "items": {"type": "null"}, "minLength": 1, "maxLength": 2},
        [[None], [None] * 2],
        [[], [None] * 3],
    ),
    (
        {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
        [[[]], [[True], [False, True]]],
        [[True], [[1]]],
    ),
    ({"type": "unknown"}, [{}, {"a": 1}, {"$type": "x"}], [None, 1, "x", [], b"x", LINK, blob()]),
    ({"type": "object"}, [{}, {"a": None}], [None, [], "x", LINK]),
    (
        {
            "type": "object",
            "required": ["a", "b"],
            "nullable": ["b", "c"],
            "properties": {n: {"type": "string"} for n in "abc"},
        },
        [{"a": "", "b": ""}, {"a": "", "b": None, "c": None}, {"b": "", "a": "", "d": 5}],
        [{}, {"a": ""}, {"b": None}, {"a": None, "b": ""}, {"a": "", "b": 1}],
    ),
    (
        {"type": "blob"},
        [blob(), blob(size=0), blob(mimeType="x")],
        [*ANY, blob(ref=LINK), blob(size=-1)],
    ),
    (
        {"type": "blob"},
        [],
        [
            blob(ref=str(BLOB)),
            blob(ref=bytes(BLOB)),
            blob(size="1"),
            blob(size=True),
            blob(mimeType=""),
            blob(mimeType=None),
            blob(alt="x"),
            blob() | {"$type": "image"},
            {k: v for k, v in blob().items() if k != "size"},
            {k: v for k, v in blob().items() if k != "$type"} | {"x": 1},
            {"cid": str(BLOB), "mimeType": "image/png"},
        ],
    ),
    (
        {"type": "blob", "accept": ["image/*", "text/plain"], "maxSize": 100},
        [blob(), blob(mimeType="image/svg+xml"), blob(mimeType="text/plain")],
        [
            blob(mimeType="text/html"),
            blob(mimeType="text/plainer"),
            blob(mimeType="image"),
            blob(mimeType="imagepng"),
            blob(mimeType="ximage/png"),
            blob(size=101),
        ],
    ),
    ({"type": "blob", "accept": ["*/*"]}, [blob(), blob(mimeType="a/b")], [blob(mimeType="")]),
    ({"type": "blob", "accept": []}, [], [blob()]),
    ({"type": "blob", "maxSize": 0}, [blob(size=0)], [blob(size=1)]),
    (
        {"type": "ref", "ref": "com.example.other"},
        [{"n": 1}, {"n": 1, "$type": "com.example.other"}],
        [{}, {"n": "1"}, None, "com.example.other"],
    ),
    ({"type": "ref", "ref": "com.example.other#main"}, [{"n": 1}], [{}]),
    ({"type": "ref", "ref": "com.example.other#part"}, [{"n": 1}], [{}]),
    ({"type": "ref", "ref": "com.example.missing"}, [], ANY),
    (
        {"type": "union", "refs": ["com.example.other", "com.example.other#part", "#main"]},
        [
            {"$type": "com.example.other", "n": 1},
            {"$type": "com.example.other#main", "n": 1},
            {"$type": "com.example.other#part", "n": 1},
            {"$type": ID, "v": {"$type": "com.example.else"}},
            {"$type": "com.example.else", "whatever": 1},
        ],
        [
            *ANY,
            {"n": 1},
            {"$type": ""},
            {"$type": 5},
            {"$type": "com.example.other"},
            {"$type": "com.example.other#main"},
            {"$type": "com.example.other#part", "n": "1"},
            {"$type": ID, "v": 5},
        ],
    ),
    (
        {"type": "union", "refs": ["com.example.other"], "closed": True},
        [{"$type": "com.example.other", "n": 1}],
        [
            {"$type": "com.example.else", "n": 1},
            {"$type": "com.example.other#part", "n": 1},
            {"n": 1},
        ],
    ),
    ({"type": "union", "refs": []}, [{"$type": "com.example.else"}], [{}, None]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), CASES, ids=lambda x: str(x)[:60])
def test_types(schema, valid, invalid):
    checked = lexicons(schema)
    checked.validate(ID, {})
    for value in valid:
        checked.validate(ID, {"v": value})
    for value in invalid:
        with pytest.raises(InvalidRecord, match=r"^v"):
            checked.validate(ID, {"v": value})


def said(schema, value, **defs):
    with pytest.raises(InvalidRecord) as refusal:
        lexicons(schema, **defs).validate(ID, {"v": value})
    return str(refusal.value)


def test_paths_and_reasons():
    inner = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    schema = {"type": "array", "items": {"type": "ref", "ref": "#inner"}}
    assert said(schema, [{"n": 1}, {}], inner=inner) == "v[1].n: is missing"
    assert said(schema, [{"n": 1}, {"n": "x"}], inner=inner) == "v[1].n: is not an integer"
    union = {"type": "union", "refs": ["#inner"], "closed": True}
    assert said(union, {"$type": f"{ID}#inner"}, inner=inner) == "v.n: is missing"
    assert said(union, {"$type": "x"}, inner=inner) == "v.$type: is none of the types allowed here"
    assert said({"type": "blob"}, blob(ref="x")) == "v.ref: is not the CID of a blob"
    assert said({"type": "blob", "maxSize": 1}, blob()) == "v.size: is above 1"
    assert said({"type": "string", "maxLength": 1}, "é") == "v: has 2 bytes of UTF-8, more than 1"
    assert said({"type": "string", "minGraphemes": 3}, "é") == "v: has 1 graphemes, fewer than 3"
    assert said({"type": "bytes", "minLength": 3}, b"") == "v: has 0 bytes, fewer than 3"
    assert said({"type": "array", "items": {"type": "null"}, "maxLength": 0}, [None]) == (
        "v: has 1 elements, more than 0"
    )
    assert said({"type": "string", "format": "at-uri"}, "x") == "v: is not an at-uri"
    assert said({"type": "string", "format": "tid"}, "x") == "v: is not a tid"
    assert said({"type": "ref", "ref": "com.example.missing"}, {}) == (
        "v: schema com.example.missing is not known"
    )


def test_schemas_may_refer_to_themselves():
    tree = {
        "type": "object",
        "properties": {"v": {"type": "array", "items": {"type": "ref", "ref": "#tree"}}},
    }
    checked = lexicons({"type": "ref", "ref": "#tree"}, tree=tree)
    checked.validate(ID, {"v": {"v": [{}, {"v": [{"v": []}]}]}})
    with pytest.raises(InvalidRecord, match=r"^v\.v\[1\]\.v\[0\]: is not an object"):
        checked.validate(ID, {"v": {"v": [{}, {"v": [5]}]}})
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"v": [deep]}
    with pytest.raises(InvalidRecord, match="nested too deep"):
        checked.validate(ID, {"v": deep})


def test_a_token_has_no_values():
    checked = lexicons({"type": "ref", "ref": "#word"}, word={"type": "token"})
    with pytest.raises(InvalidRecord, match="not known"):
        checked.validate(ID, {"v": f"{ID}#word"})


def test_a_reference_to_a_record_asks_for_its_type():
    record = {"type": "record", "key": "any", "record": {"type": "object"}}
    docs = [{"lexicon": 1, "id": "com.example.note", "defs": {"main": record}}]
    main = {"type": "object", "properties": {"v": {"type": "ref", "ref": "com.example.note"}}}
    docs.append({"lexicon": 1, "id": ID, "defs": {"main": main}})
    Lexicons(docs).validate(ID, {"v": {"$type": "com.example.note"}})
    with pytest.raises(InvalidRecord, match=r"is not com\.example\.note"):
        Lexicons(docs).validate(ID, {"v": {}})
