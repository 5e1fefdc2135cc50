"""`secrets` as people and programs meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.cli.conftest import Cli
from tests.conversation.test_secrets import GITHUB, PEM
from tests.letta.build import Store, call, compaction, message, result, row, rows, text

PRINTED = f"token {GITHUB}\nAuthorization: Bearer TEST-000\n{PEM}\npostgres://u:TEST@h/db"


@pytest.fixture
def leaky(home: Path, tmp_path: Path, cli: Cli) -> Cli:
    """O44's tool result, in a conversation of other messages; another one has nothing."""
    store = Store(tmp_path / "letta")
    store.agent()
    noted = message(2, "assistant", [text("I look."), call("c1", "env", {})])
    noted["metadata"]["provider"] = {"headers": {"Authorization": "Bearer TEST-000"}}
    made = rows([message(1, "user", "What is set?"), noted, result(3, "c1", PRINTED)])
    store.conversation(made, ["ui-msg-1", "ui-msg-2", "ui-msg-3"])
    with Space.open(home) as space:
        import_directory(space, store.path)
        space.create_conversation(space.create_agent("Otter"), title="Shed").append(
            message(1, "user", "Where is the key of the shed?")
        )
    return cli


def test_o44_four_findings_by_place_not_by_value(leaky: Cli) -> None:
    done = leaky("secrets", "--json")
    assert (done.code, done.err) == (0, "")
    answer = done.json
    assert list(answer) == ["conversations", "messages", "unreadable", "total", "findings"]
    assert (answer["conversations"], answer["messages"], answer["unreadable"]) == (2, 4, 0)
    assert answer["total"] == 4
    places = [
        (each["path"], each["line"], each["column"], each["kind"]) for each in answer["findings"]
    ]
    assert places == [
        ("content[0].text", 1, 7, "github-pat"),
        ("content[0].text", 2, 23, "authorization"),
        ("content[0].text", 3, 1, "private-key"),
        ("content[0].text", 4, 14, "connection-password"),
    ]
    for each in answer["findings"]:
        assert (each["what"], each["seq"], each["role"]) == ("message", 3, "toolResult")
        assert list(each) == [
            "what", "conversation", "rkey", "seq", "role", "path", "line", "column", "kind",
        ]  # fmt: skip
    people = leaky("secrets")
    assert people.code == 0
    lines = people.out.splitlines()
    rkey = answer["findings"][0]["conversation"]
    assert lines[0] == f"{rkey}  #3 toolResult  content[0].text:1:7  github-pat"
    assert lines[4] == "4 secrets found in 4 messages of 2 conversations."
    for out in (done.out, people.out):
        assert "EEE" not in out
        assert "TEST" not in out


def test_one_conversation(leaky: Cli) -> None:
    listed = leaky("conversations", "--json").json
    named = {each["title"]: each["rkey"] for each in listed}
    assert (
        leaky("secrets", named["Shed"]).out == "No secret found in 1 message of 1 conversation.\n"
    )
    assert leaky("secrets", "local-conv-9").code == 1


def test_titles_prompts_agents_thinking_arguments_and_summaries(
    home: Path, tmp_path: Path, cli: Cli
) -> None:
    thought = message(2, "assistant", [{"type": "thinking", "thinking": f"hm {GITHUB}"}])
    made = rows([message(1, "user", "a"), thought])
    made.append(compaction(message(3, "user", f"used {GITHUB}"), "e3", "e2", None, 2, 1))
    arguments = {"env": {"password": "x"}, GITHUB: 1}
    made.append(row(message(4, "assistant", [call("c1", "run", arguments)]), "e4", "e3"))
    prompt = {"content": f"p {GITHUB}", "coreMemory": "", "rawSystemHash": "0" * 64}
    prompt["compiledAt"] = "2026-03-01T10:00:00.000Z"
    store = Store(tmp_path / "letta")
    store.agent(system=f"Use {GITHUB}.")
    store.conversation(made, ["ui-msg-3", "ui-msg-4"], summary=f"With {GITHUB}", prompt=prompt)
    with Space.open(home) as space:
        import_directory(space, store.path)
    answer = cli("secrets", "--json").json
    assert GITHUB not in cli("secrets").out
    found = {(each["what"], each.get("seq"), each["path"]) for each in answer["findings"]}
    assert {
        ("agent", None, "system"),
        ("title", None, "title"),
        ("prompt", None, "content"),
        ("message", 2, "content[0].thinking"),
        ("message", 3, "content[0].text"),
        ("message", 4, "content[0].arguments.env.password"),
        ("message", 4, 'content[0].arguments["[redacted: github-pat]"]'),
    } <= found
