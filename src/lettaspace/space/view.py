"""One consistent view of a repo: the reading half, inside somebody's transaction."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, and_, bindparam, or_, select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.errors import NotFound
from lettaspace.space import schema
from lettaspace.space.statement import Statement
from lettaspace.space.writes import Op, Record

# Rows that are asked for at once. SQLite binds at most 32,766 variables in one statement, and
# PostgreSQL's driver holds all of an answer in memory.
_PAGE = 500

_records = schema.records.c
_ops = schema.ops.c

_named = (
    _records.repo == bindparam("repo"),
    _records.collection == bindparam("collection"),
    _records.rkey == bindparam("rkey"),
)
_get = Statement(lambda: select(_records.cid, _records.value).where(*_named))
_get_cid = Statement(lambda: select(_records.cid).where(*_named))


class View:
    """Implements `writes.Reader` on an open connection."""

    def __init__(self, connection: Connection, repo: int) -> None:
        self.connection = connection
        self.repo = repo

    def get(self, collection: str, rkey: str) -> Record | None:
        row = _get.one(self.connection, repo=self.repo, collection=collection, rkey=rkey)
        if row is None:
            return None
        cid, value = row
        return _record(collection, rkey, cid, value)

    def has(self, collection: str, rkey: str) -> bool:
        """Whether there is such a record."""
        return (
            _get_cid.one(self.connection, repo=self.repo, collection=collection, rkey=rkey)
            is not None
        )

    def cids(self, collection: str, rkeys: Sequence[str]) -> dict[str, CID]:
        found: dict[str, CID] = {}
        for start in range(0, len(rkeys), _PAGE):
            rows = self.connection.execute(
                select(_records.rkey, _records.cid).where(
                    _records.repo == self.repo,
                    _records.collection == collection,
                    _records.rkey.in_(rkeys[start : start + _PAGE]),
                )
            )
            found.update((row.rkey, CID.from_bytes(row.cid)) for row in rows)
        return found

    def records(
        self, collection: str, *, after: str | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        query = (
            select(_records.rkey, _records.cid, _records.value)
            .where(_records.repo == self.repo, _records.collection == collection)
            .order_by(_records.rkey)
        )
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(left, _PAGE)
            part = query if after is None else query.where(_records.rkey > after)
            rows = self.connection.execute(part.limit(size)).all()
            for rkey, cid, value in rows:
                yield _record(collection, rkey, cid, value)
            if len(rows) < size:
                return
            after = rows[-1].rkey
            left = None if left is None else left - size

    def get_blob(self, cid: CID) -> bytes:
        data = self.connection.execute(
            select(schema.blobs.c.data).where(schema.blobs.c.cid == bytes(cid))
        ).scalar()
        if data is None:
            raise NotFound(f"no blob {cid}")
        return bytes(data)

    def ops(self, after: tuple[str, int], limit: int) -> Iterator[Op]:
        """Oplog entries strictly after the position (revision, index)."""
        rev, index = after
        rows = self.connection.execute(
            select(schema.ops)
            .where(
                _ops.repo == self.repo,
                _ops.rev >= rev,  # without this, SQLite reads the log from its start
                or_(_ops.rev > rev, and_(_ops.rev == rev, _ops.idx > index)),
            )
            .order_by(_ops.rev, _ops.idx)
            .limit(limit)
        )
        for row in rows:
            yield Op(
                row.rev,
                row.idx,
                row.collection,
                row.rkey,
                None if row.cid is None else CID.from_bytes(row.cid),
                None if row.prev is None else CID.from_bytes(row.prev),
            )


def _record(collection: str, rkey: str, cid: bytes, value: bytes) -> Record:
    return Record(collection, rkey, CID.from_bytes(cid), cbor.decode(value, checked=True))
