"""Authentication headers in metadata are never stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.conversation.jsontext import dumps, loads
from lettaspace.conversation.space import STORE_FILE, Space
from lettaspace.conversation.unstored import without_authentication
from lettaspace.letta.importer import import_directory
from tests.letta.build import Store, message, rows, text

SECRET = "TEST-000-of-" + "a-header"


def noted(**more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": "hi"}], **more}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"headers": {"Authorization": "S", "accept": "x"}},
         {"headers": {"Authorization": "[not stored]", "accept": "x"}}),
        ({"requestHeaders": {"COOKIE": ["S", "S"], "n": 1.5}},
         {"requestHeaders": {"COOKIE": "[not stored]", "n": 1.5}}),
        ({"response_headers": {"set-cookie": {"a": "S"}}},
         {"response_headers": {"set-cookie": "[not stored]"}}),
        ({"headers": {"inner": {"x-api-key": "S"}}},
         {"headers": {"inner": {"x-api-key": "[not stored]"}}}),
        ({"headers": [["Authorization", "S"], ["accept", "x"]]},
         {"headers": [["Authorization", "[not stored]"], ["accept", "x"]]}),
        ({"rawHeaders": ["accept", "x", "Cookie", "S"]},
         {"rawHeaders": ["accept", "x", "Cookie", "[not stored]"]}),
        ({"headers": [{"name": "Cookie", "value": "S"}, {"name": "a", "value": "b"}]},
         {"headers": [{"name": "Cookie", "value": "[not stored]"}, {"name": "a", "value": "b"}]}),
    ],
)  # fmt: skip
def test_only_the_values_of_authentication_headers_go(value: Any, expected: Any) -> None:
    for place in ("metadata", "providerMetadata"):
        assert without_authentication(noted(**{place: value})) == noted(**{place: expected})
        deep = noted(**{place: {"provider": [value]}})
        assert without_authentication(deep) == noted(**{place: {"provider": [expected]}})
    assert without_authentication(noted(**value)) == noted(**expected)


@pytest.mark.parametrize(
    "payload",
    [
        noted(metadata={"authorization": "S", "cookie": "S"}),
        noted(metadata={"headers": "Authorization: S"}),
        noted(content=[{"type": "toolCall", "arguments": {"headers": {"Authorization": "S"}}}]),
        {"role": "user", "parts": [{"headers": {"Authorization": "S"}}]},
        noted(metadata={"headers": {}}, usage={"cost": {"input": 1.0}}),
    ],
)
def test_all_else_is_left_alone(payload: dict[str, Any]) -> None:
    assert dumps(without_authentication(payload)) == dumps(payload)


_JSON = st.recursive(
    st.one_of(
        st.none(), st.text(max_size=5), st.integers(), st.sampled_from(["Cookie", "x-api-key"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["headers", "Cookie", "authorization", "name", "value", "a"]), inner
        ),
    ),
)


@given(st.dictionaries(st.sampled_from(["metadata", "headers", "content", "x"]), _JSON))
def test_it_is_a_function_that_needs_to_be_applied_once(payload: dict[str, Any]) -> None:
    before = dumps(payload)
    once = without_authentication(payload)
    assert dumps(without_authentication(once)) == dumps(once)
    assert dumps(payload) == before
    assert list(once) == list(payload)
    assert once.get("content") is payload.get("content")


def test_nesting_that_is_refused_anyway_is_no_problem() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert without_authentication(noted(metadata=deep)) == noted(metadata=deep)
    loop: dict[str, Any] = {}
    loop["a"] = loop
    assert without_authentication(noted(metadata=loop))["metadata"] is loop


def test_headers_are_seen_however_deep_json_may_be() -> None:
    source = '{"metadata":' + '{"a":' * 509 + '{"headers":{"Cookie":"S"}}' + "}" * 509 + "}"
    assert dumps(without_authentication(loads(source))) == source.replace('"S"', '"[not stored]"')


def test_o44_what_is_appended_has_none(tmp_path: Path) -> None:
    headers = {"headers": {"Authorization": f"Bearer {SECRET}", "accept": "x"}}
    payload = noted(metadata={"provider": headers})
    with Space.open(tmp_path) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        first = talk.append(payload, key="k")
        kept = {"headers": {"Authorization": "[not stored]", "accept": "x"}}
        assert first.payload()["metadata"] == {"provider": kept}
        assert talk.append(payload, key="k").rkey == first.rkey
        again = talk.rewrite(first.rkey, noted(metadata={"x": headers}))
        assert again.payload()["metadata"] == {"x": kept}
        said = {"role": "user", "content": [{"type": "text", "text": f"Authorization: {SECRET}"}]}
        assert talk.append(said).payload() == said
    everything = b"".join(path.read_bytes() for path in tmp_path.glob(f"{STORE_FILE}*"))
    assert f"Bearer {SECRET}".encode() not in everything


def test_o44_what_is_brought_in_has_none_on_every_machine(tmp_path: Path) -> None:
    note = {"request": {"headers": {"authorization": f"Bearer {SECRET}", "accept": "x"}}}
    asked = message(1, "user", "hello")
    answered = message(2, "assistant", [text("hi")])
    answered["metadata"]["provider"] = note
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows([asked, answered]), ["ui-msg-1", "ui-msg-2"])
    cids = []
    for machine in ("a", "b"):
        home = tmp_path / machine
        with Space.open(home) as space:
            import_directory(space, store.path)
            (talk,) = space.conversations()
            messages = list(space.transcript(talk.uri))
            stored = messages[-1].payload()["metadata"]["provider"]
            assert stored == {
                "request": {"headers": {"authorization": "[not stored]", "accept": "x"}}
            }
            cids.append([json.dumps(message.value["message"]) for message in messages])
        everything = b"".join(path.read_bytes() for path in home.glob(f"{STORE_FILE}*"))
        assert SECRET.encode() not in everything
    assert cids[0] == cids[1]


def test_the_texts_of_numbers_stay() -> None:
    source = '{"metadata":{"headers":{"Cookie":"S"},"n":1.0,"e":1e5}}'
    assert dumps(without_authentication(loads(source))) == source.replace('"S"', '"[not stored]"')
