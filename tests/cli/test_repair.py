"""`repair` as people and programs meet it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lettaspace import Conversation, Space, UserMessage
from lettaspace.conversation import compaction
from tests.cli.conftest import Cli


def _interrupted(space: Space, title: str, monkeypatch: pytest.MonkeyPatch) -> Conversation:
    """Five messages, of which a summary covers three, and nothing but the summary written."""
    talk = space.create_conversation(space.create_agent("Otter"), title=title)
    for number in range(5):
        talk.append(UserMessage.text(f"{title} {number}"))
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "MAX_WRITES", 1)
        patch.setattr(Conversation, "repair", lambda _self: 0)
        talk.compact(lambda covered: f"about {len(covered)}", lambda _window: 3)
    return talk


def _texts(talk: Conversation) -> list[str]:
    return [message.payload()["content"][0]["text"] for message in talk.window().messages]


def test_repair(home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with Space.open(home) as space:
        one = _interrupted(space, "one", monkeypatch)
        two = _interrupted(space, "two", monkeypatch)
        quiet = space.create_conversation(one.agent, title="quiet")
        quiet.append(UserMessage.text("x"))
        space.create_conversation(one.agent, title="empty")
        before = _texts(one)
        assert before == ["about 3", "one 3", "one 4"]
        assert one.message(one.window().messages[0].compacted_message_ids[0]).value.get(  # type: ignore[index]
            "status"
        ) in (None, "active")

    outcome = cli("repair", "--json", one.rkey)
    (result,) = outcome.json
    assert list(result) == ["rkey", "uri", "changed"]
    assert (result["rkey"], result["uri"]) == (one.rkey, one.uri)
    assert result["changed"] >= 3

    outcome = cli("repair")
    assert outcome.code == 0
    assert outcome.out.startswith(f"{two.rkey}  changed ")
    assert outcome.out.endswith("  two\n")
    assert cli("repair").out == "No compaction was interrupted.\n"
    assert cli("repair", "--json").out == "[]\n"
    with Space.open(home) as space:
        assert _texts(space.conversation(one.rkey)) == before
        for message in space.conversation(one.rkey).transcript():
            assert message.value.get("status", "active") == message.status
    assert cli("verify").code == 0


def test_a_damaged_conversation_is_named_and_the_others_are_repaired(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Space.open(home) as space:
        good = _interrupted(space, "good", monkeypatch)
        bad = _interrupted(space, "bad", monkeypatch)
        lost = next(iter(bad.transcript())).rkey
    with sqlite3.connect(home / "space.db") as database:
        database.execute("UPDATE records SET rkey = 'lost' WHERE rkey = ?", (lost,))
    outcome = cli("repair")
    assert outcome.code == 1
    bad_line, good_line = sorted(outcome.out.splitlines(), key=lambda line: line.endswith("good"))
    assert bad_line.startswith(f"{bad.rkey}  not repaired: ")
    assert good_line.startswith(f"{good.rkey}  changed ")


def test_an_unknown_conversation(home: Path, cli: Cli) -> None:
    with Space.open(home):
        pass
    outcome = cli("repair", "nobody")
    assert outcome.code == 1
    assert outcome.err == "lettaspace: error: no conversation is called 'nobody'\n"
