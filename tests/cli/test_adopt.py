"""`lettaspace adopt`, and `--author` on the commands that read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lettaspace import Space
from lettaspace.conversation.records import Address
from lettaspace.remote.account import Account
from lettaspace.remote.adopting import BACKUP
from lettaspace.remote.probe import Capabilities
from tests.cli.conftest import Cli, process
from tests.conformance.kit import user
from tests.export.spaces import fill

MIRA = "did:plc:mira2mira2mira2mira2mira"
BOB = "did:web:bob.example"
READING = ("conversations", "agents", "show", "prompt", "usage", "search", "export")


def sign_in(home: Path, handle: str | None = "mira.example") -> None:
    known = Capabilities(generation=None, delegates=True, leaks_blobs=None)
    Account(home, MIRA, handle, "https://host.example", "password", False, known).save()


@pytest.fixture
def full(home: Path) -> Path:
    with Space.open(home) as space:
        fill(space)
    return home


def test_nobody_is_signed_in(cli: Cli, full: Path) -> None:
    done = cli("adopt")
    assert done.code == 1
    assert done.err == "lettaspace: error: nobody is signed in here; `lettaspace login` does that\n"
    assert cli("adopt", "--json").json["error"] == "SignedOut"
    assert {each.name for each in full.iterdir()} & {BACKUP} == set()


def test_there_is_no_space(cli: Cli, home: Path) -> None:
    home.mkdir()
    sign_in(home)
    done = cli("adopt")
    assert (done.code, done.out) == (1, "")
    assert "no space at" in done.err


def test_a_dry_run_then_the_real_one(cli: Cli, full: Path) -> None:
    sign_in(full)
    key = cli("status", "--json").json["did"]
    before = cli("conversations", "--json").json
    told = cli("adopt", "--dry-run")
    assert told.code == 0
    assert told.out == (
        "Would move 1 agent, 4 conversations, 29 messages, 2 prompts and 6 other records\n"
        f"  from  at://{key}/space/xyz.quasigod.lab.letta.space/self\n"
        f"  to    at://{MIRA}/space/xyz.quasigod.lab.letta.space/self\n"
    )
    assert cli("status", "--json").json["did"] == key
    done = cli("adopt")
    moved = told.out.replace("Would move", "Moved")
    assert done.out == f"{moved}The store as it was is in {full / BACKUP}\n"
    assert cli("status", "--json").json["did"] == MIRA
    # What forks left is another version of the same record now.
    without = [{**each, "forkedFrom": None} for each in before]
    after = [{**each, "forkedFrom": None} for each in cli("conversations", "--json").json]
    assert after == json.loads(json.dumps(without).replace(key, MIRA))
    again = cli("adopt")
    assert (again.code, again.out) == (0, f"Everything here is mira.example ({MIRA})'s already.\n")
    assert cli("verify").code == 0


def test_the_shape(cli: Cli, full: Path) -> None:
    sign_in(full, None)
    done = cli("adopt", "--no-backup", "--json")
    assert done.code == 0
    assert list(done.json) == ["old", "new", "dryRun", "already", "records", "known", "backup"]
    assert done.json["records"]["xyz.quasigod.lab.letta.message"] == 29
    assert (done.json["dryRun"], done.json["already"], done.json["backup"]) == (False, False, None)
    assert not (full / BACKUP).exists()
    again = cli("adopt", "--json").json
    assert (again["already"], again["records"]) == (True, {})
    assert cli("adopt").out == f"Everything here is {MIRA}'s already.\n"


def test_it_goes_nowhere(full: Path) -> None:
    """Adopting is local: nothing that talks to a host is loaded."""
    sign_in(full)
    code = (
        "import sys\n"
        "from lettaspace.cli.run import run\n"
        "code = run(sys.argv[1:])\n"
        "print(*({'httpx', 'keyring', 'authlib', 'socket'} & set(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    done = process("--home", full, "adopt", "--json", code=code)
    assert done.code == 0
    assert not {"httpx", "keyring", "authlib"} & set(done.out.splitlines()[-1].split())


# What other members wrote.


@pytest.fixture
def shared(full: Path) -> Path:
    with Space.open(full) as space:
        bob = Space(full, space.identity, space.database, Address(space.ref, BOB))
        talk = bob.create_conversation(bob.create_agent("Heron", key="heron"), title="Bob's jars")
        talk.append(user("a jar of Bob's"))
    return full


def test_lists_of_an_author(cli: Cli, shared: Path) -> None:
    (talk,) = cli("conversations", "--author", BOB, "--json").json
    assert (talk["title"], talk["messages"]) == ("Bob's jars", 1)
    assert f"/{BOB}/" in talk["uri"]
    mine = cli("conversations", "--json").json
    assert len(mine) == 4
    assert talk["rkey"] not in [each["rkey"] for each in mine]
    assert [each["name"] for each in cli("agents", "--author", BOB, "--json").json] == ["Heron"]
    assert [each["name"] for each in cli("agents", "--json").json] == ["Otter"]
    did = cli("status", "--json").json["did"]
    assert cli("conversations", "--author", did, "--json").json == mine


def test_reading_what_an_author_wrote(cli: Cli, shared: Path) -> None:
    (talk,) = cli("conversations", "--author", BOB, "--json").json
    shown = cli("show", talk["rkey"], "--author", BOB)
    assert (shown.code, "a jar of Bob's" in shown.out) == (0, True)
    assert cli("show", talk["rkey"]).code == 1
    exported = cli("export", talk["rkey"], "--author", BOB)
    assert (exported.code, "a jar of Bob's" in exported.out) == (0, True)
    assert "no compiled prompt" in cli("prompt", talk["rkey"], "--author", BOB).err
    assert cli("usage", "--author", BOB).out == "No usage is known.\n"


def test_hits_say_whose_they_are(cli: Cli, shared: Path) -> None:
    found = cli("search", "jar of Bob")
    assert found.out.splitlines()[0].endswith(f"#1 user  by {BOB}  Bob's jars")
    assert cli("search", "jars 1").out.count(" by ") == 0
    hits = cli("search", "jar", "--author", BOB, "--json").json
    assert (hits["total"], len(hits["hits"])) == (1, 1)
    assert cli("search", "jar", "--json").json["total"] > 1


@pytest.mark.parametrize("command", READING)
def test_an_author_of_whom_nothing_is_here(cli: Cli, shared: Path, command: str) -> None:
    names = {"show": ["x"], "prompt": ["x"], "search": ["x"], "export": ["x"]}
    done = cli(command, *names.get(command, []), "--author", "did:web:eve.example")
    assert done.code == 1
    assert "did:web:eve.example has no repo in at://" in done.err


def test_only_ones_own_space_is_archived(cli: Cli, shared: Path, tmp_path: Path) -> None:
    done = cli("export", "--space", tmp_path / "x.car", "--author", BOB)
    assert (done.code, (tmp_path / "x.car").exists()) == (2, False)
