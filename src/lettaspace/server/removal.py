"""Removing an account with everything that is its own: the one thing here that is for good.

What others wrote stays theirs, in whichever space, and so do the memberships that others gave.
That it was done, and how much went, is noted in the table `removals`.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from sqlalchemy import (
    Connection,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.sql import Select

from lettaspace.server import tables
from lettaspace.server.accounts import Account
from lettaspace.space import schema
from lettaspace.space.database import Database


@dataclass(frozen=True, slots=True)
class Holdings:
    """How many of each an account has here. `blobs` are those that nobody else refers to."""

    repos: int
    records: int
    blobs: int
    spaces: int
    app_passwords: int
    sessions: int


@dataclass(frozen=True, slots=True)
class Removal:
    """An account that was here. `removed_at` is in seconds since 1970."""

    did: str
    handle: str
    removed_at: int
    what: dict[str, int]


def holdings(database: Database, account: Account) -> Holdings:
    """What would be removed with the account."""
    with database.read() as connection:
        return _count(connection, account)


def remove(database: Database, account: Account, clock: Callable[[], float]) -> Holdings:
    """Removes the account: its repos, blobs, sessions, passwords and its key. Spaces that it
    governs become tombstones."""

    def work(connection: Connection) -> Holdings:
        for query in (
            select(tables.accounts.c.id).where(tables.accounts.c.id == account.id),
            _repos(account),
        ):
            connection.execute(query.with_for_update())  # whoever writes is waited for
        found = _count(connection, account)
        now = int(clock())
        _remove_repos(connection, account)
        _remove_spaces(connection, account, now)
        connection.execute(delete(tables.outbox).where(tables.outbox.c.repo == account.did))
        # Its app passwords, sessions and uploads go with it.
        connection.execute(delete(tables.accounts).where(tables.accounts.c.id == account.id))
        connection.execute(
            insert(tables.removals).values(
                did=account.did,
                handle=account.handle,
                what=json.dumps(asdict(found)),
                removed_at=now,
            )
        )
        return found

    return database.run(work)


def removals(database: Database) -> list[Removal]:
    """What was removed, in the order in which it was."""
    table = tables.removals
    with database.read() as connection:
        rows = connection.execute(select(table).order_by(table.c.id)).all()
    return [Removal(row.did, row.handle, row.removed_at, json.loads(row.what)) for row in rows]


def _repos(account: Account) -> "Select[tuple[int]]":
    return select(schema.repos.c.id).where(schema.repos.c.author == account.did)


def _records(account: Account) -> "Select[tuple[int]]":
    return select(schema.records.c.id).where(schema.records.c.repo.in_(_repos(account)))


def _blobs(account: Account) -> "Select[tuple[bytes]]":
    """The blobs that only this account refers to, or has uploaded."""
    records, cid = _records(account), schema.blobs.c.cid
    refs, uploads = schema.blob_refs.c, tables.uploads.c
    mine = or_(
        cid.in_(select(refs.cid).where(refs.record.in_(records))),
        cid.in_(select(uploads.cid).where(uploads.account == account.id)),
    )
    referred = exists().where(refs.cid == cid, refs.record.not_in(records))
    uploaded = exists().where(uploads.cid == cid, uploads.account != account.id)
    return select(cid).where(mine, ~referred, ~uploaded)


def _spaces(account: Account) -> "Select[tuple[str]]":
    spaces = tables.spaces.c
    return select(spaces.uri).where(spaces.authority == account.did, spaces.deleted_at.is_(None))


def _count(connection: Connection, account: Account) -> Holdings:
    of_account = [
        select(table.c.account).where(table.c.account == account.id)
        for table in (tables.app_passwords, tables.sessions)
    ]
    queries = (_repos(account), _records(account), _blobs(account), _spaces(account), *of_account)
    return Holdings(
        *(
            connection.execute(select(func.count()).select_from(query.subquery())).scalar_one()
            for query in queries
        )
    )


def _remove_repos(connection: Connection, account: Account) -> None:
    repos, records, blobs = _repos(account), _records(account), _blobs(account)
    connection.execute(delete(schema.blobs).where(schema.blobs.c.cid.in_(blobs)))
    connection.execute(delete(schema.blob_refs).where(schema.blob_refs.c.record.in_(records)))
    connection.execute(delete(schema.ops).where(schema.ops.c.repo.in_(repos)))
    connection.execute(delete(schema.records).where(schema.records.c.repo.in_(repos)))
    connection.execute(delete(schema.repos).where(schema.repos.c.author == account.did))


def _remove_spaces(connection: Connection, account: Account, now: int) -> None:
    spaces = _spaces(account)
    for table in (tables.members, tables.writers, tables.registrations):
        connection.execute(delete(table).where(table.c.space.in_(spaces)))
    own = tables.spaces.c.authority == account.did, tables.spaces.c.deleted_at.is_(None)
    connection.execute(update(tables.spaces).where(*own).values(deleted_at=now))
