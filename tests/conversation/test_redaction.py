"""What redacting changes, and what it leaves alone."""

from __future__ import annotations

import doctest
import json
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.conversation.jsontext import dumps, loads
from lettaspace.conversation.redaction import NoRedaction, Place, Redactor, places
from lettaspace.conversation.secretrules import MARKER
from lettaspace.conversation.secrets import find_secrets
from lettaspace.errors import InvalidInput
from tests.conversation.test_secrets import GITHUB, PEM, TOKENS

PAGE = Path(__file__).parents[2] / "docs" / "redaction.md"
REDACT = Redactor()
MARK = "[redacted: github-pat]"


def test_the_page_tells_what_happens() -> None:
    done = doctest.testfile(str(PAGE), module_relative=False)
    assert done.attempted == 5
    assert done.failed == 0


def test_a_secret_is_replaced_where_it_stands() -> None:
    text = f"  a {GITHUB}, b\r\nAuthorization: Bearer TEST-000\r\n"
    assert (
        REDACT.text(text) == f"  a {MARK}, b\r\nAuthorization: Bearer [redacted: authorization]\r\n"
    )


def test_no_redaction_changes_nothing() -> None:
    value = {"a": GITHUB}
    assert NoRedaction().json(value) is value
    assert NoRedaction().text(GITHUB) == GITHUB


def test_what_has_no_secret_is_given_back_itself() -> None:
    value = loads('{"role":"user","content":[{"type":"text","text":"hello there, you"}],"n":1.0}')
    assert REDACT.json(value) is value


def signed(secret: str) -> dict[str, Any]:
    """A message in which a secret stands in every place."""
    image = b64encode(Random(1).randbytes(3000)).decode()
    return {
        "id": secret,
        "otid": secret,
        "role": "assistant",
        "toolCallId": secret,
        "responseId": secret,
        "errorMessage": f"failed with {secret}",
        "content": [
            {"type": "text", "text": f"use {secret}", "textSignature": secret},
            {
                "type": "thinking",
                "thinking": f"hm {secret}",
                "thinkingSignature": secret,
                "x": secret,
            },
            {"type": "thinking", "thinking": "", "thinkingSignature": secret, "redacted": True},
            {"type": "thinking", "thinking": f" {secret} "},
            {"type": "image", "mimeType": "image/png", "data": image},
            {
                "type": "toolCall",
                "id": secret,
                "name": "bash",
                "arguments": {"id": secret, "signature": secret, "data": [secret, {"uri": secret}]},
                "thoughtSignature": secret,
            },
        ],
        "metadata": {
            "agent_id": secret,
            "compaction": {"summary": f"said {secret}"},
            "provider": {"response_id": secret, "note": secret},
        },
    }


def test_o43_ids_signatures_and_images_stay_byte_for_byte() -> None:
    payload = signed(GITHUB)
    redacted = REDACT.json(payload)
    expected = signed(MARK)
    for key in ("id", "otid", "toolCallId", "responseId"):
        expected[key] = GITHUB
    expected["metadata"]["agent_id"] = expected["metadata"]["provider"]["response_id"] = GITHUB
    for part in expected["content"]:
        for key in ("textSignature", "thinkingSignature", "thoughtSignature"):
            if key in part:
                part[key] = GITHUB
        if part["type"] == "toolCall":
            part["id"] = GITHUB
    assert redacted == expected
    assert dumps(redacted) == dumps(expected)  # the order of keys, too
    assert payload == signed(GITHUB)


def test_what_is_kept_is_no_loophole() -> None:
    for outside in (
        {
            "arguments": {
                "role": "user",
                "content": [{"type": "image", "data": "QUJD", "id": GITHUB}],
            }
        },
        {"role": "user", "content": [{"type": "image", "data": GITHUB}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "id": GITHUB, "data": GITHUB}]},
        {"role": "user", "content": [{"type": "other", "thinkingSignature": GITHUB}]},
        {"role": "user", "content": GITHUB, "id": "x"},
        [GITHUB, [GITHUB]],
    ):
        assert GITHUB not in json.dumps(REDACT.json(outside))


def test_messages_are_known_inside_of_what_holds_them() -> None:
    payload = signed(GITHUB)
    expected = REDACT.json(payload)
    row = {"type": "message", "id": "0a1b", "message": payload}
    assert REDACT.json(row) == {**row, "message": expected}
    envelope = {
        "rkey": "3k",
        "message": {"format": "letta.localMessage", "version": 1, "data": payload},
    }
    document = {"conversation": {"title": GITHUB}, "messages": [envelope]}
    done = REDACT.json(document)
    assert done["messages"][0]["message"]["data"] == expected
    assert done["conversation"] == {"title": MARK}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"password": "hunter2"}, {"password": "[redacted: password]"}),
        ({"DB_PASSWORD": "x"}, {"DB_PASSWORD": "[redacted: password]"}),
        ({"apiKey": "k"}, {"apiKey": "[redacted: api-key]"}),
        ({"passwords": ["a"], "password": ["b", {"c": "d"}]},
         {"passwords": ["a"], "password": ["[redacted: password]", {"c": "d"}]}),
        ({"Authorization": "Bearer x"}, {"Authorization": "[redacted: authorization]"}),
        ({"headers": {"Cookie": "x", "accept": "y"}},
         {"headers": {"Cookie": "[redacted: cookie]", "accept": "y"}}),
        ({"requestHeaders": {"x-api-key": ["k"]}},
         {"requestHeaders": {"x-api-key": ["[redacted: x-api-key]"]}}),
        ({"rawHeaders": ["Cookie", "x", "Host", "h"]},
         {"rawHeaders": ["Cookie", "[redacted: cookie]", "Host", "h"]}),
        ({"headers": [["x-api-key", "k"], ["a", "b"]]},
         {"headers": [["x-api-key", "[redacted: x-api-key]"], ["a", "b"]]}),
        ({"headers": [{"name": "Cookie", "value": "x"}]},
         {"headers": [{"name": "Cookie", "value": "[redacted: cookie]"}]}),
        ({"cookie": "chocolate", "password": ""}, {"cookie": "chocolate", "password": ""}),
        ({"password": "${DB_PASSWORD}", "api_key": "<key>"},
         {"password": "${DB_PASSWORD}", "api_key": "<key>"}),
        ({"password": {"type": "string"}, "apiKey": None, "max_tokens": 5},
         {"password": {"type": "string"}, "apiKey": None, "max_tokens": 5}),
        ({GITHUB: 1, "a": {GITHUB: 2, GITHUB[:-1]: 3}}, {MARK: 1, "a": {MARK: 2, MARK + "'": 3}}),
    ],
)  # fmt: skip
def test_keys_say_what_their_values_are(value: Any, expected: Any) -> None:
    redacted = REDACT.json({"role": "x", "content": [{"type": "toolCall", "arguments": value}]})
    assert redacted["content"][0]["arguments"] == expected
    assert REDACT.json(value) == expected
    # The same as text, in whatever layout, in a string, and in a string of a string.
    for indent in (None, 2):
        inner = json.dumps(value, indent=indent)
        if GITHUB[:-1] not in json.dumps(value).replace(GITHUB, ""):
            assert json.loads(REDACT.text(inner)) == expected
            assert json.loads(REDACT.json({"body": inner})["body"]) == expected
            twice = json.dumps({"body": inner})
            assert json.loads(json.loads(REDACT.text(twice))["body"]) == expected


def test_json_in_a_string_keeps_its_layout_and_can_be_parsed() -> None:
    text = '{\n\t"a" : "x\\n' + GITHUB + '\\u00e9\\\\" ,\n "n": 1.0e5, "b":[ ]}\n'
    redacted = REDACT.text(text)
    assert redacted == text.replace(GITHUB, MARK)
    key = json.dumps({"pem": f"{PEM}\nMIIEabcdefghijklmnop", "after": "kept"})
    assert json.loads(REDACT.text(key)) == {"pem": "[redacted: private-key]", "after": "kept"}
    assert (
        REDACT.text('{"a": "\\ud83c\\udffa ' + GITHUB + '"}')
        == '{"a": "\\ud83c\\udffa ' + MARK + '"}'
    )


@pytest.mark.parametrize("layout", [None, 1])
def test_what_reaches_over_the_end_of_a_string_is_redacted_inside_of_it(layout: int | None) -> None:
    value = {"a": 'Authorization: Digest username="u", response="6629"', "b": [f"{PEM}", "kept"]}
    redacted = json.loads(REDACT.text(json.dumps(value, indent=layout)))
    assert redacted == REDACT.json(value)
    assert "6629" not in json.dumps(redacted)
    plain = '{"a":"Authorization: Digest abc123","b":"kept"}'
    assert json.loads(REDACT.text(plain))["b"] == "kept"
    assert "abc123" not in REDACT.text(plain)


def test_values_may_be_nested_as_deep_as_json_may() -> None:
    for start, end in (("[", "]"), ('{"a":', "}")):
        deep = loads(start * 511 + f'["{GITHUB}"]' + end * 511)
        assert dumps(REDACT.json(deep)) == dumps(deep).replace(GITHUB, MARK)
        (place,) = places(deep)
        assert place.kind == "github-pat"


def test_numbers_keep_their_text() -> None:
    value = loads('{"a":1.0,"b":1e400,"c":-0,"d":NaN,"e":"' + GITHUB + '"}')
    assert dumps(REDACT.json(value)) == dumps(value).replace(GITHUB, MARK)


def test_o44_places_say_where_and_never_what() -> None:
    text = f"é {GITHUB}\n\nAuthorization: Bearer TEST-000\n{PEM}\npostgres://u:TEST@h/db"
    payload = {
        "role": "toolResult",
        "content": [{"type": "text", "text": text}],
        "metadata": {"headers": {"Cookie": "[not stored]"}, GITHUB: {"a b": [GITHUB]}},
    }
    found = list(places(payload))
    assert found == [
        Place("content[0].text", 1, 3, "github-pat"),
        Place("content[0].text", 3, 23, "authorization"),
        Place("content[0].text", 4, 1, "private-key"),
        Place("content[0].text", 5, 14, "connection-password"),
        Place(f'metadata["{MARK}"]', 1, 1, "github-pat"),
        Place(f'metadata["{MARK}"]["a b"][0]', 1, 1, "github-pat"),
    ]
    assert "EEE" not in repr(found)
    assert "TEST" not in repr(found)


_STRINGS = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            [*TOKENS.values(), PEM, "Authorization: Bearer x1", "://u:p@h", "password=", "\\", '"',
             "[redacted: jwt]", "Cookie: a=b", "\ud800", "\n", " ", '{"password":"x"}']
        ),
    ),
    max_size=6,
).map("".join)  # fmt: skip
_KEYS = st.one_of(
    _STRINGS, st.sampled_from(["password", "headers", "Cookie", "id", "name", "value"])
)
_VALUES = st.recursive(
    st.one_of(_STRINGS, st.none(), st.booleans(), st.integers(-5, 5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_KEYS, inner, max_size=3),
        inner.map(dumps),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(_STRINGS)
def test_redacting_a_text_twice_changes_nothing_more(text: str) -> None:
    once = REDACT.text(text)
    assert REDACT.text(once) == once
    assert find_secrets(once) == []


@settings(deadline=None, max_examples=300)
@given(_VALUES)
def test_redacting_a_value_twice_changes_nothing_more_and_keeps_its_shape(value: Any) -> None:
    once = REDACT.json(value)
    assert REDACT.json(once) == once
    assert same_shape(once, value)
    assert list(places(once)) == []
    assert bool(list(places(value))) is (once is not value)


def same_shape(new: Any, old: Any) -> bool:
    if isinstance(old, dict):
        pairs = zip(new.values(), old.values(), strict=True)
        return isinstance(new, dict) and all(same_shape(*pair) for pair in pairs)
    if isinstance(old, list):
        return isinstance(new, list) and all(map(same_shape, new, old)) and len(new) == len(old)
    if not isinstance(old, str):
        return new is old
    if not isinstance(new, str):
        return False
    inner = parsed(old)
    # A string whose key says that it is a secret is one, whatever is in it.
    return inner is None or bool(MARKER.fullmatch(new)) or same_shape(parsed(new), inner)


def parsed(text: str) -> Any:
    """The list or object that a text is."""
    try:
        value = loads(text)
    except InvalidInput:
        return None
    return value if isinstance(value, dict | list) else None
