"""One atomic batch of writes, worked out in memory and then stored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Integer, bindparam, delete, func, insert, select, update

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.atproto.syntax import is_nsid, is_record_key
from lettaspace.atproto.tid import TidClock
from lettaspace.errors import Conflict, InvalidInput, InvalidRecord, NotFound
from lettaspace.space import schema
from lettaspace.space.projection import Change
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.statement import Statement, insert_new
from lettaspace.space.writes import (
    MAX_WRITES,
    Create,
    Delete,
    Validate,
    Value,
    Write,
    Written,
)

_records = schema.records.c
_id = _records.id == bindparam("key")

_find = Statement(
    lambda: select(_records.id, _records.cid).where(
        _records.repo == bindparam("repo"),
        _records.collection == bindparam("collection"),
        _records.rkey == bindparam("rkey"),
    )
)
_value = Statement(lambda: select(_records.value).where(_id))
_top = Statement(lambda: select(func.max(_records.id)))
_next_ids = Statement(
    lambda: select(schema.record_ids.next_value()).select_from(
        func.generate_series(1, bindparam("count", type_=Integer))
    )
)
_insert = insert_new(schema.records)
_update = Statement(
    lambda: (
        update(schema.records)
        .where(_id)
        .values(cid=bindparam("new_cid"), rev=bindparam("new_rev"), value=bindparam("new_value"))
    )
)
_delete = Statement(lambda: delete(schema.records).where(_id))
_log = Statement(lambda: insert(schema.ops))
_add_blob = insert_new(schema.blobs)
_forget_blobs = Statement(
    lambda: delete(schema.blob_refs).where(schema.blob_refs.c.record == bindparam("key"))
)
_refer_to_blob = Statement(lambda: insert(schema.blob_refs))

# What every record that holds a blob object has in its CBOR: a cheap way to pass over the rest.
BLOB_MARK = b"\x65$type\x64blob"


@dataclass(slots=True)
class _Slot:
    """One key touched by the batch: what was stored, and what will be."""

    collection: str
    rkey: str
    id: int | None = None
    cid: CID | None = None
    value: Value | None = None
    data: bytes = b""


class Batch:
    """Applies writes in order, later ones seeing earlier ones; `store` makes them real."""

    def __init__(
        self, connection: Connection, repo: int, set_hash: SetHash, validate: Validate
    ) -> None:
        self.set_hash = set_hash
        self.changes: list[Change] = []
        self._connection = connection
        self._repo = repo
        self._validate = validate
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._ops: list[dict[str, Any]] = []
        self._blobs: Mapping[CID, bytes] = {}

    def run(
        self, writes: Sequence[Write], blobs: Mapping[CID, bytes], clock: TidClock
    ) -> list[Written]:
        if len(writes) > MAX_WRITES:
            raise InvalidInput(
                f"too many writes in one batch: {len(writes)} (at most {MAX_WRITES})"
            )
        self._blobs = blobs
        keys = [
            (write.collection, clock.mint() if write.rkey is None else write.rkey)
            for write in writes
        ]
        self._load(writes, keys)
        return [
            self._apply(write, self._slots[key]) for write, key in zip(writes, keys, strict=True)
        ]

    def _load(self, writes: Sequence[Write], keys: Sequence[tuple[str, str]]) -> None:
        for write, (collection, rkey) in zip(writes, keys, strict=True):
            if not is_nsid(collection):
                raise InvalidInput(f"not a collection: {collection!r}")
            if not is_record_key(rkey):
                raise InvalidInput(f"{collection}: not a record key: {rkey!r}")
            slot = self._slots.setdefault((collection, rkey), _Slot(collection, rkey))
            # A record to be created is taken not to be there: the table's own constraint
            # tells if it is, and most batches only create.
            if slot.id is None and not isinstance(write, Create):
                self._find(slot)

    def _find(self, slot: _Slot) -> bool:
        found = _find.one(
            self._connection, repo=self._repo, collection=slot.collection, rkey=slot.rkey
        )
        if found is None:
            return False
        slot.id, slot.cid = found[0], CID.from_bytes(found[1])
        return True

    def _apply(self, write: Write, slot: _Slot) -> Written:
        where = f"{slot.collection}/{slot.rkey}"
        if isinstance(write, Create):
            if slot.cid is not None:
                raise Conflict(f"{where} exists already")
        elif slot.cid is None:
            raise NotFound(f"{where} does not exist")
        elif write.expected is not None and write.expected != slot.cid:
            raise Conflict(f"{where} has CID {slot.cid}, not {write.expected}")

        prev = slot.cid
        if isinstance(write, Delete):
            slot.cid, slot.value, slot.data = None, None, b""
        else:
            value = write.value if write.data else {"$type": slot.collection, **write.value}
            self._validate(slot.collection, slot.rkey, value)
            slot.value, slot.data = value, write.data or cbor.encode(value)
            slot.cid = CID.for_cbor(slot.data)
        if prev is not None:
            self.set_hash.remove(element(slot.collection, slot.rkey, str(prev)))
        if slot.cid is not None:
            self.set_hash.add(element(slot.collection, slot.rkey, str(slot.cid)))
        self._ops.append(
            {
                "repo": self._repo,
                "idx": len(self._ops),
                "collection": slot.collection,
                "rkey": slot.rkey,
                "cid": None if slot.cid is None else bytes(slot.cid),
                "prev": None if prev is None else bytes(prev),
            }
        )
        return Written(slot.collection, slot.rkey, slot.cid)

    def store(self, rev: str) -> None:
        """Writes records, blobs and oplog as revision `rev`; fills `changes`."""
        connection = self._connection
        touched = list(self._slots.values())
        created = [slot for slot in touched if slot.id is None and slot.cid is not None]
        updated = [slot for slot in touched if slot.id is not None and slot.cid is not None]
        deleted = [slot for slot in touched if slot.id is not None and slot.cid is None]

        self.changes = [
            *(self._change(slot, self._old(slot), None) for slot in deleted),
            *(self._change(slot, self._old(slot), slot.value) for slot in updated),
        ]
        if created:
            for slot, number in zip(created, _fresh_ids(connection, len(created)), strict=True):
                slot.id = number
            self._insert(created, rev)
            self.changes += [self._change(slot, None, slot.value) for slot in created]
        _update.many(
            connection,
            [
                {
                    "key": slot.id,
                    "new_cid": bytes(slot.cid or b""),
                    "new_rev": rev,
                    "new_value": slot.data,
                }
                for slot in updated
            ],
        )
        _delete.many(connection, [{"key": slot.id} for slot in deleted])
        _log.many(connection, [{**op, "rev": rev} for op in self._ops])
        self._store_blobs(created + updated, updated + deleted)

    def _insert(self, created: Sequence[_Slot], rev: str) -> None:
        rows = (
            {
                "id": slot.id,
                "repo": self._repo,
                "collection": slot.collection,
                "rkey": slot.rkey,
                "cid": bytes(slot.cid or b""),
                "rev": rev,
                "value": slot.data,
            }
            for slot in created
        )
        if _insert.many(self._connection, rows) == len(created):
            return
        for slot in created:
            number = slot.id
            if self._find(slot) and slot.id != number:
                raise Conflict(f"{slot.collection}/{slot.rkey} exists already")
        raise RuntimeError("records were not stored, and nothing stands in their place")

    def _change(self, slot: _Slot, old: Value | None, new: Value | None) -> Change:
        return Change(slot.id or 0, slot.collection, slot.rkey, old, new)

    def _old(self, slot: _Slot) -> Value:
        value: Value = cbor.decode(_value.only(self._connection, key=slot.id)[0])
        return value

    def _store_blobs(self, present: Sequence[_Slot], outdated: Sequence[_Slot]) -> None:
        connection = self._connection
        for cid, data in self._blobs.items():
            if CID.for_raw(data) != cid:
                raise InvalidInput(f"the bytes given for blob {cid} are not its content")
        if self._blobs:
            # In order, so that writers of the same blobs never wait for each other in a circle.
            given = sorted((bytes(cid), data) for cid, data in self._blobs.items())
            _add_blob.many(connection, ({"cid": raw, "data": data} for raw, data in given))
        if outdated:
            _forget_blobs.many(connection, ({"key": slot.id} for slot in outdated))
        refs = {
            (slot.id, cid)
            for slot in present
            if slot.value and BLOB_MARK in slot.data
            for cid in blob_refs(slot.value)
        }
        if not refs:
            return
        stored = self._stored_blobs({cid for _, cid in refs})
        for record, cid in refs:
            if cid not in stored:
                slot = next(slot for slot in present if slot.id == record)
                raise InvalidRecord(
                    f"{slot.collection}/{slot.rkey} refers to blob {cid}, which is not stored"
                )
        _refer_to_blob.many(
            connection, ({"record": record, "cid": bytes(cid)} for record, cid in refs)
        )

    def _stored_blobs(self, cids: set[CID]) -> set[CID]:
        """Which of them are stored, and stay so until the transaction ends."""
        blobs = schema.blobs.c
        rows = self._connection.execute(
            select(blobs.cid)
            .where(blobs.cid.in_([bytes(cid) for cid in cids]))
            .with_for_update(read=True, key_share=True)
        ).scalars()
        return {CID.from_bytes(cid) for cid in rows}


def _fresh_ids(connection: Connection, count: int) -> Iterable[int]:
    if connection.dialect.name == "sqlite":
        # The write lock is ours, so ids can be given out here; asking the database for each
        # would cost a statement a record.
        top = _top.only(connection)[0] or 0
        return range(top + 1, top + 1 + count)
    return [number for (number,) in _next_ids.all(connection, count=count)]
