"""The repos of a store that a host has as well, and which of them is our own.

A home has at most one of its own: that of the account whose author writes here. The others are
members' repos, which are only read. All functions that take a connection work in its transaction.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from lettaspace.atproto.syntax import is_did
from lettaspace.conversation.records import default_space
from lettaspace.errors import Conflict, InvalidInput
from lettaspace.space import schema
from lettaspace.space.database import Database

_repos = schema.repos.c
_replicas = schema.replicas.c


@dataclass(frozen=True, slots=True)
class Replica:
    """A repo that is here and at a host. Times are seconds since 1970."""

    repo: int
    """Its row in `repos`."""
    space: str
    author: str
    own: bool
    """Its author writes here."""
    host: str
    """The host's origin."""
    signing_key: str | None
    """The did:key that the author's commits are signed with."""
    rev: str | None
    """The host's revision as it is known; None where it is not."""
    set_hash: bytes
    """The state of the host's set hash at `rev`."""
    pushed: str | None
    """Up to which revision of ours all that is here is there."""
    synced_at: int | None
    problem: str | None
    """What has gone wrong since then."""
    problem_since: int | None


def own(connection: Connection) -> Replica | None:
    """The repo of the account that writes here; None while the home's own key does."""
    row = connection.execute(_query.where(_replicas.own)).one_or_none()
    return None if row is None else _replica(row)


def find(connection: Connection, space: str, author: str) -> Replica | None:
    """The replica of an author's repo in a space."""
    row = connection.execute(_query.where(*_named(space, author))).one_or_none()
    return None if row is None else _replica(row)


def members(connection: Connection) -> list[Replica]:
    """The replicas of others' repos, by space and author."""
    query = _query.where(~_replicas.own).order_by(_repos.space, _repos.author)
    return [_replica(row) for row in connection.execute(query)]


def attach(
    database: Database,
    did: str,
    host: str,
    *,
    space: str | None = None,
    signing_key: str | None = None,
) -> Replica:
    """Makes an account the one that writes in a store that has no records of its own yet.

    Where it is that already, only host and key are noted. The space is the account's default
    one unless given. A `Space` that is open has to be opened anew.

    Raises Conflict where another account writes, or the home's own key has written.
    """
    database.require_sqlite("a replica")
    space = space or str(default_space(did))
    with database.write() as connection:
        if refuse_others(connection, did, space) is None and has_local_records(connection):
            raise Conflict(
                "this home has conversations of its own already; "
                "`lettaspace adopt` takes them over into the account"
            )
        made = put(connection, space, did, host, own=True, signing_key=signing_key)
        drop_empty_repos(connection)
        return made


def attach_empty(database: Database, did: str, host: str) -> None:
    """`attach`, where nobody writes yet; a store that anybody has written in stays as it is, but
    that the account has moved to another host is noted."""
    with database.read() as connection:
        found = own(connection)
        if found is None and has_local_records(connection):
            return
    if found is None or (found.author == did and found.host != host):
        attach(database, did, host, space=None if found is None else found.space)


def detach_empty(database: Database) -> None:
    """Takes back an `attach` that came to nothing: where neither the account nor any member has
    a record here, the home belongs to nobody again."""
    with database.write() as connection:
        if connection.execute(select(schema.records.c.id).limit(1)).first() is None:
            for table in (schema.held, schema.mirror_blobs, schema.mirror, schema.replicas):
                connection.execute(delete(table))


def add_member(
    database: Database, space: str, did: str, host: str, *, signing_key: str | None = None
) -> Replica:
    """Makes room for another author's repo, which is only read here; where there is some
    already, only host and key are noted. Raises Conflict for whoever writes here."""
    database.require_sqlite("a replica")
    with database.write() as connection:
        found = find(connection, space, did)
        if found.own if found else repo_of(connection, space, did) is not None:
            raise Conflict(f"{did} writes here, and is no other member")
        return put(connection, space, did, host, own=False, signing_key=signing_key)


def put(
    connection: Connection,
    space: str,
    did: str,
    host: str,
    *,
    own: bool,
    signing_key: str | None = None,
) -> Replica:
    """Notes that a repo is at a host, and makes the repo where it is not here yet. What is known
    of the one at the host stays. Raises InvalidInput for what is no DID."""
    if not is_did(did):
        raise InvalidInput(f"not a DID: {did}")
    connection.execute(
        insert(schema.repos)
        .values(space=space, author=did, set_hash=schema.EMPTY_SET_HASH)
        .on_conflict_do_nothing()
    )
    given = {"own": own, "host": host}
    if signing_key is not None:
        given["signing_key"] = signing_key
    connection.execute(
        insert(schema.replicas)
        .values(repo=repo_of(connection, space, did), set_hash=schema.EMPTY_SET_HASH, **given)
        .on_conflict_do_update(index_elements=["repo"], set_=given)
    )
    return _replica(connection.execute(_query.where(*_named(space, did))).one())


def note(connection: Connection, repo: int, **columns: Any) -> None:
    """Sets columns of a replica's row."""
    connection.execute(update(schema.replicas).where(_replicas.repo == repo).values(**columns))


def note_synced(connection: Connection, repo: int, at: int) -> None:
    """Here and at the host is the same (`at` in seconds since 1970); no problem is left."""
    note(connection, repo, synced_at=at, problem=None, problem_since=None)


def note_problem(connection: Connection, repo: int, problem: str, at: int) -> None:
    """What is wrong now; since when stays that of the first problem."""
    since = func.coalesce(_replicas.problem_since, at)
    note(connection, repo, problem=problem, problem_since=since)


def refuse_others(connection: Connection, did: str, space: str) -> Replica | None:
    """The own replica, if there is one. Raises Conflict where that is not this account's in
    this space."""
    found = own(connection)
    if found is not None and (found.author, found.space) != (did, space):
        raise Conflict(taken(found, did))
    return found


def taken(replica: Replica, did: str) -> str:
    """Why a home with this own replica is not another account's."""
    return (
        f"this home is {replica.author}'s, in {replica.space}; "
        f"for {did} take another one (lettaspace --home DIR ...)"
    )


def has_local_records(connection: Connection) -> bool:
    """Whether records were written here that are in no account's repo."""
    query = select(schema.records.c.id).where(schema.records.c.repo.in_(_local)).limit(1)
    return connection.execute(query).first() is not None


def drop_empty_repos(connection: Connection) -> None:
    """Removes the repos that hold nothing and no host has: whoever has one open finds it gone,
    and does not write where nobody would look. A repo that takes its place has to be there
    before, or it would get the same number."""
    stored = select(schema.records.c.id).where(schema.records.c.repo == _repos.id)
    for repo in connection.execute(_local.where(~stored.exists())).scalars().all():
        for table in (schema.ops, schema.sources, schema.synced):
            connection.execute(delete(table).where(table.c.repo == repo))
        connection.execute(delete(schema.repos).where(_repos.id == repo))


def repo_of(connection: Connection, space: str, author: str) -> int | None:
    """The row of an author's repo in a space; None where it is not here."""
    found: int | None = connection.execute(select(_repos.id).where(*_named(space, author))).scalar()
    return found


_query = select(schema.replicas, _repos.space, _repos.author).join(
    schema.repos, _repos.id == _replicas.repo
)
_local = select(_repos.id).where(_repos.id.not_in(select(_replicas.repo)))


def _named(space: str, author: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _repos.space == space, _repos.author == author


def _replica(row: Row[Any]) -> Replica:
    return Replica(**row._mapping)
