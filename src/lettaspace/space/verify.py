"""Checks a repo against itself: every record, the set hash, the oplog, the blobs.

Nothing is changed. Everything is read in one snapshot, streamed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.errors import InvalidInput, InvalidRecord
from lettaspace.space import schema
from lettaspace.space.statement import Statement
from lettaspace.space.writes import Validate

Progress = Callable[[str, int, int], None]
"""Told what is being checked, how much of it is done, and how much there is."""

_PAGE = 1000

_records = schema.records.c
_ops = schema.ops.c

_noted = Statement(
    lambda: select(schema.blob_refs.c.cid).where(schema.blob_refs.c.record == bindparam("record"))
)
_has_blob = Statement(
    lambda: select(schema.blobs.c.cid).where(schema.blobs.c.cid == bindparam("cid"))
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be. Never holds message content."""

    kind: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.where}: {self.detail} [{self.kind}]"

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "where": self.where, "detail": self.detail}


def repo_problems(
    connection: Connection, repo: int, validate: Validate, progress: Progress
) -> Iterator[Problem]:
    """What is wrong with a repo's records, set hash and oplog."""
    from lettaspace.space.sethash import SetHash, element  # numpy: not for every command

    head = connection.execute(select(schema.repos).where(schema.repos.c.id == repo)).one()
    of_repo = select(func.count()).where(_records.repo == repo)
    total = connection.execute(of_repo).scalar_one()
    set_hash = SetHash()
    for done, row in enumerate(_all_records(connection, repo), 1):
        where = f"{row.collection}/{row.rkey}"
        cid = CID.from_bytes(row.cid)
        set_hash.add(element(row.collection, row.rkey, str(cid)))
        yield from _record_problems(connection, row.id, where, cid, row.value, validate)
        progress("records", done, total)
    if set_hash.state != head.set_hash:
        yield Problem(
            "set-hash", head.space, "the stored set hash is not that of the stored records"
        )
    yield from _oplog_problems(connection, repo, head.rev)


def blob_problems(connection: Connection, progress: Progress) -> Iterator[Problem]:
    """What is wrong with the stored blobs themselves."""
    total = connection.execute(select(func.count()).select_from(schema.blobs)).scalar_one()
    cids = connection.execute(select(schema.blobs.c.cid)).scalars().all()
    for done, raw in enumerate(cids, 1):
        data = connection.execute(
            select(schema.blobs.c.data).where(schema.blobs.c.cid == raw)
        ).scalar_one()
        if bytes(CID.for_raw(data)) != raw:
            yield Problem("blob", f"blob {CID.from_bytes(raw)}", "its bytes do not match its CID")
        progress("blobs", done, total)


def _all_records(connection: Connection, repo: int) -> Iterator[Row[Any]]:
    last = 0
    while True:
        rows = connection.execute(
            select(schema.records)
            .where(_records.repo == repo, _records.id > last)
            .order_by(_records.id)
            .limit(_PAGE)
        ).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1].id


def _record_problems(
    connection: Connection, record: int, where: str, cid: CID, data: bytes, validate: Validate
) -> Iterator[Problem]:
    if CID.for_cbor(data) != cid:
        yield Problem("cid", where, f"its bytes do not match its CID {cid}")
    try:
        value = cbor.decode(data)
    except InvalidInput as error:
        yield Problem("encoding", where, str(error))
        return
    collection, _, rkey = where.partition("/")
    try:
        if not isinstance(value, dict) or value.get("$type") != collection:
            raise InvalidRecord("its $type is not its collection")
        validate(collection, rkey, value)
    except InvalidRecord as error:
        yield Problem("lexicon", where, str(error))
    referred = set(blob_refs(value))
    noted = {CID.from_bytes(raw) for (raw,) in _noted.all(connection, record=record)}
    if referred != noted:
        yield Problem("blob-refs", where, "the blobs it refers to are not those noted for it")
    for blob in referred:
        if _has_blob.one(connection, cid=bytes(blob)) is None:
            yield Problem("missing-blob", where, f"blob {blob} is not stored")


def _oplog_problems(connection: Connection, repo: int, rev: str | None) -> Iterator[Problem]:
    """The log, folded, must give the records: for each key its last entry is what is stored."""
    newest = connection.execute(select(func.max(_ops.rev)).where(_ops.repo == repo)).scalar()
    if newest != rev:
        yield Problem("rev", "oplog", f"its last revision is {newest}, the repo's is {rev}")
    logged = _last_of_each(
        connection.execute(
            select(_ops.collection, _ops.rkey, _ops.cid)
            .where(_ops.repo == repo)
            .order_by(_ops.collection, _ops.rkey, _ops.rev, _ops.idx)
            .execution_options(yield_per=_PAGE)
        )
    )
    stored = connection.execute(
        select(_records.collection, _records.rkey, _records.cid)
        .where(_records.repo == repo)
        .order_by(_records.collection, _records.rkey)
        .execution_options(yield_per=_PAGE)
    )
    for key, in_log, in_store in _side_by_side(logged, ((row[0:2], row[2]) for row in stored)):
        if in_log is _ABSENT:
            yield Problem("oplog", "/".join(key), "no log entry tells of it")
        elif in_log != (None if in_store is _ABSENT else in_store):
            yield Problem("oplog", "/".join(key), "its last log entry is not what is stored")


_Key = tuple[str, str]
_Entry = tuple[_Key, bytes | None]

_ABSENT = b""


def _last_of_each(rows: Iterable[Any]) -> Iterator[_Entry]:
    key: _Key | None = None
    cid: bytes | None = None
    for row in rows:
        if key is not None and key != row[0:2]:
            yield key, cid
        key, cid = row[0:2], row[2]
    if key is not None:
        yield key, cid


def _side_by_side(
    left: Iterable[_Entry], right: Iterable[_Entry]
) -> Iterator[tuple[_Key, bytes | None, bytes | None]]:
    """Pairs two streams sorted by key; `_ABSENT` where one of them lacks a key."""
    ours, theirs = iter(left), iter(right)
    a, b = next(ours, None), next(theirs, None)
    while a is not None or b is not None:
        if a is not None and (b is None or a[0] < b[0]):
            yield a[0], a[1], _ABSENT
            a = next(ours, None)
        elif b is not None and (a is None or b[0] < a[0]):
            yield b[0], _ABSENT, b[1]
            b = next(theirs, None)
        elif a is not None and b is not None:
            yield a[0], a[1], b[1]
            a, b = next(ours, None), next(theirs, None)
