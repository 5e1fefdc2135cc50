"""Projections: tables derived from records, kept in the transaction that writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, select

from lettaspace.atproto import cbor
from lettaspace.errors import InvalidInput
from lettaspace.space import schema
from lettaspace.space.writes import Value

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one record. `old` None: created. `new` None: deleted."""

    record: int
    collection: str
    rkey: str
    old: Value | None
    new: Value | None


class Projection(Protocol):
    """Derives rows from records. It reads and writes only its own tables (and blobs), by
    unqualified names, so that the same code can fill temporary tables of the same names."""

    @property
    def collections(self) -> frozenset[str]:
        """The collections whose changes it wants to see."""
        ...

    def apply(self, connection: Connection, changes: Sequence[Change]) -> None: ...

    def clear(self, connection: Connection) -> None: ...


def fill(connection: Connection, projection: Projection) -> None:
    """Applies every stored record to an empty projection."""
    last = 0
    while True:
        rows = connection.execute(
            select(
                schema.records.c.id,
                schema.records.c.collection,
                schema.records.c.rkey,
                schema.records.c.value,
            )
            .where(schema.records.c.id > last)
            .order_by(schema.records.c.id)
            .limit(_CHUNK)
        ).all()
        if not rows:
            return
        last = rows[-1].id
        changes = [
            Change(row.id, row.collection, row.rkey, None, value)
            for row in rows
            if row.collection in projection.collections
            and (value := decoded(row.value)) is not None
        ]
        if changes:
            projection.apply(connection, changes)


def decoded(data: bytes) -> Value | None:
    """A record's value, or None where its bytes are damaged."""
    try:
        value: Value = cbor.decode(data)
    except InvalidInput:
        return None  # `verify` names it; nothing can be derived from it
    return value


def rebuild(connection: Connection, projection: Projection) -> None:
    """Derives a projection anew from the records."""
    projection.clear(connection)
    fill(connection, projection)
