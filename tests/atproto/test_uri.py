"""AT-URIs: every case of the reference's vectors, O56, and the two grammars against each other."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import uri
from lettaspace.atproto.uri import PublicUri, RecordUri, SpaceRef
from lettaspace.errors import InvalidInput

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "vectors" / "uris.json").read_text(encoding="utf-8")
)["cases"]

# What the reference accepts and we refuse, with the reason.
STRICTER = {
    "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/com.example.group/k#/a": (
        "a fragment points into a record, and a space is not one: two texts for one space"
    ),
}

WEB = "did:web:ada.example"
SPACE = SpaceRef("did:web:otter.example", "com.example.lab", "self")
MESSAGE = "xyz.quasigod.lab.letta.message"
RECORD = f"{SPACE}/{WEB}/{MESSAGE}/3mbo6jo6e222b"


def accepts(parse, text):
    try:
        return parse(text)
    except InvalidInput:
        return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["input"])[:90])
def test_reference_vectors(case):
    text = case["input"]
    stricter = text in STRICTER
    assert uri.is_at_uri(text) is (case["format_at_uri"] and not stricter)
    assert uri.is_space_ref(text) is (case["format_space_ref"] and not stricter)
    if text is None:
        return
    parsed = accepts(uri.parse_at_uri, text)
    assert (parsed is not None) is uri.is_at_uri(text)
    assert isinstance(parsed, SpaceRef | RecordUri) is (case["is_space_at_uri"] and not stricter)
    assert isinstance(parsed, PublicUri) is case["is_public_at_uri"]
    if parsed is None:
        return
    assert str(parsed) == text
    if isinstance(parsed, SpaceRef):
        assert case["space_ref_parse"] == str(uri.parse_space_ref(text)) == text
    lenient = case["lenient_parse"]
    if isinstance(parsed, PublicUri):
        assert parsed.authority == lenient["host"]
    else:
        space = parsed if isinstance(parsed, SpaceRef) else parsed.space
        assert (space.authority, space.type, space.skey) == (
            lenient["space_did"],
            lenient["space_type"],
            lenient["skey"],
        )
    if isinstance(parsed, RecordUri):
        assert (parsed.author, parsed.collection) == (lenient["author"], lenient["collection"])
        assert parsed.rkey == lenient["rkey"]


def test_every_exception_is_still_one():
    stricter = {c["input"] for c in CASES if c["format_at_uri"] != uri.is_at_uri(c["input"])}
    stricter |= {c["input"] for c in CASES if c["format_space_ref"] != uri.is_space_ref(c["input"])}
    assert stricter == set(STRICTER)


def test_o56_a_record_in_a_space_parses_and_prints_back():
    parsed = uri.parse_record_uri(RECORD)
    assert parsed == RecordUri(SPACE, WEB, MESSAGE, "3mbo6jo6e222b")
    assert parsed == SPACE.record(WEB, MESSAGE, "3mbo6jo6e222b")
    assert parsed.space.authority == "did:web:otter.example"
    assert parsed.space.type == "com.example.lab"
    assert parsed.space.skey == "self"
    assert str(parsed) == RECORD
    assert uri.is_at_uri(RECORD)
    assert not uri.is_space_ref(RECORD)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (RECORD + "/", "ends with a slash"),
        (RECORD.replace(WEB, "ada.example"), "author is not a DID"),
        (RECORD.replace("did:web:otter.example", "otter.example"), "authority is not a DID"),
        (RECORD.rpartition("/")[0], "record key is missing"),
        (RECORD.rpartition("/")[0] + "/..", "record key is malformed"),
        (f"at://{WEB}/{MESSAGE}/3mbo6jo6e222b", "public URI"),
        (str(SPACE), "author, collection and record key are missing"),
        (f"{SPACE}/{WEB}", "collection and record key are missing"),
        (RECORD + "/x", "more than"),
        (RECORD + "#/text", "fragment"),
        (RECORD + "\n", "record key is malformed"),
        (RECORD.replace(MESSAGE, "message"), "collection is not an NSID"),
        (RECORD.replace("com.example.lab", "lab"), "type is not an NSID"),
        (RECORD.replace("self", "a b"), "key of the space"),
        (RECORD.replace("at:", "AT:"), "does not begin with at://"),
    ],
)
def test_o56_what_is_no_record_in_a_space_is_refused_with_the_reason(text, reason):
    with pytest.raises(InvalidInput, match=reason) as refusal:
        uri.parse_record_uri(text)
    assert len(str(refusal.value).splitlines()) == 1


def test_o56_the_public_form_is_recognised_as_such():
    text = f"at://{WEB}/{MESSAGE}/3mbo6jo6e222b"
    assert uri.is_at_uri(text)
    assert uri.parse_at_uri(text) == PublicUri(WEB, MESSAGE, "3mbo6jo6e222b")
    assert str(uri.parse_at_uri(text)) == text
    with pytest.raises(InvalidInput, match="public"):
        uri.parse_space_ref(text)


def test_a_space_reference_is_nothing_but_the_space():
    assert uri.parse_space_ref(str(SPACE)) == SPACE
    with pytest.raises(InvalidInput, match="URI of a record"):
        uri.parse_space_ref(RECORD)
    for text in (f"{SPACE}#", f"{SPACE}#/a", f"{SPACE}#a"):
        with pytest.raises(InvalidInput, match="a space has no fragment"):
            uri.parse_at_uri(text)


@pytest.mark.parametrize("head", [RECORD, f"at://{WEB}/{MESSAGE}/3mbo6jo6e222b"])
def test_fragments_of_records(head):
    parsed = uri.parse_at_uri(head + "#/message/data~1x/0")
    assert isinstance(parsed, RecordUri | PublicUri)
    assert parsed.fragment == "/message/data~1x/0"
    assert str(parsed) == head + "#/message/data~1x/0"
    for fragment in ("", "a", "/a b", "/a#/b", "/é", "/a\n"):
        assert not uri.is_at_uri(f"{head}#{fragment}")
        with pytest.raises(InvalidInput, match="fragment"):
            uri.parse_at_uri(f"{head}#{fragment}")


def test_fragments_need_a_record():
    for text in (f"at://{WEB}#/a", f"at://{WEB}/{MESSAGE}#/a"):
        assert not uri.is_at_uri(text)
        with pytest.raises(InvalidInput, match="fragment without a record"):
            uri.parse_at_uri(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SpaceRef("ada.example", "com.example.lab", "self"),
        lambda: SpaceRef(WEB, "lab", "self"),
        lambda: SpaceRef(WEB, "com.example.lab", ".."),
        lambda: RecordUri(SPACE, "ada.example", MESSAGE, "a"),
        lambda: RecordUri(SPACE, WEB, "message", "a"),
        lambda: RecordUri(SPACE, WEB, MESSAGE, "a/b"),
        lambda: RecordUri(SPACE, WEB, MESSAGE, "a", "b"),
        lambda: SPACE.record(WEB, MESSAGE, ""),
        lambda: PublicUri("ada"),
        lambda: PublicUri("ada.example", "note"),
        lambda: PublicUri("ada.example", "com.example.note", ""),
        lambda: PublicUri("ada.example", None, "a"),
        lambda: PublicUri("ada.example", "com.example.note", None, "/a"),
        lambda: PublicUri("ada.example", "com.example.note", "a", "b"),
    ],
)
def test_nothing_malformed_can_be_made(make):
    with pytest.raises(InvalidInput):
        make()


def test_uris_are_values():
    assert len({SPACE, uri.parse_space_ref(str(SPACE))}) == 1
    record = uri.parse_record_uri(RECORD)
    for value, name in ((SPACE, "skey"), (record, "rkey"), (PublicUri("ada.example"), "rkey")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "other")
        assert not hasattr(value, "__dict__")


LONG_DID = "did:web:" + "a" * 2040
LONG_TYPE = ".".join(["com"] + ["a" * 49] * 4 + ["b" * 49]) + "." + "n" * 63


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (f"at://{LONG_DID}/space/com.example.lab/self", True),
        (f"at://{LONG_DID}a/space/com.example.lab/self", False),
        (f"at://{WEB}/space/{LONG_TYPE}/self", True),
        (f"at://{WEB}/space/com.{LONG_TYPE}/self", False),
        (f"at://{WEB}/space/com.example.lab/{'k' * 512}", True),
        (f"at://{WEB}/space/com.example.lab/{'k' * 513}", False),
        (f"at://{LONG_DID}", True),
        (f"at://{LONG_DID}a", False),
        (f"at://{WEB}/{MESSAGE}/a#/{'f' * (8192 - 60)}", True),
        (f"at://{WEB}/{MESSAGE}/a#/{'f' * 8192}", False),
    ],
)
def test_lengths(text, valid):
    assert uri.is_at_uri(text) is valid
    assert (accepts(uri.parse_at_uri, text) is not None) is valid
    assert uri.is_space_ref(text) is (accepts(uri.parse_space_ref, text) is not None)


def test_8192_characters_are_the_limit():
    head = f"at://{WEB}/{MESSAGE}/a#/"
    assert uri.is_at_uri(head + "f" * (8192 - len(head)))
    assert not uri.is_at_uri(head + "f" * (8193 - len(head)))


_PIECES = "at:// / space did:plc:a ada.example com.example.lab self . .. # #/a ? % a é @ ~"
PIECES = st.sampled_from([WEB, MESSAGE, "\n", *_PIECES.split()])


@given(st.lists(PIECES, max_size=16).map("".join))
def test_validating_and_parsing_agree(text):
    for candidate in (text, "at://" + text, f"at://{WEB}/space/" + text, f"{SPACE}/{text}"):
        parsed = accepts(uri.parse_at_uri, candidate)
        assert uri.is_at_uri(candidate) is (parsed is not None)
        assert uri.is_space_ref(candidate) is isinstance(parsed, SpaceRef)
        if parsed is not None:
            assert str(parsed) == candidate
