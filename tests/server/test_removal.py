"""Removing an account: everything of its own goes, nothing of anybody else's."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Table, func, insert, select

from lettaspace.atproto.cid import CID
from lettaspace.atproto.keys import SigningKey
from lettaspace.server import tables
from lettaspace.server.accounts import Account, Accounts
from lettaspace.server.config import web_did
from lettaspace.server.removal import Holdings, holdings, removals, remove
from lettaspace.server.sessions import Sessions
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.writes import Create
from tests.server.hosts import NOW, PASSWORD, Clock

NOTE = "com.example.note"
TYPE = "com.example.lab"

MINE, SHARED, THEIRS, LOOSE = b"mine", b"shared", b"theirs", b"loose"


def add(accounts: Accounts, name: str) -> Account:
    did = web_did(f"{name}.example.com")
    key = SigningKey.generate()
    return accounts.add(f"{name}.example.com", did, password=PASSWORD, key=key)


def space_of(account: Account) -> str:
    return f"at://{account.did}/space/{TYPE}/self"


def write(database: Database, space: str, author: Account, *blobs: bytes) -> None:
    """A record that refers to these blobs."""
    repo = EmbeddedRepo(database, space, author.did, validate=lambda *_: None)
    cids = {CID.for_raw(blob): blob for blob in blobs}
    files = [
        {"$type": "blob", "ref": cid, "mimeType": "text/plain", "size": len(blob)}
        for cid, blob in cids.items()
    ]
    repo.apply_writes([Create(NOTE, "note", {"$type": NOTE, "files": files})], blobs=cids)


def upload(database: Database, account: Account, *blobs: bytes) -> None:
    """Blobs that no record refers to yet."""
    rows = [{"cid": bytes(CID.for_raw(blob)), "data": blob} for blob in blobs]
    with database.write() as connection:
        kept = set(connection.execute(select(schema.blobs.c.cid)).scalars())
        for row in rows:
            if row["cid"] not in kept:
                connection.execute(insert(schema.blobs).values(row))
            connection.execute(
                insert(tables.uploads).values(
                    account=account.id, cid=row["cid"], size=1, mime="text/plain", created_at=1
                )
            )


def govern(database: Database, account: Account, member: Account) -> str:
    space = space_of(account)
    with database.write() as connection:
        connection.execute(
            insert(tables.spaces).values(
                uri=space, authority=account.did, type=TYPE, skey="self", read_policy="{}",
                write_policy="{}", app_access="{}", created_at=1,
            )
        )  # fmt: skip
        connection.execute(
            insert(tables.members).values(space=space, did=member.did, read=True, write=True)
        )
        connection.execute(
            insert(tables.writers).values(
                space=space, did=member.did, repo_rev="r", hash=b"h", space_rev="s"
            )
        )
        connection.execute(
            insert(tables.registrations).values(space=space, service="did:web:s", expires_at=9)
        )
    return space


def count(database: Database, table: Table) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def everything(database: Database) -> dict[str, Any]:
    """Every row of every table but the notes of what was removed."""
    with database.read() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in (*schema.EVERYWHERE, *tables.metadata.sorted_tables)
            if table is not tables.removals
        }


@pytest.fixture
def otto(database: Database, accounts: Accounts, clock: Clock) -> Account:
    """Somebody who stays, with some of everything."""
    otto = add(accounts, "otto")
    anna = add(accounts, "anna")
    write(database, govern(database, otto, anna), otto, SHARED, THEIRS)
    upload(database, otto, LOOSE)
    accounts.add_app_password(otto, "laptop")
    Sessions(database, "did:web:host.example.com", clock).open(otto)
    return otto


def test_o61_all_that_is_its_own_goes_and_nothing_else(
    database: Database, accounts: Accounts, clock: Clock, otto: Account
) -> None:
    before = everything(database)
    mira = add(accounts, "mira")
    space = govern(database, mira, otto)
    write(database, space, mira, MINE, SHARED)
    write(database, space_of(otto), mira, b"in otto's space")
    upload(database, mira, LOOSE, b"never used")
    accounts.add_app_password(mira, "laptop")
    sessions = Sessions(database, "did:web:host.example.com", clock)
    sessions.open(mira)
    sessions.open(mira, "laptop")
    with database.write() as connection:
        connection.execute(
            insert(tables.outbox).values(
                space="at://x", repo=mira.did, rev="r", hash=b"h", next_at=1, deadline=2
            )
        )

    expected = Holdings(repos=2, records=2, blobs=3, spaces=1, app_passwords=1, sessions=2)
    assert holdings(database, mira) == expected
    assert everything(database) != before
    assert remove(database, mira, clock) == expected

    after = everything(database)
    tombstones = set(after["spaces"]) - set(before["spaces"])
    assert len(tombstones) == 1
    assert repr(int(NOW)) in tombstones.pop()
    after["spaces"] = before["spaces"]
    assert after == before
    assert accounts.by_did(mira.did) is None

    (removal,) = removals(database)
    assert (removal.handle, removal.did, removal.removed_at) == (mira.handle, mira.did, int(NOW))
    assert removal.what["records"] == 2


def test_o61_looking_removes_nothing(database: Database, accounts: Accounts, otto: Account) -> None:
    before = everything(database)
    assert holdings(database, otto) == Holdings(1, 1, 3, 1, 1, 1)
    assert everything(database) == before
    assert removals(database) == []


def test_a_name_can_be_had_again(
    database: Database, accounts: Accounts, clock: Clock, otto: Account
) -> None:
    remove(database, otto, clock)
    again = add(accounts, "otto")
    assert holdings(database, again) == Holdings(0, 0, 0, 0, 0, 0)
    write(database, space_of(again), again)
    assert holdings(database, again).records == 1
