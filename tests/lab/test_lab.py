"""Every scenario's directory holds what the scenario claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import scenarios
from tests.lab.driver import png
from tests.lab.lab import SCENARIOS, Lab
from tests.lab.store import (
    Replay,
    conversation_dir,
    conversation_key,
    conversation_keys,
    in_context_ids,
    load_window,
    read_agents,
    read_conversation,
    read_messages,
    read_rows,
    replay,
    text_of,
)

Json = dict[str, Any]
Check = Callable[[Path], None]

CHECKS: dict[str, Check] = {}
FIRST = conversation_key(1)

# The window names a message that was still being written, or lacks one that Letta threw out
# or that the other of two processes knew nothing of.
OTHER_WINDOW = {"kill_stream", "orphan", "race"}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def roles(root: Path, key: str = FIRST) -> list[str]:
    return [message["role"] for message in read_messages(root, key)]


def stop_reasons(root: Path, key: str = FIRST) -> list[str]:
    return [m["stopReason"] for m in read_messages(root, key) if m["role"] == "assistant"]


def parts(message: Json, kind: str) -> list[Json]:
    return [part for part in message["content"] if part["type"] == kind]


def prompt_of(message: Json) -> str:
    """What the user typed, which stands behind Letta's reminders."""
    text: str = parts(message, "text")[-1]["text"]
    return text


def replayed(root: Path, key: str = FIRST) -> Replay:
    return replay(read_rows(root, key))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(letta_lab: Lab, name: str) -> None:
    root = letta_lab(name)
    held = False
    for key in conversation_keys(root):
        rows = read_rows(root, key)
        ids = [row["id"] for row in rows]
        assert len(set(ids)) == len(ids), "row ids are unique"
        if not rows:
            continue
        held = True
        assert rows[0]["type"] == "session"
        assert rows[0]["timestamp"] == read_conversation(root, key)["created_at"]
        if name not in OTHER_WINDOW:
            assert replay(rows).window == in_context_ids(root, key)
    assert held
    CHECKS[name](root)


RESUMED = ("compact_twice", "kill_stream", "orphan", "parallel", "race", "reused_ids", "snapshot")


@pytest.mark.parametrize("name", RESUMED)
def test_the_model_sees_the_window(letta_lab: Lab, name: str) -> None:
    """`load_window` says what Letta loads: compare with what it then sends."""
    home = letta_lab.copy(name, f"{name}-seen")
    window = load_window(read_rows(home.storage, FIRST), in_context_ids(home.storage, FIRST))
    mark = letta_lab.provider.mark()
    home.ask("What do you see?", conversation="local-conv-1")
    sent = letta_lab.provider.requests[mark].body["messages"]
    users = [prompt_of(message) for message in window if message["role"] == "user"]
    results = [text_of(message) for message in window if message["role"] == "toolResult"]
    seen = [message["content"][-1]["text"] for message in sent if message["role"] == "user"]
    assert seen == [*users, "What do you see?"]
    assert [message["content"] for message in sent if message["role"] == "tool"] == results


def test_every_scenario_is_checked() -> None:
    assert CHECKS.keys() == SCENARIOS.keys()


@check
def deterministic(root: Path) -> None:
    assert roles(root) == ["user", "assistant"] * 2
    assert [m["provider"] for m in read_messages(root, FIRST)[1::2]] == ["local"] * 2


@check
def turns(root: Path) -> None:
    assert len(read_messages(root, FIRST)) == 10
    assert roles(root).count("toolResult") == 1


@check
def tool(root: Path) -> None:
    assert roles(root) == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
    _, call, result, answer, _, _ = read_messages(root, FIRST)
    assert [part["type"] for part in call["content"]] == ["thinking", "text", "toolCall"]
    assert call["content"][0]["thinking"] == scenarios.THOUGHT
    assert result["toolCallId"] == call["content"][2]["id"]
    assert text_of(result) == "plum\nfig\n"
    assert text_of(answer) == "Two jars: plum and fig."


@check
def parallel(root: Path) -> None:
    asked = ["user", "assistant", "toolResult", "toolResult", "toolResult"]
    assert roles(root) == [*asked, "assistant", "toolResult", "assistant"]
    messages = read_messages(root, FIRST)
    calls = [call["id"] for call in parts(messages[1], "toolCall")]
    assert [message["toolCallId"] for message in messages[2:5]] == calls
    assert "Exit code: 3" in text_of(messages[3])


@check
def images(root: Path) -> None:
    messages = read_messages(root, FIRST)
    (shown,) = [part for m in messages if m["role"] == "toolResult" for part in parts(m, "image")]
    (sent,) = [part for m in messages if m["role"] == "user" for part in parts(m, "image")]
    assert shown["mimeType"] == sent["mimeType"] == "image/png"
    assert scenarios.encoded(png()) == shown["data"]
    assert scenarios.encoded(scenarios.USER_PICTURE) == sent["data"]


@check
def unicode(root: Path) -> None:
    user, call, result, _ = read_messages(root, FIRST)
    assert scenarios.UNICODE_PROMPT in prompt_of(user)
    assert text_of(call) == scenarios.UNICODE_TEXT
    assert parts(call, "thinking")[0]["thinking"] == scenarios.UNICODE_THOUGHT
    assert text_of(result) == "a\x00b\ufffd\n\u2028"
    raw = (conversation_dir(root, FIRST) / "messages.jsonl").read_bytes()
    # Separators and marks stand raw, what UTF-8 cannot hold is escaped.
    assert "\u2028\u2029 mark \ufeff".encode() in raw
    assert b"\\ud83c nul \\u0000" in raw


@check
def numbers(root: Path) -> None:
    raw = (conversation_dir(root, FIRST) / "messages.jsonl").read_text("utf-8")
    # As JavaScript reads and prints them: what it lost is lost before it reaches the disk.
    assert '"huge":1e+21,"big":9007199254740992,"tenth":0.1,"zero":0,"small":1e-7' in raw
    for number in (2, 3):
        key = conversation_key(number)
        cost = read_messages(root, key)[1]["usage"]["cost"]
        assert isinstance(cost["total"], float)
        assert 0 < cost["cacheRead"] < 1e-4
    assert "0.000049999999999999996" in (
        conversation_dir(root, conversation_key(2)) / "messages.jsonl"
    ).read_text("utf-8")


@check
def signed(root: Path) -> None:
    claude = read_messages(root, FIRST)[1]
    thought, redacted = parts(claude, "thinking")
    assert claude["api"] == "anthropic-messages"
    assert thought["thinking"] == scenarios.THOUGHT
    assert thought["thinkingSignature"]
    assert redacted["redacted"] is True
    gpt = read_messages(root, conversation_key(2))[1]
    assert gpt["api"] == "openai-responses"
    signature = json.loads(parts(gpt, "thinking")[0]["thinkingSignature"])
    assert signature["encrypted_content"]
    assert json.loads(parts(gpt, "text")[0]["textSignature"])["id"].startswith("msg_")
    assert "|" in parts(gpt, "toolCall")[0]["id"]


@check
def errors(root: Path) -> None:
    refused, cut, length, arguments, unknown = (conversation_key(n) for n in range(1, 6))
    assert roles(root, refused) == ["user"]
    assert stop_reasons(root, cut) == ["error", "stop"]
    # The client asks again from the start: the user's words stand there twice.
    first, broken, second, _ = read_messages(root, cut)
    assert prompt_of(first) == prompt_of(second)
    assert broken["errorMessage"]
    assert stop_reasons(root, length) == ["length"]
    assert read_messages(root, arguments)[2]["isError"] is True
    assert stop_reasons(root, arguments) == ["toolUse", "stop"]
    assert "Tool not found: NoSuchTool" in text_of(read_messages(root, unknown)[2])


@check
def snapshot(root: Path) -> None:
    *_, cut, whole = read_messages(root, FIRST)
    assert cut["id"] == whole["id"]
    assert cut["metadata"]["created_at"] == whole["metadata"]["created_at"]
    assert (cut["stopReason"], whole["stopReason"]) == ("error", "stop")
    assert text_of(whole).startswith(text_of(cut))
    assert in_context_ids(root, FIRST).count(whole["id"]) == 1


@check
def orphan(root: Path) -> None:
    messages = read_messages(root, FIRST)
    failed = messages[1]
    assert failed["stopReason"] == "error"
    (call,) = parts(failed, "toolCall")
    settled = [m for m in messages if m.get("toolCallId") == call["id"]]
    # Letta settles the call again each time, because it drops the result each time it loads.
    assert [text_of(message) for message in settled] == ["Turn did not complete"] * 2
    window = in_context_ids(root, FIRST)
    assert settled[0]["id"] not in window
    assert settled[1]["id"] in window
    assert settled[1] not in load_window(read_rows(root, FIRST), window)


@check
def compact_auto(root: Path) -> None:
    compactions = [row for row in read_rows(root, FIRST) if row["type"] == "compaction"]
    assert len(compactions) >= 2
    triggers = {row["details"]["stats"]["trigger"] for row in compactions}
    assert triggers == {"context_window_limit"}
    first, second, *_ = replayed(root).compactions
    assert first.summary_id in second.covered
    assert set(first.kept) & set(second.kept)


@check
def compact_all(root: Path) -> None:
    (row,) = [row for row in read_rows(root, FIRST) if row["type"] == "compaction"]
    assert row["firstKeptEntryId"] is None
    (compaction,) = replayed(root).compactions
    assert len(compaction.covered) == 10
    assert compaction.kept == []
    assert len(in_context_ids(root, FIRST)) == 3


@check
def compact_sliding(root: Path) -> None:
    (row,) = [row for row in read_rows(root, FIRST) if row["type"] == "compaction"]
    assert row["firstKeptEntryId"] in {other["id"] for other in read_rows(root, FIRST)}
    (compaction,) = replayed(root).compactions
    assert len(compaction.covered) == 3
    assert len(compaction.kept) == 7


@check
def compact_twice(root: Path) -> None:
    first, second = replayed(root).compactions
    assert second.covered == [first.summary_id, *first.kept[:2]]
    assert second.kept[:5] == first.kept[2:]


@check
def compact_thrice(root: Path) -> None:
    _, second, third = replayed(root).compactions
    assert third.covered == [second.summary_id, *second.kept]
    assert in_context_ids(root, FIRST) == [third.summary_id]


@check
def compact_overflow(root: Path) -> None:
    for key, before in ((FIRST, 1), (conversation_key(2), 3)):
        rows = read_rows(root, key)[1:]
        assert rows[before]["type"] == "compaction"
        assert rows[before]["details"]["stats"]["trigger"] == "context_window_overflow"
        (compaction,) = replayed(root, key).compactions
        assert len(compaction.covered) == before
        assert rows[-1]["message"]["role"] == "assistant"


@check
def forks(root: Path) -> None:
    source = read_messages(root, FIRST)
    keys = [conversation_key(number) for number in range(1, 6)]
    all_ids = [m["id"] for key in keys for m in read_messages(root, key)]
    assert len(set(all_ids)) == len(all_ids), "a fork's messages have ids of their own"
    for key, length in zip(keys[1:4], (10, 4, 10), strict=True):
        copies = read_messages(root, key)[:length]
        for copy, original in zip(copies, source[:length], strict=True):
            assert copy["content"] == original["content"]
            assert copy["metadata"]["created_at"] == original["metadata"]["created_at"]
    assert len(read_messages(root, keys[2])) == 4
    (compaction,) = replayed(root, keys[3]).compactions
    # In the fork of a compacted conversation the summary is an ordinary message.
    summary = read_rows(root, keys[4])[1]
    assert summary["type"] == "message"
    assert "compaction" in summary["message"]["metadata"]
    assert len(read_messages(root, keys[4])) == 1 + len(compaction.kept) + 2


@check
def many(root: Path) -> None:
    agents = {agent["id"] for agent in read_agents(root)}
    assert len(agents) == 2
    first = read_conversation(root, FIRST)
    assert first["summary"] == "Jars, and where they stand"
    assert read_conversation(root, conversation_key(2))["archived"] is True
    default = f"default:{first['agent_id']}"
    assert read_conversation(root, default)["id"] == "default"
    assert prompt_of(read_messages(root, default)[0]) == "in the default"
    assert read_conversation(root, conversation_key(3))["agent_id"] != first["agent_id"]


@check
def memory(root: Path) -> None:
    record = conversation_dir(root, FIRST) / "system-prompt.json"
    prompt = json.loads(record.read_text("utf-8"))
    assert scenarios.MEMORY in prompt["coreMemory"]
    assert scenarios.MEMORY not in prompt["content"]
    agent = read_conversation(root, FIRST)["agent_id"]
    tree = root / "memfs" / agent / "memory"
    assert scenarios.MEMORY in (tree / "facts.md").read_text()
    head = (tree / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert prompt["memfsRevision"] == head


@check
def kill_tool(root: Path) -> None:
    assert roles(root) == ["user", "assistant"]
    assert parts(read_messages(root, FIRST)[1], "toolCall")


@check
def kill_tool_resumed(root: Path) -> None:
    assert roles(root) == ["user", "assistant", "toolResult", "user", "assistant"]
    _, call, settled, _, _ = read_messages(root, FIRST)
    assert settled["isError"] is True
    assert settled["toolCallId"] == parts(call, "toolCall")[0]["id"]


@check
def kill_stream(root: Path) -> None:
    assert roles(root) == ["user"]
    (user,) = read_messages(root, FIRST)
    first, missing = in_context_ids(root, FIRST)
    assert first == user["id"]
    assert missing != user["id"]


@check
def kill_stream_resumed(root: Path) -> None:
    assert roles(root) == ["user", "user", "assistant"]


@check
def interrupted(root: Path) -> None:
    assert read_messages(root, FIRST)[2]["isError"] is True
    typed = [prompt_of(m) for m in read_messages(root, FIRST) if m["role"] == "user"]
    # The note about the interruption is a message of its own.
    assert "interrupted the active stream" in typed[-2]
    assert typed[-1] == "Something else."


@check
def big(root: Path) -> None:
    _, _, output, answer = read_messages(root, FIRST)
    assert text_of(answer) == scenarios.BIG_TEXT
    assert len(scenarios.BIG_TEXT) > 60_000
    assert "showing 2,000 of 200,000 characters" in text_of(output)
    path = Path(text_of(output).rpartition("written to: ")[2].rstrip("]\n"))
    assert path.stat().st_size >= scenarios.BIG_OUTPUT
    assert not path.is_relative_to(root)


@check
def subagent(root: Path) -> None:
    hidden = [agent for agent in read_agents(root) if agent.get("hidden")]
    assert len(hidden) == 1
    assert "role:subagent" in hidden[0]["tags"]
    inner = read_messages(root, f"default:{hidden[0]['id']}")
    assert text_of(inner[-1]) == scenarios.SUBAGENT_TEXT


@check
def race(root: Path) -> None:
    # Both answers are in the file. Which of them the window has, and whether the second took
    # over the first one's id and time, is a matter of milliseconds between the processes.
    messages = read_messages(root, FIRST)
    left, right = (
        next(message for message in messages if text_of(message) == f"The answer of the {side}.")
        for side in ("left", "right")
    )
    assert left["responseId"] != right["responseId"]
    if left["id"] == right["id"]:
        assert left["metadata"]["created_at"] == right["metadata"]["created_at"]
    assert right["id"] in in_context_ids(root, FIRST)


@check
def reused_ids(root: Path) -> None:
    messages = read_messages(root, FIRST)
    ids = [message["id"] for message in messages]
    assert ids[2:4] == ids[4:6]
    for forgotten, kept in zip(messages[2:4], messages[4:6], strict=True):
        assert forgotten["metadata"]["created_at"] < kept["metadata"]["created_at"]
