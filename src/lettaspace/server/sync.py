"""com.atproto.space: how others keep a copy of a repo.

Whatever an answer says of a repo it says of one moment: commit, log and records are read in one
transaction, which no writer waits for. Source: protocol, section 3.
"""

import re
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Integer, and_, bindparam, delete, exists, func, or_, select
from sqlalchemy.sql import ColumnElement

from lettaspace.atproto import cbor, commit
from lettaspace.atproto.cid import CID
from lettaspace.server import access, callers, repos
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.pages import MAX_VALUES
from lettaspace.server.repos import Head
from lettaspace.server.sessions import Session
from lettaspace.server.waiting import Subject, Wait
from lettaspace.space import schema
from lettaspace.space.car import repo_car
from lettaspace.space.database import Database
from lettaspace.space.sethash import SetHash
from lettaspace.space.statement import Row, Statement
from lettaspace.space.view import View

CAR: Final = "application/vnd.ipld.car"

DOWNLOADS: Final = 8
"""Repos that a process sends at once. Each holds a connection to the database meanwhile."""

OPS_KEPT: Final = 100_000
"""Entries of a repo's log that are kept at least."""

_CHUNK = 50
_SLICE = 5000

_ops = schema.ops.c
_records = schema.records.c

_cursor = re.compile(r"([2-7a-j][2-7a-z]{12})/([0-9]{1,9})").fullmatch


def register(host: Host) -> None:
    downloads = threading.BoundedSemaphore(DOWNLOADS)
    space = "com.atproto.space."
    host.add(space + "getLatestCommit", get_latest_commit, gate=callers.reader)
    host.add(space + "listRepoOps", list_repo_ops, gate=callers.reader, hold=wait_for_ops)
    host.add(
        space + "getRepo",
        lambda host, call: get_repo(host, call, downloads),
        gate=callers.reader,
    )


def get_latest_commit(host: Host, call: Call) -> Answer:
    space, did = _readable(host, call)
    with host.database.read() as connection:
        head = _written(repos.head(connection, space, did))
    return Answer({"commit": _commit(host, space, did, head)})


def get_repo(host: Host, call: Call, downloads: threading.BoundedSemaphore) -> Answer:
    space, did = _readable(host, call)
    with host.database.read() as connection:
        _written(repos.head(connection, space, did))
    key = host.accounts.signing_key(did)
    values = not call.params["excludeValues"]

    def pieces() -> Iterator[bytes]:
        if not downloads.acquire(blocking=False):
            raise XrpcError("NotEnoughResources", "too many downloads at once; try again")
        try:
            with host.database.read() as connection:
                head = _written(repos.head(connection, space, did))
                yield from repo_car(View(connection, head.id), key, values=values)
        finally:
            downloads.release()

    return Answer.raw(pieces(), CAR)


def list_repo_ops(host: Host, call: Call) -> Answer:
    params = call.params
    space, did = _readable(host, call)
    after = _position(params.get("cursor"))
    since: str = params.get("since", "")
    if after < (since, _PAST_ALL):
        after = since, _PAST_ALL
    with host.database.read() as connection:
        head = repos.head(connection, space, did)
        if head is None:
            return Answer({"ops": []})
        rows, is_full = _read_ops(
            connection, head.id, after, params["limit"], values=not params["excludeValues"]
        )
    answer: dict[str, Any] = {"ops": [_op(row) for row in rows]}
    if is_full:
        answer["cursor"] = f"{rows[-1][0]}/{rows[-1][1]}"
    else:
        answer["commit"] = _commit(host, space, did, head)
    return Answer(answer)


def wait_for_ops(host: Host, call: Call) -> Wait | None:
    """Waits for more of the log than an account's own client knows. Whoever comes with a
    credential is told of writes in other ways."""
    if not isinstance(call.caller, Session) or "cursor" in call.params:
        return None
    subject = Subject(*_readable(host, call), call.params.get("since"))
    return partial(host.waiting.until_news, subject)


def compact_ops(database: Database, repo: int, keep: int = OPS_KEPT) -> int:
    """Removes old entries of a repo's log: all but the newest `keep`, and those that tell of a
    record as it is now. So the log has at most so many entries, and one for each record.

    Who asks from before what was removed notices by the hash, and gets the whole repo. Returns
    how many entries were removed.
    """
    with database.read() as connection:
        bound = connection.execute(
            select(_ops.rev)
            .where(_ops.repo == repo)
            .order_by(_ops.rev.desc(), _ops.idx.desc())
            .offset(keep)
            .limit(1)
        ).scalar()
    total, last = 0, ""
    while bound is not None and last < bound:
        # In pieces, so that writers do not wait long.
        count, last = database.run(partial(_compact, repo=repo, last=last, bound=bound))
        total += count
    return total


def compact_all(database: Database, keep: int = OPS_KEPT) -> int:
    """`compact_ops` for every repo whose log is longer than that."""
    query = select(_ops.repo).group_by(_ops.repo).having(func.count() > keep)
    with database.read() as connection:
        found = list(connection.execute(query).scalars())
    return sum(compact_ops(database, repo, keep) for repo in found)


def _compact(connection: Connection, repo: int, last: str, bound: str) -> tuple[int, str]:
    end = connection.execute(
        select(_ops.rev)
        .where(_ops.repo == repo, _ops.rev > last, _ops.rev <= bound)
        .order_by(_ops.rev, _ops.idx)
        .offset(_SLICE)
        .limit(1)
    ).scalar()
    end = bound if end is None else end
    current = exists().where(
        _records.repo == repo,
        _records.collection == _ops.collection,
        _records.rkey == _ops.rkey,
        _records.rev == _ops.rev,
    )
    gone = connection.execute(
        delete(schema.ops).where(
            _ops.repo == repo, _ops.rev > last, _ops.rev <= end, _ops.rev < bound, ~current
        )
    )
    return gone.rowcount, end


def _readable(host: Host, call: Call) -> tuple[str, str]:
    """Space and account of the repo that is asked for, which the caller may read."""
    space, did = call.params["space"], call.params["repo"]
    access.read(host, call.caller, space, did)
    return space, did


def _written(head: Head | None) -> Head:
    if head is None:
        raise XrpcError("RepoNotFound", "no such repo")
    return head


def _commit(host: Host, space: str, did: str, head: Head) -> dict[str, Any]:
    """A commit for this answer alone."""
    digest = SetHash(head.set_hash).digest()
    return commit.sign(host.accounts.signing_key(did), space, did, head.rev, digest).to_value()


# The log

_Position = tuple[str, int]

_PAST_ALL = (1 << 31) - 1
"""Above every index of a batch."""


def _position(cursor: str | None) -> _Position:
    if cursor is None:
        return "", 0
    match = _cursor(cursor)
    if match is None or int(match[2]) > _PAST_ALL:
        raise XrpcError("MalformedCursor", "this is no cursor of a log")
    return match[1], int(match[2])


def _ops_statement(*, values: bool) -> Statement:
    rev: ColumnElement[str] = bindparam("rev")
    index = bindparam("index", type_=Integer)
    columns: list[ColumnElement[Any]] = [
        _ops.rev,
        _ops.idx,
        _ops.collection,
        _ops.rkey,
        _ops.cid,
        _ops.prev,
    ]
    source: Any = schema.ops
    if values:
        columns.append(_records.value)
        # Only what is stored now has a value: the record that this entry wrote.
        source = schema.ops.outerjoin(
            schema.records,
            and_(
                _records.repo == _ops.repo,
                _records.collection == _ops.collection,
                _records.rkey == _ops.rkey,
                _records.rev == _ops.rev,
                _records.cid == _ops.cid,
            ),
        )
    return Statement(
        lambda: (
            select(*columns)
            .select_from(source)
            .where(
                _ops.repo == bindparam("repo"),
                _ops.rev >= rev,  # without this, SQLite reads the log from its start
                or_(_ops.rev > rev, and_(_ops.rev == rev, _ops.idx > index)),
            )
            .order_by(_ops.rev, _ops.idx)
            .limit(bindparam("size", type_=Integer))
        )
    )


_WITH_VALUES = _ops_statement(values=True)
_WITHOUT_VALUES = _ops_statement(values=False)


def _read_ops(
    connection: Connection, repo: int, after: _Position, limit: int, *, values: bool
) -> tuple[list[Row], bool]:
    """Entries of the log strictly after a position, and whether there may be more."""
    rows: list[Row] = []
    size = 0
    statement = _WITH_VALUES if values else _WITHOUT_VALUES
    chunk = min(limit, _CHUNK) if values else limit
    while True:
        found = statement.all(connection, repo=repo, rev=after[0], index=after[1], size=chunk)
        for row in found:
            rows.append(row)
            size += len(row[6] or b"") if values else 0
            if len(rows) == limit or size >= MAX_VALUES:
                return rows, True
        if len(found) < chunk:
            return rows, False
        after = found[-1][0], found[-1][1]


def _op(row: Row) -> dict[str, Any]:
    rev, _, collection, rkey, cid, prev, *value = row
    op: dict[str, Any] = {
        "rev": rev,
        "collection": collection,
        "rkey": rkey,
        "cid": None if cid is None else str(CID.from_bytes(cid)),
        "prev": None if prev is None else str(CID.from_bytes(prev)),
    }
    if value and value[0] is not None:
        op["value"] = cbor.decode(value[0])
    return op
