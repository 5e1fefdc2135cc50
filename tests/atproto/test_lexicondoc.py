"""What makes a Lexicon document unsound, one fault at a time."""

from __future__ import annotations

import copy

import pytest

from lettaspace.atproto.lexicondoc import check_lexicon
from lettaspace.errors import InvalidRecord

SOUND = {
    "$type": "com.atproto.lexicon.schema",
    "lexicon": 1,
    "id": "com.example.note",
    "description": "Notes.",
    "defs": {
        "main": {
            "type": "record",
            "key": "tid",
            "record": {
                "type": "object",
                "required": ["text"],
                "nullable": ["size"],
                "properties": {
                    "text": {"type": "string", "minLength": 1, "maxLength": 10, "format": "uri"},
                    "size": {"type": "integer", "minimum": -1, "maximum": 5, "enum": [1, 2]},
                    "flag": {"type": "boolean", "default": True, "const": True},
                    "image": {"type": "blob", "accept": ["image/*", "a/b+c"], "maxSize": 9},
                    "part": {"type": "ref", "ref": "#part"},
                    "parts": {
                        "type": "array",
                        "items": {
                            "type": "union",
                            "refs": ["#part", "com.example.x#y", "com.example.x"],
                        },
                        "maxLength": 3,
                    },
                    "data": {"type": "unknown"},
                    "any": {"type": "union", "refs": []},
                    "raw": {"type": "cid-link"},
                },
            },
        },
        "part": {"type": "object", "properties": {"raw": {"type": "bytes", "maxLength": 4}}},
        "word": {"type": "token", "description": "A word."},
    },
}

SPACE = {
    "lexicon": 1,
    "id": "com.example.space",
    "defs": {
        "main": {
            "type": "space",
            "name": "Notes",
            "collections": ["com.example.note"],
            "key": "literal:self",
            "description": "What you wrote.",
            "name:lang": {"de": "Notizen", "pt-BR": "Notas"},
        }
    },
}

QUERY = {
    "lexicon": 1,
    "id": "com.example.getNotes",
    "defs": {
        "main": {
            "type": "query",
            "parameters": {
                "type": "params",
                "required": ["limit"],
                "properties": {"limit": {"type": "integer", "default": 5}},
            },
            "output": {"encoding": "application/json", "schema": {"type": "object"}},
            "errors": [{"name": "NotFound", "description": "Gone."}],
        }
    },
}

PROCEDURE = {
    "lexicon": 1,
    "id": "com.example.putNote",
    "defs": {
        "main": {
            "type": "procedure",
            "input": {"encoding": "application/json", "schema": {"type": "ref", "ref": "#in"}},
            "output": {"encoding": "*/*"},
        },
        "in": {"type": "object"},
    },
}

PARAMETER = "parameters.limit: is of a type that no text is read as"


def changed(doc, path, value):
    doc = copy.deepcopy(doc)
    *steps, last = path.split("/")
    node = doc
    for key in steps:
        node = node[key]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return doc


@pytest.mark.parametrize("doc", [SOUND, SPACE, QUERY, PROCEDURE])
def test_sound_documents(doc):
    check_lexicon(doc)


@pytest.mark.parametrize("key", ["tid", "nsid", "any", "literal:x", "literal:self"])
def test_sound_keys(key):
    check_lexicon(changed(SOUND, "defs/main/key", key))


P = "defs/main/record/properties"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("lexicon", 2, "lexicon: is not 1"),
        ("lexicon", True, "lexicon: is not 1"),
        ("lexicon", None, "lexicon.lexicon: is missing"),
        ("id", "note", "id: is not an NSID"),
        ("id", None, "lexicon.id: is missing"),
        ("$type", "com.example", "$type: is not com.atproto"),
        ("defs", {}, "defs: is not an object with"),
        ("defs", [], "defs: is not an object with"),
        ("colour", "red", "lexicon.colour: is not a known field"),
        ("description", 5, "lexicon.description: is not a text"),
        ("defs/a-b", {"type": "token"}, "defs.a-b: is not a name"),
        ("defs/other", {"type": "record"}, "defs.other: type record is only for"),
        ("defs/other", {"type": "query"}, "defs.other: type query is only for"),
        ("defs/other", {"type": "space"}, "defs.other: type space is only for"),
        ("defs/other", {"type": "ref", "ref": "#part"}, "defs.other: type ref cannot"),
        ("defs/other", {"type": "unknown"}, "defs.other: type unknown cannot"),
        ("defs/other", {"type": "float"}, "defs.other: type is missing or unknown"),
        ("defs/other", {}, "defs.other: type is missing or unknown"),
        ("defs/other", {"type": ["object"]}, "defs.other: type is missing or unknown"),
        (f"{P}/text", {"type": "token"}, "defs.main.record.text: type token is only for"),
        (f"{P}/text", {"type": "record"}, "defs.main.record.text: type record is only for"),
        ("defs/other", "object", "defs.other: type is missing or unknown"),
        ("defs/main/key", None, "defs.main.key: is missing"),
        ("defs/main/key", "uuid", "defs.main.key: is not tid"),
        ("defs/main/key", "literal:", "defs.main.key: is not tid"),
        ("defs/main/key", "literal:a/b", "defs.main.key: is not tid"),
        ("defs/main/key", ["tid"], "defs.main.key: is not tid"),
        ("defs/main/record", {"type": "string"}, "defs.main.record: is not an object schema"),
        ("defs/main/record", "x", "defs.main.record: is not an object schema"),
        ("defs/main/record/required", ["txt"], "defs.main.record.required: names a property"),
        ("defs/main/record/nullable", ["txt"], "defs.main.record.nullable: names a property"),
        ("defs/main/record/required", "text", "defs.main.record.required: is not a list"),
        ("defs/main/record/properties", [], "defs.main.record.properties: is not an object"),
        (f"{P}/text/maxlength", 5, "defs.main.record.text.maxlength: is not a known field"),
        (f"{P}/text/maxLength", 0, "defs.main.record.text.minLength: is above maxLength"),
        (f"{P}/text/maxLength", -1, "defs.main.record.text.maxLength: is not a limit"),
        (f"{P}/text/maxLength", "9", "defs.main.record.text.maxLength: is not a limit"),
        (f"{P}/text/minLength", True, "defs.main.record.text.minLength: is not a limit"),
        (f"{P}/text/minGraphemes", -1, "defs.main.record.text.minGraphemes: is not a limit"),
        (f"{P}/text/format", "url", "defs.main.record.text.format: is unknown"),
        (f"{P}/text/enum", "a", "defs.main.record.text.enum: is not a list"),
        (f"{P}/text/knownValues", [1], "defs.main.record.text.knownValues: is not a list"),
        (f"{P}/text/default", 1, "defs.main.record.text.default: is not a string"),
        (f"{P}/text/const", 1, "defs.main.record.text.const: is not a string"),
        (f"{P}/text/description", [], "defs.main.record.text.description: is not a text"),
        (f"{P}/size/minimum", 6, "defs.main.record.size.minimum: is above maximum"),
        (f"{P}/size/minimum", 1.5, "defs.main.record.size.minimum: is not a limit"),
        (f"{P}/size/enum", ["1"], "defs.main.record.size: has a bound or value"),
        (f"{P}/size/enum", 1, "defs.main.record.size: has a bound or value"),
        (f"{P}/size/default", "1", "defs.main.record.size: has a bound or value"),
        (f"{P}/flag/const", 1, "defs.main.record.flag: has a value"),
        (f"{P}/image/accept", ["image"], "defs.main.record.image.accept: has what is not"),
        (f"{P}/image/accept", "image/*", "defs.main.record.image.accept: is not a list"),
        (f"{P}/image/maxSize", -1, "defs.main.record.image.maxSize: is not a limit"),
        (f"{P}/part/ref", "#nothing", "defs.main.record.part.ref: leads to no definition"),
        (f"{P}/part/ref", "nothing", "defs.main.record.part.ref: is not a reference"),
        (f"{P}/part/ref", "com.example.x#", "defs.main.record.part.ref: is not a reference"),
        (f"{P}/part/ref", "", "defs.main.record.part.ref: is not a reference"),
        (f"{P}/part/ref", 5, "defs.main.record.part.ref: is not a reference"),
        (f"{P}/part/ref", None, "defs.main.record.part.ref: is missing"),
        (f"{P}/parts/items", None, "defs.main.record.parts.items: is missing"),
        (f"{P}/parts/items/refs", ["#no"], "defs.main.record.parts.items.refs: leads to no"),
        (f"{P}/parts/items/refs", "#part", "defs.main.record.parts.items.refs: is not a list"),
        (f"{P}/parts/items/closed", 1, "defs.main.record.parts.items.closed: is not"),
        (
            f"{P}/parts/items",
            {"type": "union", "refs": [], "closed": True},
            "defs.main.record.parts.items.closed: is not",
        ),
        ("defs/part/properties/raw/maxLength", "4", "defs.part.raw.maxLength: is not a limit"),
    ],
)
def test_faults(path, value, said):
    with pytest.raises(InvalidRecord) as refusal:
        check_lexicon(changed(SOUND, path, value))
    assert str(refusal.value).startswith("lexicon: " + said)


@pytest.mark.parametrize(
    ("doc", "path", "value", "said"),
    [
        (SPACE, "defs/main/name", None, "name: is missing"),
        (SPACE, "defs/main/name", "", "name: is not a text"),
        (SPACE, "defs/main/name", 5, "name: is not a text"),
        (SPACE, "defs/main/collections", None, "collections: is missing"),
        (SPACE, "defs/main/collections", ["com.example.*"], "collections: has what is not"),
        (SPACE, "defs/main/collections", "com.example.note", "collections: is not a list"),
        (SPACE, "defs/main/key", "uuid", "key: is not tid"),
        (SPACE, "defs/main/name:lang", {"d": "x"}, "name:lang: is not a map"),
        (SPACE, "defs/main/name:lang", {"de": 5}, "name:lang: is not a map"),
        (SPACE, "defs/main/name:lang", "x", "name:lang: is not a map"),
        (SPACE, "defs/main/description", 5, "description: is not a text"),
        (SPACE, "defs/main/policy", "x", "policy: is not a known field"),
        (QUERY, "defs/main/input", {"encoding": "*/*"}, "input: is not a known field"),
        (QUERY, "defs/main/parameters/type", "object", "parameters: is not of type params"),
        (QUERY, "defs/main/parameters/required", ["x"], "parameters.required: names a property"),
        (QUERY, "defs/main/output/encoding", None, "output.encoding: is missing"),
        (QUERY, "defs/main/output/schema", {"type": "x"}, "output.schema: type is missing"),
        (QUERY, "defs/main/output/scheme", {}, "output.scheme: is not a known field"),
        (QUERY, "defs/main/errors", {"name": "x"}, "errors: is not a list"),
        (QUERY, "defs/main/errors", [{}], "errors.name: is missing"),
        (QUERY, "defs/main/errors", [{"name": 5}], "errors.name: is not a text"),
        (QUERY, "defs/main/parameters/properties/limit", {"type": "object"}, PARAMETER),
        (QUERY, "defs/main/parameters/properties/limit", {"type": "unknown"}, PARAMETER),
        (
            QUERY,
            "defs/main/parameters/properties/limit",
            {"type": "array", "items": {"type": "bytes"}},
            PARAMETER,
        ),
        (QUERY, "defs/main/output/encoding", 5, "output.encoding: is not a media type"),
        (QUERY, "defs/main/output/schema", {"type": "string"}, "output.schema: is not of type"),
        (PROCEDURE, "defs/main/input/schema/ref", "#out", "input.schema.ref: leads to no"),
    ],
)
def test_faults_of_spaces_and_methods(doc, path, value, said):
    with pytest.raises(InvalidRecord) as refusal:
        check_lexicon(changed(doc, path, value))
    assert str(refusal.value).startswith("lexicon: defs.main." + said)


@pytest.mark.parametrize("doc", [None, [], "x", 1])
def test_a_document_is_an_object(doc):
    with pytest.raises(InvalidRecord, match="is not an object"):
        check_lexicon(doc)
