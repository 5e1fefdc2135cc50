"""Pages of a repo's records, by path or by path backwards.

The order is that of the paths, COLLECTION/RKEY, byte by byte. It is not the order of the pairs:
of a collection and one whose name is that name and a dot and more, the longer one comes first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Integer, bindparam, func, select

from lettaspace.atproto.syntax import is_nsid, is_record_key
from lettaspace.server.errors import XrpcError
from lettaspace.space import schema
from lettaspace.space.statement import Statement

MAX_VALUES: Final = 8 * 1024 * 1024
"""Bytes of records, encoded, after which a page ends though more were asked for."""

_CHUNK = 50
"""Records that are read at once with their values, each of which may be a megabyte."""

_ABOVE_ALL = "\x7f"

_records = schema.records.c


class Row(NamedTuple):
    """A record as it is stored. `value` is empty if it was not asked for."""

    collection: str
    rkey: str
    cid: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Row]
    is_full: bool
    """Whether it ended before the records did, or might have."""


class Position(NamedTuple):
    """Where a page ended."""

    collection: str
    rkey: str

    @classmethod
    def parse(cls, cursor: str, prefix: str) -> "Position":
        """What a cursor means: the URI of a record, which begins with the repo's.

        Raises XrpcError, MalformedCursor.
        """
        collection, _, rkey = cursor.removeprefix(prefix).partition("/")
        if not (cursor.startswith(prefix) and is_nsid(collection) and is_record_key(rkey)):
            raise XrpcError("MalformedCursor", "this is no cursor of this repo")
        return cls(collection, rkey)


def read_page(
    connection: Connection,
    repo: int,
    *,
    collection: str | None,
    after: Position | None,
    limit: int,
    ascending: bool,
    values: bool,
) -> Page:
    """At most `limit` records of one collection or of all, strictly after a position."""
    rows: list[Row] = []
    size = 0
    for row in _rows(connection, repo, collection, after, limit, ascending, values):
        rows.append(row)
        size += len(row.value)
        if len(rows) == limit or size >= MAX_VALUES:
            return Page(rows, is_full=True)
    return Page(rows, is_full=False)


def _rows(
    connection: Connection,
    repo: int,
    collection: str | None,
    after: Position | None,
    limit: int,
    ascending: bool,
    values: bool,
) -> Iterator[Row]:
    names = [collection] if collection is not None else _collections(connection, repo)
    size = min(limit, _CHUNK) if values else limit
    statement = _STATEMENTS[ascending, values]
    for name in sorted(names, key=_order, reverse=not ascending):
        start = "" if ascending else _ABOVE_ALL
        if after is not None:
            if name == after.collection:
                start = after.rkey
            elif (_order(name) < _order(after.collection)) is ascending:
                continue
        while True:
            found = statement.all(connection, repo=repo, collection=name, start=start, size=size)
            for rkey, cid, *value in found:
                yield Row(name, rkey, cid, value[0] if value else b"")
            if len(found) < size:
                break
            start = found[-1][0]


def _order(collection: str) -> str:
    return collection + "/"


def _page_statement(*, ascending: bool, values: bool) -> Statement:
    columns: list[Any] = [_records.rkey, _records.cid]
    if values:
        columns.append(_records.value)
    start: ColumnElement[str] = bindparam("start")
    return Statement(
        lambda: (
            select(*columns)
            .where(
                _records.repo == bindparam("repo"),
                _records.collection == bindparam("collection"),
                _records.rkey > start if ascending else _records.rkey < start,
            )
            .order_by(_records.rkey if ascending else _records.rkey.desc())
            .limit(bindparam("size", type_=Integer))
        )
    )


_STATEMENTS = {
    (ascending, values): _page_statement(ascending=ascending, values=values)
    for ascending in (True, False)
    for values in (True, False)
}


def _collections(connection: Connection, repo: int) -> list[str]:
    # From one to the next: a repo has few collections, and many records in each.
    first = select(func.min(_records.collection).label("name")).where(_records.repo == repo)
    found = first.cte("found", recursive=True)
    following = (
        select(func.min(_records.collection))
        .where(_records.repo == repo, _records.collection > found.c.name)
        .scalar_subquery()
    )
    found = found.union_all(select(following).where(found.c.name.is_not(None)))
    query = select(found.c.name).where(found.c.name.is_not(None))
    return list(connection.execute(query).scalars())
