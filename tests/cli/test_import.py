"""`import` as people and programs meet it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lettaspace import Space, UserMessage
from lettaspace.conversation.records import NAMESPACE
from lettaspace.export.archive import write_archive
from lettaspace.letta.importer import import_directory
from tests.cli.conftest import Cli, process


@pytest.fixture
def archive(demo_home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "space.car"
    with Space.open(demo_home) as space:
        write_archive(space, path)
    return path


def test_into_a_new_home(demo_home: Path, archive: Path, home: Path, cli: Cli) -> None:
    outcome = cli("import", archive)
    assert outcome.code == 0
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert lines[0] == f"Imported {archive}"
    assert lines[1].split() == ["CREATED", "UPDATED", "UNCHANGED", "KEPT"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:7]}
    assert rows["message"] == ["27", "0", "0", "0"]
    assert rows["conversation"] == ["4", "0", "0", "0"]
    with Space.open(demo_home) as space:
        assert lines[-1].startswith(f"They were records of {space.identity.did};")
    assert cli("verify").code == 0
    assert "4 conversations, 27 messages" in cli("status").out
    again = cli("import", archive).out
    assert again.splitlines()[2].split()[1:3] == ["0", "0"]


def test_into_the_home_of_the_same_identity(
    demo_home: Path, archive: Path, home: Path, cli: Cli
) -> None:
    home.mkdir()
    shutil.copy2(demo_home / "identity.json", home)
    result = cli("import", archive, "--json").json
    assert result["readdressed"] is False
    with Space.open(home) as ours, Space.open(demo_home) as theirs:
        assert ours.repo.set_hash().digest() == theirs.repo.set_hash().digest()


def test_json(demo_home: Path, archive: Path, cli: Cli) -> None:
    result = cli("import", archive, "--json").json
    assert list(result) == [
        "archive",
        "space",
        "author",
        "rev",
        "readdressed",
        "dryRun",
        "collections",
        "keptConversations",
        "mixedConversations",
    ]
    assert result["archive"] == str(archive)
    assert result["collections"][f"{NAMESPACE}.message"] == {
        "created": 27,
        "updated": 0,
        "unchanged": 0,
        "kept": 0,
    }
    with Space.open(demo_home) as space:
        assert (result["author"], result["space"]) == (space.identity.did, str(space.ref))
        assert result["rev"] == space.repo.rev()
    assert (result["readdressed"], result["dryRun"]) == (True, False)
    assert (result["keptConversations"], result["mixedConversations"]) == ([], [])


def test_a_dry_run_leaves_a_new_home_alone(archive: Path, home: Path, cli: Cli) -> None:
    outcome = cli("import", archive, "--dry-run")
    assert outcome.code == 0
    assert outcome.out.startswith("Would import ")
    assert not home.exists()
    result = cli("import", archive, "--dry-run", "--json").json
    assert result["collections"][f"{NAMESPACE}.message"]["created"] == 27
    cli("import", archive)
    again = cli("import", archive, "--dry-run", "--json").json
    assert again["collections"][f"{NAMESPACE}.message"]["unchanged"] == 27


def test_a_dry_run_knows_the_identity_that_is_there(
    demo_home: Path, archive: Path, home: Path, cli: Cli
) -> None:
    home.mkdir()
    shutil.copy2(demo_home / "identity.json", home)
    assert cli("import", archive, "--dry-run", "--json").json["readdressed"] is False
    assert [each.name for each in home.iterdir()] == ["identity.json"]


def test_what_differs_is_said(home: Path, archive: Path, cli: Cli, tmp_path: Path) -> None:
    cli("import", archive)
    with Space.open(home) as space:
        info = next(each for each in space.conversations() if each.messages)
        space.conversation(info.rkey).append(UserMessage.text("mine"))
    other = tmp_path / "other"
    shutil.copytree(home, other)
    with Space.open(other) as space:
        space.conversation(info.rkey).append(UserMessage.text("theirs"))
        write_archive(space, archive)
    with Space.open(home) as space:
        space.conversation(info.rkey).append(UserMessage.text("mine again"))
    outcome = cli("import", archive)
    assert outcome.code == 0
    assert outcome.out.endswith(
        f"! 1 conversation with messages of both; `verify` names shared seqs: {info.rkey}\n"
    )
    assert "is on 2 messages" in cli("verify").out


def test_letta_history_meets_itself(archive: Path, home: Path, cli: Cli, tmp_path: Path) -> None:
    from lettaspace.demo import write_directory

    write_directory(tmp_path / "letta")
    with Space.open(home) as space:
        import_directory(space, tmp_path / "letta")
    counts = cli("import", archive, "--json").json["collections"].values()
    assert {each["unchanged"] > 0 and not each["created"] for each in counts} == {True}


def spoil_the_end(data: bytes) -> bytes:
    return data[:-1]


def spoil_the_middle(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def replace(_data: bytes) -> bytes:
    return b"not an archive at all"


@pytest.mark.parametrize("spoil", [spoil_the_end, spoil_the_middle, replace])
def test_a_bad_file_is_one_line_and_writes_nothing(
    archive: Path, home: Path, cli: Cli, spoil: Callable[[bytes], bytes]
) -> None:
    archive.write_bytes(spoil(archive.read_bytes()))
    outcome = cli("import", archive)
    assert outcome.code == 1
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"lettaspace: error: {archive} is not a whole archive of a space: ")
    assert not home.exists()
    assert cli("import", archive, "--json").json["error"] in ("InvalidInput", "Damaged")


def test_no_file(home: Path, cli: Cli, tmp_path: Path) -> None:
    outcome = cli("import", tmp_path / "none.car")
    assert outcome.code == 1
    assert outcome.err == f"lettaspace: error: no file {tmp_path / 'none.car'}\n"
    assert not home.exists()
    assert cli("import").code == 2


def test_as_a_process(archive: Path, home: Path) -> None:
    outcome = process("--home", home, "import", archive)
    assert (outcome.code, outcome.err) == (0, "")
    assert process("import", "--help").out.startswith("Usage: lettaspace import [OPTIONS] FILE.car")
