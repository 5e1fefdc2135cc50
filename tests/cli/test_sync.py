"""`sync`: what it says, what it stores, what it leaves alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.letta.build import AGENT, Store, b1, jsonl, message, prompt, rows, session


@pytest.fixture
def letta(tmp_path: Path) -> Store:
    store = Store(tmp_path / "letta")
    store.agent()
    return store


def _torn() -> bytes:
    """B1 whose last row is cut within a word."""
    content = jsonl(rows(b1()))
    return content[: content.rindex(b'"role":"assi') + len(b'"role":"assi')]


def _state(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_first_and_a_second_sync(cli: Cli, letta: Store) -> None:
    letta.conversation(rows(b1()), prompt=prompt())
    before = _state(letta.path)
    first = cli("sync", "--letta", letta.path, "--json")
    assert (first.code, first.err) == (0, "")
    assert first.json["directory"] == str(letta.path)
    assert first.json["outcomes"] == {"new": 1}
    assert first.json["messages"] == {"new": 4, "changed": 0, "unchanged": 0}
    assert first.json["incomplete"] is False
    second = cli("sync", "--letta", letta.path, "--json")
    assert second.json["outcomes"] == {"unchanged": 1}
    assert second.json["messages"]["new"] == second.json["messages"]["changed"] == 0
    assert _state(letta.path) == before


def test_the_summary_for_people(cli: Cli, letta: Store) -> None:
    letta.conversation(rows(b1()))
    outcome = cli("sync", "--letta", letta.path)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line.split() for line in outcome.out.splitlines()]
    assert lines[:5] == [
        ["Read", str(letta.path)],
        ["NEW", "CHANGED", "UNCHANGED", "DAMAGED"],
        ["conversations", "1", "0", "0", "0"],
        ["messages", "4", "0", "0"],
        ["agents", "1", "0", "0", "0"],
    ]


def test_a_dry_run_stores_nothing(cli: Cli, letta: Store) -> None:
    letta.conversation(rows(b1()))
    outcome = cli("sync", "--letta", letta.path, "--dry-run", "--json")
    assert outcome.code == 0
    assert outcome.json["dryRun"] is True
    assert outcome.json["messages"]["new"] == 4
    assert cli("conversations", "--json").json == []
    assert "Would read" in cli("sync", "--letta", letta.path, "--dry-run").out


def test_o01_a_torn_last_row_is_reported_and_the_rest_is_there(cli: Cli, letta: Store) -> None:
    directory = letta.conversation(_torn(), ["ui-msg-1", "ui-msg-2", "ui-msg-3", "ui-msg-4"])
    before = _state(letta.path)
    outcome = cli("sync", "--letta", letta.path)
    assert outcome.code == 0
    report = next(line for line in outcome.out.splitlines() if "tornRow" in line)
    dropped = len(_torn().rpartition(b"\n")[2])
    assert report.startswith("! conversation:local-conv-1, row 5: ")
    assert f"{dropped} bytes" in report
    assert "incomplete" in outcome.out
    assert _state(letta.path) == before

    assert [each["seq"] for each in cli("show", "local-conv-1", "--json").json["messages"]] == [
        1,
        2,
        3,
    ]
    assert cli("search", "plum", "--json").json["total"] == 1
    (conversation,) = cli("conversations", "--json").json
    assert conversation["incomplete"] is True
    assert "[incomplete]" in cli("conversations").out
    assert "incomplete" in cli("show", "local-conv-1").out

    again = cli("sync", "--letta", letta.path, "--json").json
    assert again["messages"]["new"] == again["messages"]["changed"] == 0
    assert again["incomplete"] is True

    (directory / "messages.jsonl").write_bytes(jsonl(rows(b1())))
    whole = cli("sync", "--letta", letta.path, "--json").json
    assert whole["messages"]["new"] == 1
    assert whole["incomplete"] is False
    assert "incomplete" not in cli("conversations", "--json").json[0]


def test_o02_strict_stores_nothing_and_says_why(cli: Cli, letta: Store) -> None:
    made = rows([message(number, "user", f"m{number}") for number in range(1, 7)])
    lines = jsonl(made).split(b"\n")
    lines[3] = b'{"type":"message","id":"e3","par'
    letta.conversation(b"\n".join(lines), [f"ui-msg-{number}" for number in range(1, 7)])
    outcome = cli("sync", "--letta", letta.path, "--strict", "--json")
    assert outcome.code == 1
    assert outcome.json["error"] == "Damaged"
    assert "conversation:local-conv-1, row 4" in outcome.err
    assert cli("conversations", "--json").json == []
    assert cli("agents", "--json").json == []

    tolerant = cli("sync", "--letta", letta.path, "--json")
    assert tolerant.code == 0
    (conversation,) = tolerant.json["conversations"]
    assert conversation["incomplete"] is True
    assert 4 in [each["row"] for each in conversation["damage"]]
    assert len(cli("show", "local-conv-1", "--json").json["messages"]) == 5


def test_o03_one_odd_file_hides_nothing(cli: Cli, letta: Store) -> None:
    odd = b"\xef\xbb\xbf" + jsonl(rows(b1())).replace(b"\n", b"\r\n")
    ids = [f"ui-msg-{number}" for number in range(1, 5)]
    for number, content in enumerate((jsonl(rows(b1())), odd, b""), 1):
        letta.conversation(
            content,
            ids if content else [],
            key=f"conversation:local-conv-{number}",
            created=f"2024-03-05T10:0{number}:00.000Z",
        )
    outcome = cli("sync", "--letta", letta.path)
    assert outcome.code == 0
    counts = {each["letta"]["id"]: each["messages"] for each in cli("conversations", "--json").json}
    assert counts == {"local-conv-1": 4, "local-conv-2": 4, "local-conv-3": 0}
    plain, strange = (
        [each["message"]["data"]["content"] for each in shown.json["messages"]]
        for shown in (cli("show", "local-conv-1", "--json"), cli("show", "local-conv-2", "--json"))
    )
    assert plain == strange
    assert cli("show", "local-conv-3").code == 0


def test_damage_from_outside_cannot_drive_the_terminal(cli: Cli, letta: Store) -> None:
    letta.conversation(_torn(), [], key="conversation:\x1b]0;x\x07\u202e")
    outcome = cli("sync", "--letta", letta.path)
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    assert "␛]0;x␇" in outcome.out


def test_o33_o34_another_machines_directories(cli: Cli, letta: Store, tmp_path: Path) -> None:
    places = [str(tmp_path / "gone" / "otter"), "C:\\Work\\Pear", "c:/Work/Pear"]
    for number, cwd in enumerate(places, 1):
        key = f"conversation:local-conv-{number}"
        made = [session(cwd, f"local-conv-{number}"), *rows(b1(), header=False)]
        letta.conversation(made, key=key, created=f"2024-03-05T10:0{number}:00.000Z")
    assert cli("sync", "--letta", letta.path).code == 0
    listed = cli("conversations", "--json").json
    assert {each["letta"]["id"]: each["cwd"] for each in listed} == {
        f"local-conv-{number}": cwd for number, cwd in enumerate(places, 1)
    }
    for each in listed:
        for name in (each["rkey"], each["uri"], each["letta"]["id"], each["letta"]["key"]):
            shown = cli("show", name, "--json")
            assert shown.code == 0
            assert shown.json["conversation"] == each
            assert len(shown.json["messages"]) == 4
        assert "worked in " + each["cwd"] in cli("show", each["rkey"]).out
    assert {each["rkey"] for each in cli("conversations", "--agent", AGENT, "--json").json} == {
        each["rkey"] for each in listed
    }


def test_lettas_own_directory_is_the_default(
    cli: Cli, letta: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    letta.conversation(rows(b1()))
    monkeypatch.setenv("LETTA_LOCAL_BACKEND_DIR", str(letta.path))
    assert cli("sync", "--json").json["directory"] == str(letta.path)
    status = cli("status", "--json").json
    assert status["letta"] == {
        "directory": str(letta.path),
        "exists": True,
        "conversations": 1,
        "toSync": 0,
    }
