"""The shipped lexicons: which records they take, and what is said about the others."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

import lettaspace
from lettaspace.atproto import lexicon
from lettaspace.atproto.cid import CID
from lettaspace.atproto.lexicon import Lexicons, check_lexicon, shipped
from lettaspace.errors import InvalidInput, InvalidRecord

NS = "xyz.quasigod.lab.letta"
MESSAGE = f"{NS}.message"
PROMPT = f"{NS}.compiledPrompt"
ROOT = Path(lettaspace.__file__).parent / "lexicons"
FILES = sorted((ROOT / "xyz").rglob("*.json"))
METHOD_FILES = sorted((ROOT / "com").rglob("*.json"))

PUBLIC = f"at://did:web:ada.example/{NS}.agent/agent-1"
SPACE = f"at://did:web:ada.example/space/{NS}.space/self"
RECORD = f"{SPACE}/did:web:ada.example/{NS}.conversation/3mbo6jo6e222b"

METHODS = Lexicons.load(lexicon.METHODS)


def message(**changes):
    return {
        "$type": MESSAGE,
        "conversation": RECORD,
        "agent": f"{SPACE}/did:web:ada.example/{NS}.agent/agent-1",
        "role": "user",
        "seq": 1,
        "message": {"format": "letta.localMessage", "version": 1, "data": {"role": "user"}},
        "createdAt": "2026-01-01T00:00:00.000Z",
    } | changes


def prompt(**changes):
    return {
        "$type": PROMPT,
        "agent": PUBLIC,
        "conversation": RECORD,
        "content": "You are …",
        "coreMemory": "",
        "rawSystemHash": "0" * 64,
        "compiledAt": "2026-01-01T00:00:00Z",
    } | changes


@pytest.mark.parametrize("file", FILES + METHOD_FILES, ids=lambda file: file.stem)
def test_every_shipped_lexicon_is_sound_and_where_its_name_says(file):
    doc = json.loads(file.read_text(encoding="utf-8"))
    check_lexicon(doc)
    assert shipped().has(doc["id"]) is (file in FILES)
    assert METHODS.has(doc["id"]) is (file in METHOD_FILES)
    assert file.parts[-len(doc["id"].split(".")) :] == (*doc["id"].split(".")[:-1], file.name)
    assert file.stem == doc["id"].split(".")[-1]


def test_all_of_them_are_loaded_once():
    assert len(list(shipped())) == len(FILES) >= 8
    assert len(list(METHODS)) == len(METHOD_FILES) >= 40
    assert len(FILES) + len(METHOD_FILES) == len(list(ROOT.rglob("*.json")))
    assert shipped() is shipped()
    assert Lexicons.load() is not shipped()
    assert list(Lexicons.load()) == list(shipped())


def references(schema):
    if isinstance(schema, dict):
        if schema.get("type") == "ref":
            yield schema["ref"]
        if schema.get("type") == "union":
            yield from schema["refs"]
        for inner in schema.values():
            yield from references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from references(inner)


def test_every_reference_leads_somewhere():
    seen = 0
    for file in FILES + METHOD_FILES:
        doc = json.loads(file.read_text(encoding="utf-8"))
        lexicons = shipped() if file in FILES else METHODS
        for ref in references(doc["defs"]):
            assert lexicons.definition(doc["id"] + ref if ref.startswith("#") else ref), ref
            seen += 1
    assert seen > 30


def test_the_space_declaration_names_records_that_exist():
    declaration = shipped().definition(f"{NS}.space")
    assert declaration is not None
    assert declaration["type"] == "space"
    assert MESSAGE in declaration["collections"]
    for collection in declaration["collections"]:
        assert shipped().record_key_type(collection) in ("tid", "any")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"agent": PUBLIC},
        {"agent": SPACE},
        {"status": "compacted", "updatedAt": "2026-01-01T00:00:00+01:00"},
        {"status": "something new", "role": "system"},  # known values are not all values
        {"compactedMessageIds": ["3mbo6jo6e222b", "2222222222222"]},
        {"compactedMessageIds": []},
        {"seq": 2**53 - 1},
        {"unheard": {"of": [1, None]}},
        {"message": {"format": "é" * 64, "version": 7, "data": {}, "more": 1}},
        {"message": {"format": "x", "version": 1, "data": {"$type": "com.example.x"}}},
    ],
)
def test_messages(changes):
    shipped().validate_record(MESSAGE, message(**changes))


ENVELOPE = {"format": "letta.localMessage", "version": 1, "data": {}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"$type": PROMPT}, f"$type: is not {MESSAGE}"),
        ({"$type": None}, f"$type: is not {MESSAGE}"),
        ({"$type": MESSAGE + "#main"}, f"$type: is not {MESSAGE}"),
        ({"seq": 0}, "seq: is below 1"),
        ({"seq": "1"}, "seq: is not an integer"),
        ({"seq": True}, "seq: is not an integer"),
        ({"seq": 1.0}, "seq: is not an integer"),
        ({"seq": None}, "seq: is not an integer"),
        ({"role": 5}, "role: is not a string"),
        ({"status": None}, "status: is not a string"),
        ({"createdAt": "2026-01-01"}, "createdAt: is not a datetime"),
        ({"createdAt": "2026-02-30T00:00:00Z"}, "createdAt: is not a datetime"),
        ({"updatedAt": "2026-01-01T00:00:00.000Z\n"}, "updatedAt: is not a datetime"),
        ({"conversation": "3mbo6jo6e222b"}, "conversation: is not an at-uri"),
        ({"conversation": RECORD + "/"}, "conversation: is not an at-uri"),
        ({"agent": RECORD.replace("did:web", "web")}, "agent: is not an at-uri"),
        ({"compactedMessageIds": "3mbo6jo6e222b"}, "compactedMessageIds: is not an array"),
        ({"compactedMessageIds": ["3mbo6jo6e222b", "x"]}, "compactedMessageIds[1]: is not a tid"),
        ({"message": "x"}, "message: is not an object"),
        ({"message": ENVELOPE | {"version": 0}}, "message.version: is below 1"),
        ({"message": ENVELOPE | {"format": "é" * 65}}, "message.format: has 130 bytes of UTF-8, "),
        ({"message": {"format": "x", "version": 1}}, "message.data: is missing"),
        ({"message": ENVELOPE | {"data": "x"}}, "message.data: is not an object"),
        ({"message": ENVELOPE | {"data": None}}, "message.data: is not an object"),
        ({"message": ENVELOPE | {"data": [{}]}}, "message.data: is not an object"),
        ({"message": ENVELOPE | {"data": b"x"}}, "message.data: is not an object"),
        ({"message": ENVELOPE | {"data": CID.for_raw(b"")}}, "message.data: is not an object"),
        ({"message": ENVELOPE | {"data": {"$type": "blob"}}}, "message.data: is a blob"),
        ({"message": ENVELOPE | {"data": {"$link": "x"}}}, "message.data: is a blob"),
        ({"message": ENVELOPE | {"data": {"$bytes": "x"}}}, "message.data: is a blob"),
    ],
)
def test_other_messages_are_refused_with_path_and_rule(changes, said):
    with pytest.raises(InvalidRecord) as refusal:
        shipped().validate_record(MESSAGE, message(**changes))
    assert str(refusal.value).startswith(said)
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize("name", ["conversation", "agent", "role", "seq", "message", "createdAt"])
def test_required_fields(name):
    value = message()
    del value[name]
    with pytest.raises(InvalidRecord, match=f"^{name}: is missing$"):
        shipped().validate_record(MESSAGE, value)


def test_the_type_is_required():
    value = message()
    del value["$type"]
    with pytest.raises(InvalidRecord, match=r"^\$type: is not xyz"):
        shipped().validate_record(MESSAGE, value)


@pytest.mark.parametrize("value", [None, [], "x", b"x", 5, CID.for_raw(b"")])
def test_a_record_is_an_object(value):
    with pytest.raises(InvalidRecord, match=r"^value: is not an object$"):
        shipped().validate_record(MESSAGE, value)


def test_values_are_not_changed():
    value = message()
    before = copy.deepcopy(value)
    shipped().validate_record(MESSAGE, value)
    assert value == before


@pytest.mark.parametrize("field", ["content", "coreMemory"])
def test_o14_limits_count_bytes(field):
    lexicons = shipped()
    lexicons.validate_record(PROMPT, prompt(**{field: "a" * 200_000}))
    lexicons.validate_record(PROMPT, prompt(**{field: "é" * 100_000}))
    lexicons.validate_record(PROMPT, prompt(**{field: "語" * 66_666 + "ab"}))
    for text in ("a" * 200_001, "é" * 100_001, "語" * 66_667, "🧪" * 50_001):
        with pytest.raises(InvalidRecord, match=f"^{field}: has 2000.. bytes of UTF-8, more than"):
            lexicons.validate_record(PROMPT, prompt(**{field: text}))


def test_messages_of_errors_hold_no_content():
    with pytest.raises(InvalidRecord) as refusal:
        shipped().validate_record(MESSAGE, message(createdAt="hunter2"))
    assert "hunter2" not in str(refusal.value)


def test_record_keys():
    lexicons = shipped()
    lexicons.check_key(MESSAGE, "3mbo6jo6e222b")
    lexicons.check_key(f"{NS}.agent", "agent-local-1.x~y:z")
    for key in ("self", "3mbo6jo6e222", "kmbo6jo6e222b"):
        with pytest.raises(InvalidRecord, match="type tid"):
            lexicons.check_key(MESSAGE, key)
    for key in ("", "..", "a/b", "3mbo6jo6e222b\n"):
        for collection in (MESSAGE, f"{NS}.agent"):
            with pytest.raises(InvalidInput):
                lexicons.check_key(collection, key)


RECORDS = Lexicons(
    {
        "lexicon": 1,
        "id": f"com.example.{name}",
        "defs": {"main": {"type": "record", "key": key, "record": {"type": "object"}}},
    }
    for name, key in [("byNsid", "nsid"), ("only", "literal:self"), ("free", "any")]
)


@pytest.mark.parametrize(
    ("name", "rkey", "fits"),
    [
        ("byNsid", "com.example.note", True),
        ("byNsid", "self", False),
        ("only", "self", True),
        ("only", "literal:self", False),
        ("only", "selfs", False),
        ("free", "self", True),
    ],
)
def test_other_record_keys(name, rkey, fits):
    if fits:
        RECORDS.check_key(f"com.example.{name}", rkey)
    else:
        with pytest.raises(InvalidRecord):
            RECORDS.check_key(f"com.example.{name}", rkey)


def test_what_is_known():
    lexicons = shipped()
    assert lexicons.has(MESSAGE)
    assert lexicons.has(f"{NS}.defs")
    assert not lexicons.has("com.example.note")
    assert lexicons.record_key_type(MESSAGE) == "tid"
    for nsid in ("com.example.note", f"{NS}.defs", f"{NS}.space", MESSAGE + "#main"):
        for ask in (
            lexicons.record_key_type,
            lambda nsid: lexicons.check_key(nsid, "a"),
            lambda nsid: lexicons.validate_record(nsid, {"$type": nsid}),
        ):
            with pytest.raises(InvalidRecord, match="no record schema is known"):
                ask(nsid)


def test_definitions_of_all_kinds_can_be_checked():
    lexicons = shipped()
    lexicons.validate(f"{NS}.defs#envelope", ENVELOPE)
    lexicons.validate(f"{MESSAGE}#main", message())
    with pytest.raises(InvalidRecord, match=r"^version: is missing$"):
        lexicons.validate(f"{NS}.defs#envelope", {"format": "x", "data": {}})
    for ref in (f"{NS}.defs#nothing", f"{NS}.space", "com.example.note", f"{NS}.defs"):
        with pytest.raises(InvalidRecord, match="no schema of values is known"):
            lexicons.validate(ref, {})


def test_one_document_per_nsid():
    doc = {"lexicon": 1, "id": "com.example.x", "defs": {"main": {"type": "token"}}}
    with pytest.raises(InvalidRecord, match=r"two lexicons for com\.example\.x"):
        Lexicons([doc, doc])


def test_unsound_documents_are_refused():
    with pytest.raises(InvalidRecord, match="defs"):
        Lexicons([{"lexicon": 1, "id": "com.example.x", "defs": {}}])


def test_the_module_offers_the_document_check():
    assert lexicon.check_lexicon is check_lexicon


def test_a_schema_that_is_no_definition_can_be_checked():
    schema = {"type": "object", "properties": {"of": {"type": "ref", "ref": "#envelope"}}}
    check = shipped().checker(schema, f"{NS}.defs")
    check({"of": ENVELOPE})
    with pytest.raises(InvalidRecord, match=r"^of.version: is missing$"):
        check({"of": {"format": "x", "data": {}}})
