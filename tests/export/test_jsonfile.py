"""Exports as JSON: exact, strict, streamed."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from lettaspace.conversation.jsontext import dumps, loads
from lettaspace.conversation.message import Message
from lettaspace.conversation.space import Space
from lettaspace.export.document import open_document
from lettaspace.export.jsonfile import json_document, json_lines
from tests.conversation.talk import Talk, call, text
from tests.export.conftest import PNG, SECRET, Fake, drop_blobs, state
from tests.letta.build import b1

SEPARATORS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh\ni"


def strict(source: str) -> Any:
    def refuse(token: str) -> None:
        raise AssertionError(f"bare {token}")

    return json.loads(source, parse_constant=refuse)


def both(talk: Talk, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the messages, which both forms must agree on."""
    pieces = list(json_lines(open_document(talk.space, talk.rkey, **options)))
    header, *messages = [strict(line) for line in "".join(pieces).splitlines()]
    assert all(piece.endswith("\n") and piece.count("\n") == 1 for piece in pieces)
    whole = strict("".join(json_document(open_document(talk.space, talk.rkey, **options))))
    left_out = messages.pop()["leftOut"] if messages and "leftOut" in messages[-1] else []
    assert whole.pop("messages") == messages
    assert whole.pop("leftOut", []) == left_out
    prompt = whole.pop("prompt")
    assert whole == header
    return header | {"prompt": prompt, "leftOut": left_out}, messages


def test_a_small_conversation(talk: Talk) -> None:
    state(talk, title="Jars", tags=["kitchen"], cwd="/home/a/otter")
    for number, payload in enumerate(b1(), 1):
        talk.add(str(number), number, role=payload["role"], **_fields(payload))
    header, messages = both(talk)
    assert list(header)[:6] == [
        "format", "version", "redacted", "part", "conversation", "agentName",
    ]  # fmt: skip
    assert (header["format"], header["version"]) == ("lettaspace.export", 1)
    assert (header["redacted"], header["part"], header["agentName"]) == (
        False, "transcript", "Otter",
    )  # fmt: skip
    about = header["conversation"]
    assert (about["uri"], about["title"], about["messages"]) == (talk.uri, "Jars", 4)
    assert (about["tags"], about["cwd"]) == (["kitchen"], "/home/a/otter")
    assert header["prompt"] is None
    assert [each["message"]["data"]["content"] for each in messages] == [
        each["content"] for each in b1()
    ]
    assert all(each["cid"].startswith("bafy") for each in messages)


def test_an_empty_conversation(talk: Talk) -> None:
    header, messages = both(talk)
    assert (header["conversation"]["title"], messages) == (None, [])


def test_o18_every_message_is_one_line(talk: Talk) -> None:
    talk.add(SEPARATORS, 1)
    for form in (json_lines, json_document):
        whole = "".join(form(open_document(talk.space, talk.rkey)))
        assert whole.isascii()
        assert len(whole.splitlines()) == whole.count("\n")
    _, (only,) = both(talk)
    assert only["message"]["data"]["content"] == [text(SEPARATORS)]


def test_o19_o21_control_characters_come_back(talk: Talk) -> None:
    hostile = "a\x00b \x1b]52;c;aGk=\x07 \x9b \u202etxt.exe \ud800"
    talk.add(hostile, 1)
    _, (only,) = both(talk)
    assert only["message"]["data"]["content"][0]["text"] == hostile


def test_o22_numbers_keep_their_text(talk: Talk) -> None:
    cost = '{"input":0.0123,"output":1.0,"total":1e-7,"x":-0.0}'
    numbers = '{"id":9007199254740993,"n":1}'
    content = loads(
        f'[{{"type":"toolCall","id":"c","name":"f","arguments":{numbers}}},'
        f'{{"type":"odd","cost":{cost},"nan":NaN,"far":-Infinity}}]'
    )
    talk.add("numbers", 1, role="assistant", content=content)
    escape = '{"$type":"xyz.quasigod.lab.letta.defs#json","json":"%s"}'
    for redaction in (None, Fake()):
        for form in (json_lines, json_document):
            document = open_document(talk.space, talk.rkey, redaction=redaction)
            whole = "".join(form(document))
            for each in whole.splitlines() if form is json_lines else [whole]:
                strict(each)
            assert numbers in whole
            assert cost in whole
            assert escape % "NaN" in whole
            assert escape % "-Infinity" in whole


def test_o41_o43_signatures_images_and_ids_are_exact(talk: Talk) -> None:
    parts = [
        {"type": "thinking", "thinking": " a ", "thinkingSignature": "c2ln+/==", "new": [1]},
        {"type": "thinking", "thinking": "", "thinkingSignature": "AAAA"},
        {"type": "thinking", "thinking": "no signature"},
        {"type": "image", "mimeType": "image/png", "data": PNG},
        call("call_1|item_2", "ls", {"b": 1, "a": [1.5]}),
    ]
    talk.add("signed", 1, role="assistant", content=parts)
    for redaction in (None, Fake()):
        _, (only,) = both(talk, redaction=redaction)
        assert only["message"]["data"]["content"] == parts


def test_the_window_and_what_is_left_out_of_it(talk: Talk) -> None:
    talk.add("one", 1)
    talk.add("two", 2)
    talk.add("sum", 3, covers=["one", "two"])
    talk.add("stray", 4, role="toolResult", toolCallId="call_ZZ")
    talk.add("five", 5)
    header, messages = both(talk, window=True)
    assert header["part"] == "window"
    assert talk.names([_named(talk, each) for each in messages]) == ["sum", "five"]
    assert [(each["seq"], each["reason"]) for each in header["leftOut"]] == [(4, "orphan-result")]
    header, messages = both(talk)
    assert [each["seq"] for each in messages] == [1, 2, 3, 4, 5]
    assert messages[3]["flags"] == ["orphan-result"]
    assert [each["status"] for each in messages[:2]] == ["compacted", "compacted"]


def test_o48_unknown_formats_are_there_unchanged(talk: Talk) -> None:
    other = {"format": "acme.msg", "version": 1, "data": {"b": "word", "a": 1}}
    talk.add("strange", 1, role="observer", payload=other)
    _, (only,) = both(talk)
    assert (only["role"], only["message"]) == ("observer", other)


def test_what_cannot_be_read_is_said_and_hides_nothing(talk: Talk) -> None:
    talk.add("before", 1)
    talk.add(f"{SECRET} clay " * 60_000, 2)
    talk.add("after", 3)
    drop_blobs(talk.space)
    _, (_, lost, after) = both(talk)
    assert "no blob" in lost["unreadable"]
    leaf = lost["message"]["data"]["content"][0]["text"]
    assert {"key", "blobs"} < leaf.keys()
    assert after["message"]["data"]["content"] == [text("after")]


def test_a_redacted_part_that_cannot_be_read_cannot_be_opened(talk: Talk) -> None:
    data = {"content": "clay " * 60_000, "note": {"b": 1, "a": f"\u00e9 {SECRET}"}}
    talk.add("lost", 1, content=[{"type": "odd", **data}])
    drop_blobs(talk.space)
    _, (lost,) = both(talk, redaction=Fake())
    (part,) = lost["message"]["data"]["content"]
    assert part["note"] == {"b": 1, "a": "\u00e9 [removed]"}
    assert part["content"].keys() == {"$type", "size", "mimeType"}
    assert "bafk" not in dumps(lost)


def test_o45_redacted_forms_hold_nothing_and_no_hash_of_it(talk: Talk) -> None:
    state(talk, title=f"Use {SECRET}", tags=[SECRET], cwd=f"/home/{SECRET}")
    talk.add("said", 1, content=[text(SECRET), call("c", "sh", {"key": SECRET})])
    talk.add("sum", 2, covers=["said"], metadata={"compaction": {"summary": SECRET}})
    for part in (False, True):
        for form in (json_lines, json_document):
            whole = "".join(form(open_document(talk.space, talk.rkey, window=part)))
            assert SECRET in whole
            assert "bafy" in whole
            document = open_document(talk.space, talk.rkey, window=part, redaction=Fake())
            whole = "".join(form(document))
            assert SECRET not in whole
            assert "[removed]" in whole
            assert "bafy" not in whole
    header, _ = both(talk, redaction=Fake())
    assert header["redacted"] is True
    assert header["conversation"]["title"] == "Use [removed]"


@pytest.mark.parametrize("form", [json_lines, json_document])
@pytest.mark.parametrize("window", [False, True])
def test_a_long_conversation_is_not_held_in_memory(talk: Talk, form: Any, window: bool) -> None:
    for number in range(1, 301):
        talk.add(f"{number} " + "clay " * 4_000, number)  # 20 KB each, 6 MB in all
    document = open_document(talk.space, talk.rkey, window=window)
    tracemalloc.start()
    try:
        length = sum(map(len, form(document)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length > 6_000_000
    assert most < 2_000_000


def _fields(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: payload[key] for key in ("content", "toolCallId") if key in payload}


def _named(talk: Talk, form: dict[str, Any]) -> Message:
    return talk.space.message(talk.uri, form["rkey"])


def test_space_is_only_read(space: Space, talk: Talk) -> None:
    talk.add("one", 1)
    before = space.repo.rev
    both(talk, redaction=Fake())
    assert space.repo.rev == before
