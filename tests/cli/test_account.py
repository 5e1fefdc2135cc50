"""`lettaspace account`."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from lettaspace.atproto.keys import SigningKey
from lettaspace.network.didweb import document
from lettaspace.network.documents import Document
from lettaspace.network.identity import IdentityError, Resolver
from tests.cli.conftest import Cli, process

HANDLE = "mira.example.com"
DID = "did:web:mira.example.com"
ORIGIN = "https://host.example.com"
PLC = "did:plc:" + "a" * 24
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _no_host_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE", "ORIGIN", "DEVELOPMENT"):
        monkeypatch.delenv(f"LETTASPACE_{name}", raising=False)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> BytesIO:
    """What is read from standard input."""
    stream = BytesIO()
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(stream))
    return stream


def give(stdin: BytesIO, text: str) -> None:
    stdin.seek(0)
    stdin.truncate()
    stdin.write(text.encode())
    stdin.seek(0)


def test_adding_and_listing(cli: Cli, home: Path) -> None:
    added = cli("account", "add", "@Mira.Example.com")
    assert added.code == 0
    lines = added.out.splitlines()
    assert lines[0] == f"Added {HANDLE}: {DID}"
    assert lines[1].startswith("Its key is did:key:zQ3s")
    assert re.fullmatch(r"Its password, shown this once: \S{24}", lines[2])
    mode = stat.S_IMODE((home / "host.db").stat().st_mode)
    assert mode == 0o600

    form = cli("account", "add", "otto.example.com", "--p256", "--json").json
    assert list(form) == ["handle", "did", "state", "createdAt", "key", "password"]
    assert form["key"].startswith("did:key:zDna")

    listed = cli("account", "list", "--json").json
    assert [each["handle"] for each in listed] == [HANDLE, "otto.example.com"]
    assert listed[1] == {name: form[name] for name in ("handle", "did", "state", "createdAt")}
    table = cli("account", "list").out.splitlines()
    assert table[0].split() == ["HANDLE", "STATE", "SINCE", "DID"]
    assert table[1].split()[0] == HANDLE

    assert cli("account", "add", HANDLE).code == 1
    assert cli("account", "add", HANDLE, "--json").json["error"] == "Conflict"
    assert cli("account", "add", "mira.localhost", "--json").json["error"] == "InvalidInput"


def test_a_handle_of_this_machine_has_the_hosts_port(cli: Cli) -> None:
    added = cli(
        "account", "add", "mira.localhost", "--development", "--origin", "http://localhost:7480",
        "--json",
    )  # fmt: skip
    assert added.json["did"] == "did:web:mira.localhost%3A7480"


@pytest.mark.parametrize(
    ("handle", "where"),
    [
        ("mira.localhost", ("--development",)),  # nobody would find it without the port
        ("mira.localhost", ("--development", "--origin", "http://localhost:7480/x")),
        ("mira.localhost", ("--development", "--origin", "ftp://localhost:7480")),
        (HANDLE, ("--origin", "http://host.example.com")),
    ],
)
def test_an_origin_that_no_host_has(cli: Cli, handle: str, where: tuple[str, ...]) -> None:
    refused = cli("account", "add", handle, *where)
    assert (refused.code, refused.out) == (1, "")
    assert "origin" in refused.err
    assert refused.err.count("\n") == 1
    assert cli("account", "list", "--json").json == []


def test_a_password_of_ones_own(cli: Cli, stdin: BytesIO) -> None:
    give(stdin, PASSWORD + "\n")
    added = cli("account", "add", HANDLE, "--password-stdin", "--json")
    assert "password" not in added.json
    assert PASSWORD not in added.out + added.err
    give(stdin, "short\n")
    refused = cli("account", "password", HANDLE, "--password-stdin")
    assert (refused.code, refused.out) == (1, "")
    assert "short" not in refused.err
    give(stdin, "another password")
    changed = cli("account", "password", HANDLE, "--password-stdin")
    assert changed.out == f"{HANDLE} has a new password.\n"
    made = cli("account", "password", HANDLE, "--json").json
    assert len(made["password"]) == 24
    assert cli("account", "password", "otto.example.com").code == 1


def test_a_password_is_no_argument(cli: Cli) -> None:
    for arguments in (("add", HANDLE, "--password", "x"), ("password", HANDLE, "secret-text")):
        outcome = cli("account", *arguments)
        assert outcome.code == 2


def test_app_passwords(cli: Cli) -> None:
    cli("account", "add", HANDLE)
    made = cli("account", "app-password", "add", HANDLE, "laptop", "--json").json
    assert re.fullmatch(r"[a-z2-7]{4}(-[a-z2-7]{4}){3}", made["password"])
    spoken = cli("account", "app-password", "add", HANDLE, "phone").out
    assert re.fullmatch(r"The app password phone, shown this once: [a-z2-7-]{19}\n", spoken)
    listed = cli("account", "app-password", "list", HANDLE, "--json")
    assert [each["name"] for each in listed.json] == ["laptop", "phone"]
    assert made["password"] not in listed.out
    assert "laptop" in cli("account", "app-password", "list", HANDLE).out
    assert cli("account", "app-password", "remove", HANDLE, "laptop").code == 0
    gone = cli("account", "app-password", "remove", HANDLE, "laptop", "--json")
    assert gone.json["error"] == "NotFound"


def test_states(cli: Cli) -> None:
    cli("account", "add", HANDLE)
    for state in ("takendown", "deactivated", "active"):
        assert cli("account", "state", HANDLE, state).out == f"{HANDLE} is {state}.\n"
        assert cli("account", "list", "--json").json[0]["state"] == state
    assert cli("account", "state", HANDLE, "deleted").code == 2


def test_o61_removing_is_confirmed_and_noted(cli: Cli) -> None:
    cli("account", "add", HANDLE)
    cli("account", "app-password", "add", HANDLE, "laptop")
    asked = cli("account", "remove", HANDLE)
    assert asked.code == 1
    assert asked.out.startswith(f"Would remove {HANDLE} ({DID}): 0 repos, 0 records, ")
    assert "1 app password," in asked.out
    assert "--yes" in asked.err
    assert len(cli("account", "list", "--json").json) == 1
    assert cli("account", "list", "--removed", "--json").json == []
    asked = cli("account", "remove", HANDLE, "--json")
    assert asked.json["error"] == "InvalidInput"

    done = cli("account", "remove", DID, "--yes", "--json").json
    assert list(done["removed"]) == [
        "repos", "records", "blobs", "spaces", "appPasswords", "sessions",
    ]  # fmt: skip
    assert done["removed"]["appPasswords"] == 1
    assert cli("account", "list", "--json").json == []
    (noted,) = cli("account", "list", "--removed", "--json").json
    assert (noted["handle"], noted["did"], noted["removed"]) == (HANDLE, DID, done["removed"])
    assert HANDLE in cli("account", "list", "--removed").out
    assert cli("account", "remove", HANDLE, "--yes").code == 1


@pytest.mark.parametrize("curve", [[], ["--p256"]])
def test_a_key_moves_to_another_host(cli: Cli, tmp_path: Path, curve: list[str]) -> None:
    added = cli("account", "add", HANDLE, *curve, "--json").json
    exported = cli("account", "key", HANDLE)
    assert exported.json["did"] == DID
    secret = SigningKey.from_bytes(
        exported.json["curve"], bytes.fromhex(exported.json["privateKey"])
    )
    assert secret.did == added["key"]
    file = tmp_path / "key.json"
    file.write_text(exported.out)
    elsewhere = ("--database", str(tmp_path / "other.db"))
    moved = cli("account", "add", HANDLE, "--key", file, *elsewhere, "--json").json
    assert moved["key"] == added["key"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"curve": "p256", "privateKey": "abc"}', '{"curve": 1, "privateKey": "00"}',
     json.dumps({"curve": "secp256k1", "privateKey": "f" * 64})],
)  # fmt: skip
def test_files_that_hold_no_key(cli: Cli, tmp_path: Path, content: str) -> None:
    file = tmp_path / "key.json"
    file.write_text(content)
    refused = cli("account", "add", HANDLE, "--key", file)
    assert refused.code == 1
    assert "does not hold a key" in refused.err
    assert cli("account", "add", HANDLE, "--key", tmp_path / "none").code == 1
    assert cli("account", "list", "--json").json == []


class Documents:
    """Stands for the network: what a DID's document says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.key = SigningKey.generate()
        self.form = document(PLC, ORIGIN, self.key.verifying_key, handle=HANDLE)
        monkeypatch.setattr(Resolver, "document", self._document)

    def _document(self, did: str) -> Document:
        if did != PLC:
            raise IdentityError("cannot be reached", transient=True)
        return Document.read(self.form, did)


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> Documents:
    return Documents(monkeypatch)


def test_a_did_of_ones_own(cli: Cli, documents: Documents, tmp_path: Path) -> None:
    add = ("account", "add", HANDLE, "--did", PLC, "--origin", ORIGIN)
    added = cli(*add, "--json").json
    assert (added["did"], added["published"]) == (PLC, False)
    spoken = cli(*add, "--database", str(tmp_path / "a.db")).out
    assert "names another key" in spoken

    file = tmp_path / "key.json"
    secret = documents.key.to_bytes().hex()
    file.write_text(json.dumps({"curve": "secp256k1", "privateKey": secret}))
    other = ("--key", str(file), "--database", str(tmp_path / "b.db"), "--json")
    assert cli(*add, *other).json["published"] is True


@pytest.mark.parametrize(
    ("did", "origin", "says"),
    [
        (PLC, "https://other.example.com", "names another host"),
        ("did:web:gone.example.com", ORIGIN, "cannot be reached"),
        (PLC, None, "--origin"),
    ],
)
def test_a_did_that_is_not_here(
    cli: Cli, documents: Documents, did: str, origin: str | None, says: str
) -> None:
    where = () if origin is None else ("--origin", origin)
    refused = cli("account", "add", HANDLE, "--did", did, *where)
    assert refused.code == 1
    assert says in refused.err
    assert "--no-check" in refused.err
    added = cli("account", "add", HANDLE, "--did", did, *where, "--no-check", "--json").json
    assert added["did"] == did
    assert "published" not in added


def test_a_document_that_names_another_handle_or_no_host(cli: Cli, documents: Documents) -> None:
    add = ("account", "add", HANDLE, "--did", PLC, "--origin", ORIGIN)
    documents.form["alsoKnownAs"] = ["at://otto.example.com"]
    assert "does not name the handle" in cli(*add).err
    documents.form["service"] = []
    assert "no service" in cli(*add).err
    assert cli("account", "list", "--json").json == []


def test_another_database(cli: Cli, home: Path, postgres_url: str) -> None:
    database = ("--database", postgres_url)
    cli("account", "add", HANDLE, *database)
    assert len(cli("account", "list", *database, "--json").json) == 1
    assert not home.exists()
    outcome = process("account", "list", "--json", env={"LETTASPACE_DATABASE": postgres_url})
    assert len(outcome.json) == 1


def test_a_databases_password_is_not_repeated(cli: Cli) -> None:
    url = "postgresql://host:secret-text@127.0.0.1:1/host"
    outcome = cli("account", "list", "--database", url, "--json")
    assert outcome.code == 1
    assert "secret-text" not in outcome.out + outcome.err
    assert os.environ.get("LETTASPACE_DATABASE") is None
