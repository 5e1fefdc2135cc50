"""Appending and rewriting messages.

Everything that depends on what is stored, the seq above all, is decided inside the write's
own transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    union_all,
)

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.tid import TidClock
from lettaspace.conversation import codec, formats
from lettaspace.conversation.index import conversation_id
from lettaspace.conversation.records import (
    LOCAL_MESSAGE,
    MESSAGE,
    Envelope,
    envelope,
    new_message,
)
from lettaspace.conversation.times import after
from lettaspace.conversation.unstored import without_authentication
from lettaspace.errors import Conflict, Damaged, InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.statement import Statement
from lettaspace.space.view import View
from lettaspace.space.writes import Create, Update, Value, Write

_index = schema.message_index.c
_keys = schema.append_keys.c


def _top_seq_statement() -> Select[Any]:
    # The seq of a summary stands in an index of its own; of all others the place is the seq.
    mine = _index.conversation == bindparam("id")
    inside = select(func.max(_index.place).label("top")).where(
        mine, _index.in_window == literal_column("1")
    )
    outside = select(func.max(_index.place)).where(mine, _index.in_window == literal_column("0"))
    summaries = select(func.max(_index.seq)).where(mine, _index.summary == literal_column("1"))
    tops = union_all(inside, outside, summaries).subquery()
    return select(func.max(tops.c.top))


_top_seq = Statement(_top_seq_statement)
_top_rkey = Statement(
    lambda: select(func.max(schema.records.c.rkey)).where(
        schema.records.c.repo == bindparam("repo"), schema.records.c.collection == MESSAGE
    )
)
_find_key = Statement(
    lambda: select(_keys.rkey, _keys.content).where(
        _keys.conversation == bindparam("id"), _keys.key == bindparam("name")
    )
)
_add_key = Statement(lambda: insert(schema.append_keys))


class Model(Protocol):
    """A payload as an object of its own, such as those of `payload`."""

    def to_json(self) -> Mapping[str, Any]: ...


Data: TypeAlias = Mapping[str, Any] | Model
"""A harness's own message, as JSON or as a model of it."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A harness's message, encoded: its role, its envelope, the blobs it refers to."""

    role: str
    message: Envelope
    blobs: Mapping[CID, bytes]

    def content(self) -> CID:
        """Names role and payload, whatever becomes of seq and status."""
        return CID.for_cbor(cbor.encode({"role": self.role, "message": dict(self.message)}))


def encode(data: Data, *, role: str | None, name: str, version: int) -> Payload:
    """Encodes a payload; the role is the payload's own unless given."""
    data = data if isinstance(data, Mapping) else data.to_json()
    role = role if role is not None else data.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidInput("a message has no role")
    if name == LOCAL_MESSAGE and isinstance(data, dict):
        data = without_authentication(data)
    known = formats.find(name, version)
    encoded = codec.encode(data, known.shape if known else None)
    return Payload(role, envelope(name, version, encoded.value), encoded.blobs)


def top_seq(connection: Connection, conversation: int) -> int:
    """The highest seq of any retained message, 0 where there is none."""
    return int(_top_seq.only(connection, id=conversation)[0] or 0)


def fresh_rkey(view: View, clock: TidClock) -> str:
    """A new message's TID: above every stored one, unless that is from a wrong clock."""
    return clock.mint(floor=_top_rkey.only(view.connection, repo=view.repo)[0])


def message_value(view: View, rkey: str) -> Value:
    """The record of a message that the index names. Raises Damaged if there is none."""
    record = view.get(MESSAGE, rkey)
    if record is None:
        raise Damaged(f"message {rkey} is in the index and not stored")
    return record.value


def updated(value: Value, at: str, **fields: Any) -> Value:
    """A record's next version: with these fields, and an `updatedAt` that is later than before."""
    stored = value.get("updatedAt", value.get("createdAt"))
    return {**value, **fields, "updatedAt": after(at, stored)}


def appended(connection: Connection, conversation: int, key: str) -> str | None:
    """The rkey of what was written under a key."""
    found = _find_key.one(connection, id=conversation, name=key)
    return found[0] if found else None


def remember(
    connection: Connection, conversation: int, key: str, rkey: str, payload: Payload
) -> None:
    """Notes under which key a message was written, in the transaction that writes it."""
    _add_key.run(
        connection, conversation=conversation, key=key, rkey=rkey, content=bytes(payload.content())
    )


Late = Callable[[View, int, Payload], "str | None"]
"""Finds, in a conversation, the message whose place a payload takes instead of a new one."""


class Append:
    """A plan that appends one message; `rkey` tells afterwards which it is."""

    def __init__(
        self,
        conversation: str,
        agent: str,
        payload: Payload,
        *,
        key: str | None,
        created_at: str,
        updated_at: str,
        clock: TidClock,
        late: Late,
    ) -> None:
        self.rkey = ""
        self.value: Value | None = None
        """The record of a message that is new; None where one was there already."""
        self._conversation = conversation
        self._agent = agent
        self._payload = payload
        self._key = key
        self._created_at = created_at
        self._updated_at = updated_at
        self._clock = clock
        self._late = late

    def __call__(self, view: View) -> Sequence[Write]:
        connection = view.connection
        number = conversation_id(connection, self._conversation)
        # The key first: what was written under it may stand in a placeholder's place already.
        if self._key is not None:
            found = _find_key.one(connection, id=number, name=self._key)
            if found is not None:
                if found[1] != bytes(self._payload.content()):
                    raise Conflict(f"key {self._key!r} was used to append another message")
                self.rkey = found[0]
                return []
        late = self._late(view, number, self._payload)
        self.rkey = late or fresh_rkey(view, self._clock)
        if self._key is not None:
            remember(connection, number, self._key, self.rkey, self._payload)
        if late is not None:
            rewrite = Rewrite(late, self._payload, expected=None, updated_at=self._updated_at)
            return rewrite(view)
        self.value = new_message(
            self._conversation,
            self._agent,
            self._payload.role,
            top_seq(connection, number) + 1,
            self._payload.message,
            self._created_at,
        )
        return [Create(MESSAGE, self.rkey, self.value)]


class Rewrite:
    """A plan that puts a new payload at a message's TID and seq."""

    def __init__(
        self, rkey: str, payload: Payload, *, expected: CID | None, updated_at: str
    ) -> None:
        self._rkey = rkey
        self._payload = payload
        self._expected = expected
        self._updated_at = updated_at

    def __call__(self, view: View) -> Sequence[Write]:
        stored = view.get(MESSAGE, self._rkey)
        if stored is None:
            raise NotFound(f"no message {self._rkey}")
        value = {
            **stored.value,
            "role": self._payload.role,
            "message": self._payload.message,
        }
        return [Update(MESSAGE, self._rkey, updated(value, self._updated_at), self._expected)]
