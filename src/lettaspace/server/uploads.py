"""Blobs that accounts have uploaded: who may refer to which, and which nobody needs any more.

A blob is kept once, however many uploaded it. To refer to one, an account must have uploaded it
itself: whoever only knows the CID of another's blob does not get at it so. An upload ends when
no record of its account refers to it and it is older than `KEPT_SECONDS`; the blob, when no
upload and no record is left.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, exists, select
from sqlalchemy.dialects import postgresql, sqlite

from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_cid_string
from lettaspace.errors import InvalidRecord
from lettaspace.server.accounts import Account
from lettaspace.server.tables import accounts, uploads
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.statement import insert_new

KEPT_SECONDS: Final = 24 * 3600
"""How long an upload waits for a record that refers to it."""

_BATCH = 200

_MARK = b"\x68mimeType"  # what a blob object has in either form

_add_blob = insert_new(schema.blobs)

_blobs = schema.blobs.c
_refs = schema.blob_refs.c


def may_have_blobs(data: bytes) -> bool:
    """Whether a record with this encoding may have blob objects: a cheap way to pass over most
    of those that have none."""
    return _MARK in data


def blobs_in(value: Any) -> list[dict[str, Any]]:
    """The blob objects in a record, at any depth, with repetitions.

    Raises InvalidRecord for a blob object in the old form, just `cid` and `mimeType`.
    """
    found: list[dict[str, Any]] = []
    stack: list[Any] = [value]
    while stack:
        node = stack.pop()
        if type(node) is dict:
            fields: dict[str, Any] = node
            if fields.get("$type") == "blob":
                found.append(fields)  # the data model has nothing else of this type
            elif len(fields) == 2 and _is_legacy(fields):
                raise InvalidRecord("a blob is given in the old form; use the current one")
            else:
                stack += fields.values()
        elif type(node) is list:
            stack += node
    return found


def add(database: Database, account: Account, data: bytes, mime: str, now: float) -> CID:
    """Keeps a blob for an account. Its type is the one that it was last uploaded with."""
    cid = CID.for_raw(data)
    key = bytes(cid)
    row = {
        "account": account.id,
        "cid": key,
        "size": len(data),
        "mime": mime,
        "created_at": int(now),
    }

    def work(connection: Connection) -> None:
        # Locked, so that cleaning does not take it away; where it just did, once more.
        query = select(_blobs.cid).where(_blobs.cid == key)
        query = query.with_for_update(read=True, key_share=True)
        while True:
            _add_blob.run(connection, cid=key, data=data)
            if connection.execute(query).first() is not None:
                break
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        insert = dialect.insert(uploads).values(row)
        changed = {"mime": insert.excluded.mime, "created_at": insert.excluded.created_at}
        connection.execute(
            insert.on_conflict_do_update(index_elements=["account", "cid"], set_=changed)
        )

    database.run(work)
    return cid


def require(connection: Connection, account: Account, blobs: Sequence[Mapping[str, Any]]) -> None:
    """Raises InvalidRecord unless the account has uploaded each of the blob objects, with the
    size and the type it claims. They stay until the write transaction ends."""
    if not blobs:
        return
    keys = sorted({bytes(blob["ref"]) for blob in blobs})
    found: dict[bytes, tuple[int, str]] = {}
    for start in range(0, len(keys), _BATCH):
        query = (
            select(uploads.c.cid, uploads.c.size, uploads.c.mime)
            .where(uploads.c.account == account.id, uploads.c.cid.in_(keys[start : start + _BATCH]))
            .with_for_update(read=True, key_share=True)
        )
        found.update((cid, (size, mime)) for cid, size, mime in connection.execute(query))
    for blob in blobs:
        kept = found.get(bytes(blob["ref"]))
        if kept is None:
            raise InvalidRecord(f"blob {blob['ref']} was not uploaded")
        if kept[0] != blob["size"]:
            raise InvalidRecord(f"blob {blob['ref']} has {kept[0]} bytes, not {blob['size']}")
        if kept[1] != blob["mimeType"]:
            raise InvalidRecord(f"blob {blob['ref']} was uploaded with another mimeType")


def clean(database: Database, now: float) -> int:
    """Removes what nobody needs any more; how many blobs that were."""
    while database.run(lambda connection: _clean_uploads(connection, int(now) - KEPT_SECONDS)):
        pass
    total = 0
    while count := database.run(_clean_blobs):
        total += count
    return total


# Each first locks some rows, passing over those that a write is about to refer to, and then
# looks again, in a statement of its own, whether anything has referred to them meanwhile.


def _clean_uploads(connection: Connection, before: int) -> int:
    referred = exists().where(
        _refs.cid == uploads.c.cid,
        _refs.record == schema.records.c.id,
        schema.records.c.repo == schema.repos.c.id,
        schema.repos.c.author == accounts.c.did,
        accounts.c.id == uploads.c.account,
    )
    unused = uploads.c.created_at < before, ~referred
    rows = connection.execute(
        select(uploads.c.account, uploads.c.cid)
        .where(*unused)
        .limit(_BATCH)
        .with_for_update(skip_locked=True)
    ).all()
    count = 0
    for account, cid in rows:
        own = uploads.c.account == account, uploads.c.cid == cid
        count += connection.execute(delete(uploads).where(*own, *unused)).rowcount
    return count


def _clean_blobs(connection: Connection) -> int:
    unused = (
        ~exists().where(_refs.cid == _blobs.cid),
        ~exists().where(uploads.c.cid == _blobs.cid),
    )
    cids = list(
        connection.execute(
            select(_blobs.cid).where(*unused).limit(_BATCH).with_for_update(skip_locked=True)
        ).scalars()
    )
    return connection.execute(delete(schema.blobs).where(_blobs.cid.in_(cids), *unused)).rowcount


def _is_legacy(fields: Mapping[str, Any]) -> bool:
    return is_cid_string(fields.get("cid")) and type(fields.get("mimeType")) is str
