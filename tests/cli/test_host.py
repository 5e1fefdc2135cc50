"""`lettaspace host`: backups that make the same host again, and signing everybody out."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lettaspace.server import logs, tables, vault
from lettaspace.server.backups import restore, save
from lettaspace.space.database import Database
from tests.cli.conftest import Cli
from tests.postgres import Postgres
from tests.server.hosts import Server, serving
from tests.server.parties import NOTE, SPACE, User


@pytest.fixture
def fresh(postgres: Postgres) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    with postgres.database() as name:
        yield postgres.url(name)


def contents(target: str) -> dict[str, list[tuple[object, ...]]]:
    with Database.open(target) as database, database.read() as connection:
        return {
            name: sorted(map(tuple, connection.execute(table.select())), key=repr)
            for name, table in tables.metadata.tables.items()
        }


def fill(server: Server) -> tuple[User, str]:
    mira = User(server, "mira")
    space = mira.create()
    for number in range(20):
        mira.write(space, f"note {number}", rkey=str(number))
    return mira, space


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_makes_the_same_host_again(
    kind: str, cli: Cli, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source, target = str(tmp_path / "host.db"), str(tmp_path / "again" / "host.db")
    if kind == "postgresql":
        source = request.getfixturevalue("postgres_url")
        target = request.getfixturevalue("fresh")
    file = tmp_path / "backup"
    with serving(source) as server:
        mira, space = fill(server)
        assert mira.token
        outcome = cli("host", "backup", file, "--database", source, "--json")
        size = file.stat().st_size
        assert outcome.json == {"file": str(file), "accounts": 1, "bytes": size}
        mira.write(space, "after the backup", rkey="late")
    assert file.stat().st_mode & 0o777 == 0o600
    outcome = cli("host", "restore", file, "--database", target, "--json")
    assert (outcome.code, outcome.json) == (0, {"file": str(file), "accounts": 1})
    assert contents(target)["accounts"] == contents(source)["accounts"]
    with serving(target) as server:
        # The same secrets, so who was signed in still is, if its address were the same.
        token = server.sign_in()["accessJwt"]
        where = {"space": space, "repo": mira.did, "collection": NOTE}
        answer = server.client.get(
            f"/xrpc/{SPACE}listRecords", params=where, headers={"authorization": f"Bearer {token}"}
        )
        assert {each["rkey"] for each in answer.json()["records"]} == set(map(str, range(20)))
    # Neither a backup nor a host is ever written over.
    before = file.read_bytes()
    again = cli("host", "backup", file, "--database", source)
    assert (again.code, file.read_bytes()) == (1, before)
    assert "is there already" in again.err
    again = cli("host", "restore", file, "--database", target)
    assert again.code == 1
    assert "already" in again.err
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []


def test_a_backup_while_it_is_written_to_is_one_moment(tmp_path: Path) -> None:
    with serving(tmp_path / "host.db") as server:
        mira, space = fill(server)
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                mira.write(space)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            files = [tmp_path / f"backup{number}" for number in range(3)]
            for file in files:
                save(tmp_path / "host.db", file)
        finally:
            over.set()
            thread.join()
    for file in files:
        copy = file.with_suffix(".db")
        assert restore(file, copy) == 1
        with serving(copy) as server:
            token = server.sign_in()["accessJwt"]
            headers = {"authorization": f"Bearer {token}"}
            where = {"space": space, "repo": mira.did}
            get = server.client.get
            ops = get(f"/xrpc/{SPACE}listRepoOps", params=where | {"limit": 1000}, headers=headers)
            commit = get(f"/xrpc/{SPACE}getLatestCommit", params=where, headers=headers)
            assert ops.json()["ops"][-1]["rev"] == commit.json()["commit"]["rev"]


@pytest.mark.parametrize("damage", ["not", "short", "other", "space", "absent", "directory"])
def test_what_is_not_restored(damage: str, cli: Cli, tmp_path: Path) -> None:
    file, target = tmp_path / "backup", tmp_path / "host.db"
    if damage == "not":
        file.write_bytes(b"a backup of something else " * 1000)
    elif damage == "short":
        with serving(tmp_path / "old.db") as server:
            fill(server)
        save(tmp_path / "old.db", file)
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
    elif damage == "other":
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE x (y)")
        connection.close()
    elif damage == "space":
        Database.open(file).close()
    elif damage == "directory":
        file.mkdir()
    outcome = cli("host", "restore", file, "--database", target)
    assert outcome.code == 1
    assert outcome.err.startswith("lettaspace: error: ")
    assert "unexpected" not in outcome.err
    assert not target.exists()
    assert [each for each in tmp_path.iterdir() if each.name.endswith(".tmp")] == []


def test_backups_of_what_is_no_host(cli: Cli, tmp_path: Path, fresh: str) -> None:
    Database.open(tmp_path / "space.db").close()
    for target in (str(tmp_path / "space.db"), str(tmp_path / "absent.db"), fresh):
        outcome = cli("host", "backup", tmp_path / "backup", "--database", target)
        assert outcome.code == 1
        assert "unexpected" not in outcome.err
        assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "absent.db").exists()


def test_without_the_programs_of_postgresql(
    cli: Cli, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database.open(postgres_url) as database:
        tables.prepare(database)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    outcome = cli("host", "backup", tmp_path / "backup", "--database", postgres_url)
    assert (outcome.code, "pg_dump" in outcome.err) == (1, True)
    assert not (tmp_path / "backup").exists()


def test_signing_out(cli: Cli, home: Path) -> None:
    with serving(home / "host.db") as server:
        mira, otto = User(server, "mira"), User(server, "otto")
        server.sign_in()

        def signed_in(user: User) -> bool:
            return user.get("com.atproto.server.getSession").status_code == 200

        assert cli("host", "sign-out", "mira.localhost", "--json").json == {"sessions": 2}
        assert (signed_in(mira), signed_in(otto)) == (False, True)
        assert cli("host", "sign-out", "--json").json == {"sessions": 1}
        assert (signed_in(mira), signed_in(otto)) == (False, False)
        assert cli("host", "sign-out", "nobody.localhost").code == 1
        server.sign_in()


def test_a_new_key(cli: Cli, home: Path) -> None:
    with serving(home / "host.db") as server:
        mira = User(server, "mira")
        before = server.host.document(mira.account)
        key = cli("account", "rekey", "mira.localhost", "--p256", "--json").json["key"]
        after = server.host.document(server.host.accounts.get(mira.did))
        assert before["verificationMethod"] != after["verificationMethod"]
        assert key == "did:key:" + after["verificationMethod"][0]["publicKeyMultibase"]
        assert server.host.accounts.signing_key(mira.did).verifying_key.did == key
        mira.delegate(mira.create())


def test_names_in_logs(cli: Cli, home: Path) -> None:
    with serving(home / "host.db") as server:
        mira = server.add_account("mira")
        name = logs.name(mira.did, vault.secret(server.host.database, logs.KEY))
        assert cli("host", "log-name", "mira.localhost").out == name + "\n"
        assert cli("host", "log-name", mira.did, "--json").json == {"did": mira.did, "name": name}
