"""The repos of this host: found, written to, and emptied."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from lettaspace.atproto.tid import TidClock
from lettaspace.errors import NotFound
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.repo import Committing, EmbeddedRepo
from lettaspace.space.statement import Statement
from lettaspace.space.view import View
from lettaspace.space.writes import Write, Written

_CACHED = 4096

_head = Statement(
    lambda: select(schema.repos.c.id, schema.repos.c.rev, schema.repos.c.set_hash).where(
        schema.repos.c.space == bindparam("space"), schema.repos.c.author == bindparam("did")
    )
)


class Head(NamedTuple):
    """A repo that was written to: its row, its newest rev, and the state of its set hash."""

    id: int
    rev: str
    set_hash: bytes


class Repos:
    """Finds repos in a database. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._tids = TidClock(lambda: int(clock() * 1e9))
        self._open: OrderedDict[tuple[str, str], EmbeddedRepo] = OrderedDict()

    def new_key(self) -> str:
        """A TID that no record has."""
        return self._tids.mint()

    def write(
        self,
        space: str,
        did: str,
        plan: Callable[[View], Sequence[Write]],
        committing: Committing | None = None,
    ) -> list[Written]:
        """Writes what `plan` decides, all or nothing; see `writes.Repo.transact`."""
        repo = self._get(space, did)
        try:
            return repo.transact(plan, committing=committing, together=True)
        except NotFound:
            if self._forget_removed(repo):
                return self._get(space, did).transact(plan, committing=committing, together=True)
            raise

    def _get(self, space: str, did: str) -> EmbeddedRepo:
        repo = self._open.get((space, did))
        if repo is None:
            repo = EmbeddedRepo(
                self._database, space, did, validate=_was_validated, clock=self._tids
            )
            self._open[space, did] = repo
            if len(self._open) > _CACHED:
                self._open.popitem(last=False)
        return repo

    def _forget_removed(self, repo: EmbeddedRepo) -> bool:
        """Whether the repo's row is gone, as happens when its account is removed."""
        with self._database.read() as connection:
            row = _head.one(connection, space=repo.space, did=repo.author)
        if row is not None and row[0] == repo.id:
            return False
        self._open.pop((repo.space, repo.author), None)
        return True


def head(connection: Connection, space: str, did: str) -> Head | None:
    """The repo of an account in a space, None if it was never written to."""
    row = _head.one(connection, space=space, did=did)
    return None if row is None or row[1] is None else Head(*row)


def empty(connection: Connection, space: str, did: str) -> None:
    """Removes all that the account has written in the space, in a write transaction: as if it
    had never written there. Blobs that nothing refers to any more go with the next cleaning."""
    repo = select(schema.repos.c.id).where(
        schema.repos.c.space == space, schema.repos.c.author == did
    )
    number = connection.execute(repo.with_for_update()).scalar()
    if number is None:
        return
    records = select(schema.records.c.id).where(schema.records.c.repo == number)
    for table, rows in (
        (schema.blob_refs, schema.blob_refs.c.record.in_(records)),
        (schema.ops, schema.ops.c.repo == number),
        (schema.records, schema.records.c.repo == number),
    ):
        connection.execute(delete(table).where(rows))
    # The row stays: whoever has found the repo already goes on writing to it.
    connection.execute(
        update(schema.repos)
        .where(schema.repos.c.id == number)
        .values(rev=None, set_hash=schema.EMPTY_SET_HASH)
    )


def _was_validated(_collection: str, _rkey: str, _value: dict[str, Any]) -> None:
    """Records are validated before the transaction begins."""
