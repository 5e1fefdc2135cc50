"""`up`, `status`, `verify`, and the demo."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from lettaspace.demo import write_directory
from lettaspace.letta.importer import import_directory
from tests.cli.conftest import Cli, process
from tests.letta.build import Store, b1, rows


@pytest.fixture(autouse=True)
def _no_letta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def _bytes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_without_letta_there_is_a_demo(cli: Cli, home: Path) -> None:
    first = cli("up", "--once")
    assert (first.code, first.err) == (0, "")
    assert "There is no Letta Code directory at " in first.out
    assert "your own space was not touched" in first.out
    assert f"lettaspace --home {home}/demo conversations" in first.out
    assert [each.name for each in home.iterdir()] == ["demo"]
    second = cli("up", "--once", "--json").json
    assert second["demo"] is True
    assert second["home"] == str(home / "demo")
    assert (second["agents"], second["conversations"], second["messages"]) == (2, 4, 27)
    assert second["sync"]["outcomes"] == {"unchanged": 4}
    assert second["sync"]["messages"]["new"] == 0
    assert second["sync"]["incomplete"] is False


def test_what_up_says_next_works(cli: Cli, tmp_path: Path) -> None:
    said = cli("up", "--once").out.partition("Next:\n")[2].splitlines()
    commands = [line.split() for line in said if "--home" in line]
    assert len(commands) == 3
    for command in commands:
        assert command[0] == "lettaspace"
        assert process(*command[1:]).code == 0


def test_the_demo_leaves_ones_own_space_alone(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    assert cli("up", "--once", "--letta", store.path).code == 0
    before = {name: state for name, state in _bytes(home).items() if "demo" not in name}
    assert cli("up", "--once", "--json").json["demo"] is True
    after = {name: state for name, state in _bytes(home).items() if not name.startswith("demo")}
    assert after == before
    assert len(cli("conversations", "--json").json) == 1


def test_with_letta_there_is_no_demo(
    cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "user" / ".letta" / "lc-local-backend")
    store.agent()
    store.conversation(rows(b1()))
    outcome = cli("up", "--once")
    assert outcome.code == 0
    assert "1 conversation with 4 messages" in outcome.out
    assert "  lettaspace conversations\n" in outcome.out
    assert not (home / "demo").exists()
    assert (home / "space.db").exists()


def test_status_without_a_space(cli: Cli, home: Path) -> None:
    status = cli("status", "--json").json
    assert list(status) == ["version", "home", "exists", "letta", "remote"]
    assert status["exists"] is False
    assert status["letta"]["exists"] is False
    assert "none yet" in cli("status").out
    assert not home.exists()


def test_status_counts_what_is_not_in_the_space_yet(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    assert cli("status", "--letta", store.path, "--json").json["letta"]["toSync"] == 1
    assert cli("sync", "--letta", store.path).code == 0
    status = cli("status", "--letta", store.path, "--json").json
    assert list(status) == [
        "version", "home", "exists", "did", "space", "rev", "lastWrite", "agents", "conversations",
        "messages", "active", "incomplete", "letta", "remote",
    ]  # fmt: skip
    assert status["letta"]["toSync"] == 0
    assert (status["conversations"], status["messages"], status["active"]) == (1, 4, 4)
    assert status["did"].startswith("did:key:z")
    assert "all of its 1 conversations are in the space" in cli("status", "--letta", store.path).out
    store.conversation(rows(b1()[:2]), key="conversation:local-conv-2")
    assert cli("status", "--letta", store.path, "--json").json["letta"]["toSync"] == 1


def test_nothing_shows_the_key(cli: Cli, home: Path) -> None:
    assert cli("up", "--once").code == 0
    key = (home / "demo" / "identity.json").read_text().split('"privateKey": "')[1][:64]
    for command in ("status", "up --once", "conversations", "agents", "verify"):
        for more in ([], ["--json"]):
            outcome = process("--home", home / "demo", *command.split(), *more)
            assert key not in outcome.out + outcome.err


def test_verify_of_the_demo(demo: Cli) -> None:
    outcome = demo("verify")
    assert (outcome.code, outcome.out) == (0, "Everything is as it should be.\n")
    assert demo("verify", "--json").json == []


def test_the_demo_is_the_same_everywhere(tmp_path: Path) -> None:
    hashes = []
    for name in ("a", "b"):
        write_directory(tmp_path / name)
        hashes.append(_bytes(tmp_path / name))
    assert hashes[0] == hashes[1]
    before = hashes[0]
    write_directory(tmp_path / "a")
    assert _bytes(tmp_path / "a") == before


def test_the_demo_is_read_without_findings(tmp_path: Path) -> None:
    write_directory(tmp_path / "letta")
    with Space.open(tmp_path / "home") as space:
        report = import_directory(space, tmp_path / "letta", strict=True)
        assert list(report.lines()) == []
        shown = [
            [message.seq for message in space.window(each.uri).messages]
            for each in space.conversations()
        ]
        assert sorted(map(len, shown)) == [0, 4, 7, 10]
        picture = next(
            part
            for each in space.conversations()
            for message in space.transcript(each.uri)
            for part in message.payload()["content"]
            if part["type"] == "image"
        )
    assert base64.b64decode(picture["data"]).startswith(b"\x89PNG")
