"""Payload models: nothing of what Letta writes gets lost, and what is no message is refused."""

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from lettaspace.conversation import jsontext
from lettaspace.conversation.payload import (
    AssistantMessage,
    CompactionMetadata,
    CompactionStats,
    Cost,
    Image,
    Metadata,
    OtherPart,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    parse_message,
)
from lettaspace.errors import Conflict, InvalidInput
from lettaspace.space import schema
from tests.conversation import jsongen
from tests.lab.lab import SCENARIOS
from tests.lab.store import conversation_dir, conversation_keys

anything = jsongen.texts(max_leaves=4).map(jsontext.loads)
words = st.text(max_size=8) | st.sampled_from(["\ud83c", "\ufeffx", " "])
numbers = st.integers(0, 10**6) | st.sampled_from(["1.0", "5.5e-06", "1e400"]).map(jsontext.loads)


def an_object(known, required=(), constant=None):
    """Objects with some of the known keys, perhaps null, and some others."""
    fixed = dict([constant] if constant else [], **{key: known[key] for key in required})
    fixed = {key: st.just(each) if isinstance(each, str) else each for key, each in fixed.items()}
    optional = {k: st.none() | each for k, each in known.items() if k not in required}
    others = st.dictionaries(
        words.filter(lambda key: key not in known and key not in fixed), anything, max_size=2
    )
    return st.builds(
        lambda one, two: {**two, **one}, st.fixed_dictionaries(fixed, optional=optional), others
    )


costs = an_object(dict.fromkeys(["input", "output", "cacheRead", "cacheWrite", "total"], numbers))
usages = an_object(
    {**dict.fromkeys(["input", "output", "reasoning", "totalTokens"], numbers), "cost": costs}
)
metadata = an_object(
    {
        **dict.fromkeys(["created_at", "updated_at", "agent_id", "conversation_id"], words),
        "compaction": an_object(
            {"summary": words, "stats": an_object({"trigger": words, "context_window": numbers})}
        ),
        "provider": an_object({"provider_id": words, "response_id": words, "usage": usages}),
    }
)
parts = st.one_of(
    an_object({"text": words, "textSignature": words}, ["text"], ("type", "text")),
    an_object(
        {"thinking": words, "thinkingSignature": words, "redacted": st.booleans()},
        ["thinking"],
        ("type", "thinking"),
    ),
    an_object({"data": words, "mimeType": words}, ["data"], ("type", "image")),
    an_object({"id": words, "name": words, "arguments": anything}, ["id"], ("type", "toolCall")),
    anything.filter(
        lambda part: (
            not isinstance(part, dict)
            or part.get("type") not in ("text", "thinking", "image", "toolCall")
        )
    ),
)
common = {
    "content": st.lists(parts, max_size=3),
    "id": words,
    "timestamp": numbers,
    "metadata": metadata,
}
messages = st.one_of(
    an_object({**common, "otid": words}, ["content"], ("role", "user")),
    an_object(
        {
            **common,
            **dict.fromkeys(["api", "provider", "model", "responseId", "stopReason"], words),
            "usage": usages,
        },
        ["content"],
        ("role", "assistant"),
    ),
    an_object(
        {**common, "toolCallId": words, "toolName": words, "isError": st.booleans()},
        ["content", "toolCallId"],
        ("role", "toolResult"),
    ),
)


def exact(value):
    """A text in which every number has its own digits, and the order of keys means nothing."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{exact(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(exact, value)) + "]"
    return jsontext.dumps(value, ascii=True)


@given(messages)
def test_what_is_read_is_written(data):
    model = parse_message(data)
    assert exact(model.to_json()) == exact(data)
    assert parse_message(model.to_json()) == model


@given(anything)
def test_anything_is_a_message_or_refused(data):
    try:
        model = parse_message(data)
    except InvalidInput:
        return
    assert exact(model.to_json()) == exact(data)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_message_of_the_real_thing(letta_lab, name):
    root = letta_lab(name)
    seen = 0
    for key in conversation_keys(root):
        path = conversation_dir(root, key) / "messages.jsonl"
        if not path.exists():
            continue
        for line in path.read_bytes().split(b"\n"):
            row = jsontext.loads(line) if line.strip() else {}
            if "message" not in row:
                continue
            model = parse_message(row["message"])
            assert exact(model.to_json()) == exact(row["message"])
            assert not any(isinstance(part, OtherPart) for part in model.content)
            assert set(model.extra) <= {"diagnostics"}
            seen += 1
    assert seen


def test_o43_signed_thinking_parts_come_back_as_they_were(talk_of):
    thoughts = [
        {"type": "thinking", "thinking": " a b ", "thinkingSignature": "c2ln"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "c2ln"},
        {"type": "thinking", "thinking": "no signature\n"},
        {"type": "thinking", "thinking": "x", "thinkingSignature": "s", "later": {"b": 1, "a": 1}},
    ]
    data = {"role": "assistant", "content": thoughts}
    message = parse_message(data)
    assert message.to_json() == data
    assert [part.signature for part in message.content] == ["c2ln", "c2ln", None, "s"]
    stored = talk_of.append(message)
    assert exact(stored.payload()["content"]) == exact(thoughts)
    assert list(stored.payload()["content"][3]["later"]) == ["b", "a"]


def test_o42_every_step_of_a_turn_is_a_message_of_its_role(space, talk_of):
    def step(number):
        call = ToolCall(f"c{number}", "ls")
        return AssistantMessage([Text(f"step {number}"), call]), ToolResult.of(call, "ok")

    said = [UserMessage.text("go"), *step(1), *step(2), AssistantMessage.text("done")]
    for message in said:
        talk_of.append(message)
    again = space.conversation(talk_of.rkey)
    assert [parse_message(each.payload()) for each in again.transcript()] == said
    roles = ["user", "assistant", "toolResult", "assistant", "toolResult", "assistant"]
    assert [message.role for message in again.window().messages] == roles
    added = again.append(UserMessage.text("and now?"))
    assert (added.seq, added.role) == (7, "user")


@pytest.fixture
def talk_of(space):
    return space.create_conversation(space.create_agent("Otter"))


def test_o15_an_image_is_stored_once_however_often_it_is_shown(space, talk_of):
    def stored():
        with space.database.read() as connection:
            return sum(
                connection.execute(select(func.sum(func.length(column)))).scalar() or 0
                for column in (schema.records.c.value, schema.blobs.c.data)
            )

    small = random.Random(15).randbytes(300_000)
    large = random.Random(16).randbytes(9_000_000)
    shown = [small, small, small, large]
    talk_of.append(UserMessage.text("show me"))
    for number, content in enumerate(shown):
        call = ToolCall(f"c{number}", "look")
        talk_of.append(AssistantMessage([call]))
        talk_of.append(ToolResult.of(call, [Image.of(content, "image/png")]))
    before = stored()
    assert before < len(small) + len(large) + 20_000
    for _ in range(2):
        talk_of.compact(lambda covered: f"{len(covered)} messages", lambda _window: 4)
        assert stored() - before < 5_000
        before = stored()
    results = [each for each in talk_of.transcript() if each.role == "toolResult"]
    assert [parse_message(each.payload()).content[0].content() for each in results] == shown
    # A window may do without the bytes: what is stored tells what they are.
    leaf = results[3].payload(images=False)["content"][0]["data"]
    assert (leaf["size"], leaf["mimeType"]) == (9_000_000, "image/png")


def test_models_are_appended_and_rewritten(talk_of):
    said = talk_of.append(UserMessage.text("List the jars."), key="one")
    call = ToolCall("c1", "list", {"shelf": 3, "all": True})
    answer = AssistantMessage([Text("Looking."), call], stop_reason="toolUse")
    assert talk_of.append(answer).role == "assistant"
    assert talk_of.pending() == ["c1"]
    talk_of.append(ToolResult.of(call, [Image.of(b"png", "image/png")]))
    assert talk_of.pending() == []
    talk_of.append(AssistantMessage.text("Two.", usage=Usage(input=10, cost=Cost(total=0.5))))
    read = [parse_message(message.payload()) for message in talk_of.window().messages]
    assert read[0] == UserMessage.text("List the jars.")
    assert read[1] == answer
    assert read[1].tool_calls == [call]
    assert read[2].tool_call_id == "c1"
    assert read[2].content[0].content() == b"png"
    assert read[3].usage.cost.total == 0.5

    assert talk_of.append(UserMessage.text("List the jars."), key="one").rkey == said.rkey
    with pytest.raises(Conflict):
        talk_of.append(UserMessage.text("List the lids."), key="one")
    again = talk_of.rewrite(said.rkey, UserMessage.text("List all."))
    assert (again.rkey, again.seq) == (said.rkey, said.seq)
    assert parse_message(again.payload()).plain_text == "List all."

    done = talk_of.compact(
        lambda covered: UserMessage.text(
            f"{len(covered)} messages",
            metadata=Metadata(
                compaction=CompactionMetadata("short", stats=CompactionStats(trigger="manual"))
            ),
        )
    )
    assert done.covered == 4
    assert parse_message(done.summary.payload()).metadata.compaction.summary == "short"


def test_constructors_write_only_what_was_given():
    assert UserMessage.text("hi").to_json() == {
        "role": "user",
        "content": [{"type": "text", "text": "hi"}],
    }
    result = ToolResult.of(ToolCall("c", "ls"), "x", is_error=True, id="m", extra={"new": 1})
    assert result.to_json() == {
        "role": "toolResult",
        "content": [{"type": "text", "text": "x"}],
        "id": "m",
        "toolCallId": "c",
        "toolName": "ls",
        "isError": True,
        "new": 1,
    }
    thought = AssistantMessage([Thinking("hm", signature="s"), Text("a"), Text("b")])
    assert (thought.role, thought.plain_text) == ("assistant", "a\nb")
    assert thought == AssistantMessage((Thinking("hm", signature="s"), Text("a"), Text("b")))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([], "the message is not an object"),
        ({}, "role is neither user, assistant nor toolResult"),
        ({"role": []}, "role is neither user, assistant nor toolResult"),
        ({"role": "user"}, "content is missing"),
        ({"role": "user", "content": None}, "content is missing"),
        ({"role": "user", "content": "hi"}, "content is not a list"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text is missing"),
        (
            {"role": "user", "content": [1, {"type": "text", "text": 5}]},
            "content[1].text is not a string",
        ),
        ({"role": "toolResult", "content": []}, "toolCallId is missing"),
        (
            {"role": "toolResult", "content": [], "toolCallId": "c", "isError": "no"},
            "isError is not true or false",
        ),
        (
            {"role": "assistant", "content": [], "usage": {"cost": {"total": "secret"}}},
            "usage.cost.total is not a number",
        ),
        (
            {"role": "assistant", "content": [], "usage": {"input": True}},
            "usage.input is not a number",
        ),
        ({"role": "user", "content": [], "metadata": []}, "metadata is not an object"),
    ],
)
def test_what_is_no_message_is_refused_by_its_place(data, problem):
    with pytest.raises(InvalidInput) as refused:
        parse_message(data)
    assert str(refused.value) == problem


def test_the_constant_key_must_be_right():
    with pytest.raises(InvalidInput, match=r"^role is not 'user'$"):
        UserMessage.from_json({"role": "assistant", "content": []})
    with pytest.raises(InvalidInput, match=r"^a\.type is missing$"):
        Text.from_json({"text": "x"}, "a")


def test_an_image_holds_base64():
    assert Image.of(b"\x00\x01", "image/png").data == base64.b64encode(b"\x00\x01").decode()
    with pytest.raises(InvalidInput, match="not base64"):
        Image("?", "image/png").content()
