"""Conversations of any harness as sessions of pi, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import CONVERSATION_STATE
from lettaspace.conversation.space import Space
from lettaspace.demo import write_directory
from lettaspace.errors import Damaged, NotFound
from lettaspace.export.document import open_document
from lettaspace.export.markdown import markdown
from lettaspace.letta.importer import import_directory
from lettaspace.pi.export import session_lines
from lettaspace.pi.importer import import_session
from lettaspace.space.writes import Update
from tests.conformance.kit import UNKNOWN, result, says, user
from tests.letta.conftest import OpenSpace
from tests.pi.model import context
from tests.pi.sessions import Writer, session, text
from tests.pi.test_import import DATA, VERSIONS, entry, import_file, parsed

Json = dict[str, Any]

ADDED = {
    "assistant": {"api", "provider", "model", "stopReason", "usage"},
    "toolResult": {"toolName", "isError"},
}
"""What pi cannot do without, by role."""


def exported(talk: Conversation) -> list[Json]:
    return parsed(b"".join(session_lines(talk.space, talk.rkey)))


def holds(there: Json, here: Json) -> None:
    """All of `here` is there; of usage, what was not counted is zero there."""
    for key, value in here.items():
        if key in ("usage", "cost"):
            holds(there[key], value)
            assert not any(there[key][each] for each in there[key].keys() - value.keys() - {"cost"})
        else:
            assert there[key] == value, key


def same(there: Message, here: Message) -> None:
    """A message of pi's says what the one it was made of says, field by field."""
    one, two = here.form(), there.form()
    assert (there.role, there.created_at) == (here.role, here.created_at)
    if here.compacted_message_ids is not None and there.compacted_message_ids is not None:
        assert entry(there)["message"] == one
        assert one["content"] == [text(entry(there)["summary"])]
        return
    holds(two, one)
    added = two.keys() - one.keys()
    assert added <= {"timestamp"} | ADDED.get(here.role, set())


def brought_in(talk: Conversation, space: Space) -> Conversation:
    report = import_session(space, session(exported(talk)))
    assert not report.findings
    return space.conversation(report.conversation)


def test_lettas_conversation_is_what_pi_says_it_is(space: Space, tmp_path: Path) -> None:
    """The file in `data` is an export; pi 0.73 and 1.6 both said what they read in it."""
    write_directory(tmp_path / "letta")
    import_directory(space, tmp_path / "letta")
    talk = space.conversation("local-conv-1")
    header, *rows = exported(talk)
    wanted, *golden = parsed((DATA / "letta.jsonl").read_bytes())
    assert rows == golden
    assert {key: header[key] for key in wanted} == wanted
    asked = json.loads((DATA / "letta.context.json").read_text(encoding="utf-8"))
    assert asked["name"] == talk.info.title
    found = talk.window().messages
    assert [message.role for message in found] == [each["role"] for each in asked["messages"]]
    summary, *rest = asked["messages"]
    assert found[0].form()["content"][0]["text"] in summary["content"][0]["text"]
    for message, each in zip(found[1:], rest, strict=True):
        holds(each, message.form())


def test_letta_to_pi_and_back(open_space: OpenSpace, tmp_path: Path) -> None:
    one, two = open_space("a"), open_space("b")
    write_directory(tmp_path / "letta")
    import_directory(one, tmp_path / "letta")
    for info in one.conversations():
        here = one.conversation(info.rkey)
        there = brought_in(here, two)
        for ours, theirs in zip(here.transcript(), there.transcript(), strict=True):
            same(theirs, ours)
            assert theirs.status == ours.status
            assert (theirs.covered_by is None) == (ours.covered_by is None)
        assert there.info.title == info.title
        assert there.info.cwd == info.cwd
    assert not list(two.verify())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), st.integers(0, 9)),
        st.tuples(st.just("says"), st.integers(0, 9)),
        st.tuples(st.just("call"), st.integers(0, 2)),
        st.tuples(st.just("answer"), st.integers(0, 9)),
        st.tuples(st.just("orphan"), st.integers(0, 9)),
        st.tuples(st.just("unknown"), st.integers(0, 9)),
        st.tuples(st.just("compact"), st.integers(1, 9)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=14,
)


def act(talk: Conversation, step: str, number: int) -> None:
    match step:
        case "user":
            talk.append(user(f"{number}"))
        case "says":
            talk.append(says(f"{number}"))
        case "call":
            count = len(list(talk.transcript()))
            talk.append(says("", *(f"c{count}-{each}" for each in range(number + 1))))
        case "answer":
            for call in talk.pending()[:1]:
                talk.append(result(f"{number}", call))
        case "orphan":
            talk.append(result(f"{number}", "nobody's"))
        case "unknown":
            talk.append({"said": number}, role="observer", format=UNKNOWN[0], version=UNKNOWN[1])
        case "compact":
            talk.compact(lambda covered: f"{len(covered)} said", lambda _window: number)
        case _:
            talk.settle()


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=STEPS)
def test_any_conversation(open_space: OpenSpace, steps: list[tuple[str, int]]) -> None:
    """What pi gives the model is the window; coming back, all messages are there again."""
    here = open_space("a").create_conversation("otter", title="Jars")
    for step in steps:
        act(here, *step)
    rows = exported(here)
    window = here.window().messages
    given = context(rows)
    assert [id_ for id_, _, _ in given] == [message.rkey for message in window]
    assert [role for _, role, _ in given] == [message.role for message in window]

    there = brought_in(here, open_space("b"))
    for theirs, ours in zip(there.window().messages, window, strict=True):
        same(theirs, ours)
    told = {entry(message)["id"]: message for message in there.transcript()}
    for ours in here.transcript():
        if (ours.format, ours.version) != UNKNOWN:  # an entry that is no message
            same(told.pop(ours.rkey), ours)
    assert not told
    assert exported(there) == rows


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_went_on_in_the_space(open_space: OpenSpace, version: str) -> None:
    here = open_space("a")
    report = import_file(here, DATA / f"pi-{version}.jsonl")
    talk = here.conversation(report.conversation)
    talk.append(user("And Saturday?"))
    talk.append(says("Let me see.", "c9"))
    talk.settle()
    talk.compact(lambda _covered: "so far", lambda _window: 3)
    talk.append(user("Thanks."))
    rows = exported(talk)
    assert rows[0] == parsed((DATA / f"pi-{version}.jsonl").read_bytes())[0]
    window = talk.window().messages
    roles = [role for _, role, _ in context(rows)]
    assert roles == [message.role for message in window]
    there = open_space("b")
    again = there.conversation(import_session(there, session(rows)).conversation)
    for theirs, ours in zip(again.window().messages, window, strict=True):
        assert theirs.form()["content"] == ours.form()["content"]
        assert (theirs.rkey == ours.rkey) == (ours.format == "pi.entry" and "row" in ours.data)
    # Here, messages that the space made are known again by their names.
    back = import_session(here, session(rows))
    assert (back.created, [each.kind for each in back.findings]) == (0, ["loneSurrogate"])
    after = here.conversation(back.conversation).window().messages
    assert [message.rkey for message in after] == [message.rkey for message in window]
    assert not list(here.verify())


def test_a_result_in_the_middle(space: Space) -> None:
    """What the space puts between a session's entries stands there in the file, too."""
    made = Writer()
    made.user("one")
    made.says("", "c1", "c2")
    made.result("c1", "found")
    made.user("two")
    talk = space.conversation(import_session(space, made.session()).conversation)
    (settled,) = talk.settle()
    assert settled.format == "pi.entry"
    rows = exported(talk)
    given = context(rows)
    assert [role for _, role, _ in given] == [
        "user", "assistant", "toolResult", "toolResult", "user",
    ]  # fmt: skip
    (row,) = [row for row in rows if row["id"] == settled.rkey]
    assert row["message"]["toolCallId"] == "c2"
    assert talk.pending() == []


def test_a_placeholder_stays_one(space: Space) -> None:
    """Brought in again from a file, it is still replaced by the result that comes late."""
    made = Writer()
    made.says("", "c1")
    talk = space.conversation(import_session(space, made.session()).conversation)
    (settled,) = talk.settle()
    import_session(space, session(exported(talk)))
    late = {"role": "toolResult", "toolCallId": "c1", "content": [text("late")]}
    entry_of_it = {"type": "message", "message": late}
    told = talk.append({"entry": entry_of_it}, role="toolResult", format="pi.entry")
    assert told.rkey == settled.rkey
    assert [message.rkey for message in talk.window().messages][1:] == [settled.rkey]


def test_sessions_of_the_first_form_that_went_on(space: Space) -> None:
    made = Writer(version=1)
    made.user("one")
    made.message("hookMessage", "two", customType="x", display=True)
    for row in made.rows[1:]:
        del row["id"], row["parentId"]
    talk = space.conversation(import_session(space, made.session()).conversation)
    assert exported(talk) == made.rows
    talk.append(user("three"))
    header, *rows = exported(talk)
    assert header["version"] == 3
    assert [row["parentId"] for row in rows] == [None, rows[0]["id"], rows[1]["id"]]
    assert [row["message"]["role"] for row in rows] == ["user", "custom", "user"]


@pytest.mark.parametrize("data", [{}, {"entry": 5}, {"entry": {"type": "message"}}, {"row": "x"}])
def test_entries_of_other_writers(space: Space, data: Json) -> None:
    talk = space.create_conversation("otter")
    talk.append(data, role="user", format="pi.entry")
    talk.append(user("two"))
    rows = exported(talk)
    assert rows[-1]["message"]["content"] == [text("two")]
    assert len(rows) == 3
    "".join(markdown(open_document(space, talk.rkey)))
    assert not list(space.verify())


@pytest.mark.parametrize("data", [{}, {"header": {}, "entries": [5]}, {"header": 1, "entries": []}])
def test_a_state_of_another_writer(space: Space, data: Json) -> None:
    report = import_session(space, Writer().session())
    stored = space.repo.get(CONVERSATION_STATE, report.conversation)
    assert stored is not None
    value = {**stored.value, "state": {"format": "pi.session", "version": 1, "data": data}}
    space.repo.apply_writes([Update(CONVERSATION_STATE, report.conversation, value)])
    with pytest.raises(Damaged, match="no session of pi's"):
        next(session_lines(space, report.conversation))
    assert import_session(space, Writer().session()).conversation != report.conversation


def test_an_export_that_went_on_in_pi_is_a_fork(space: Space) -> None:
    agent = space.create_agent("Otter", key="otter")
    here = space.create_conversation(agent, title="Jars")
    here.append(user("How many?"))
    last = here.append(says("Four."))
    made = Writer(rows=[])
    made.rows[:] = exported(here)
    made.leaf = made.rows[-1]["id"]
    made.user("And lids?")
    report = import_session(space, made.session())
    fork = space.conversation(report.conversation)
    assert fork.rkey != here.rkey
    left = fork.info.forked_from
    assert left is not None
    assert left["conversation"]["uri"] == here.uri
    assert left["message"] == {"uri": last.uri, "cid": str(last.cid)}
    assert len(fork.window().messages) == 3
    assert len(here.window().messages) == 2


@pytest.mark.parametrize(
    "left",
    [
        "x",
        {},
        {"conversation": {"uri": "at://x", "cid": "y"}, "message": 5},
        {"conversation": {"uri": "at://x", "cid": "y"}, "message": {"uri": "at://x", "cid": "y"}},
        {"conversation": {"uri": 1, "cid": 2}, "message": {"uri": 1, "cid": 2}},
    ],
)
def test_what_is_said_of_a_fork_is_only_data(space: Space, left: Any) -> None:
    made = Writer()
    made.user("one")
    made.rows[0]["lettaspace"] = {"forkedFrom": left}
    report = import_session(space, made.session())
    assert space.conversation(report.conversation).info.forked_from is None
    assert exported(space.conversation(report.conversation)) == made.rows


def test_another_authors_fork_is_no_fork_here(open_space: OpenSpace, tmp_path: Path) -> None:
    here = open_space("a").create_conversation("otter")
    here.append(user("one"))
    with Space.open(tmp_path / "other") as other:
        report = import_session(other, session(exported(here)))
        assert other.conversation(report.conversation).info.forked_from is None


def test_a_session_without_messages(space: Space) -> None:
    here = space.create_conversation("otter")
    header, *rest = exported(here)
    assert rest == []
    assert (header["type"], header["version"], header["id"]) == ("session", 3, here.rkey)
    assert "cwd" not in header


def test_no_such_conversation(space: Space) -> None:
    with pytest.raises(NotFound):
        next(session_lines(space, "nothing"))
