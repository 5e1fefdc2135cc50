"""Reading conversations: the window and the transcript, from whatever is stored."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, ScalarSelect, Select, bindparam, select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation import formats
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.message import Message
from lettaspace.conversation.outline import TranscriptOrder
from lettaspace.conversation.pairing import Pairs
from lettaspace.conversation.ranges import Node
from lettaspace.conversation.records import MESSAGE
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.space.schema import (
    message_conversations,
    message_index,
    records,
    repos,
)
from lettaspace.space.statement import Statement
from lettaspace.space.writes import Value

UNKNOWN_FORMAT = "unknown-format"

_index = message_index.c

_stored = Statement(
    lambda: (
        select(records.c.cid, records.c.value, repos.c.space, repos.c.author)
        .join(repos, repos.c.id == records.c.repo)
        .where(records.c.id == bindparam("record"))
    )
)


@dataclass(frozen=True, slots=True)
class Window:
    """What the model is given of a conversation, in order."""

    messages: list[Message]
    left_out: list[Message]
    """Active messages that cannot be given to a model; their `flags` say why."""


def window(connection: Connection, conversation: str, open_blob: OpenBlob) -> Window:
    """The active messages of a conversation (its URI), in order.

    Left out, and said so: payloads in a format this version doesn't know, and tool results
    whose call does not stand before them in the window (providers refuse those).
    """
    inside: list[Message] = []
    outside: list[Message] = []
    for message in active(connection, conversation, open_blob):
        (outside if message.flags else inside).append(message)
    return Window(inside, outside)


def active(connection: Connection, conversation: str, open_blob: OpenBlob) -> list[Message]:
    """Every message of the window in order, those too that a model is not given."""
    return list(stream_active(connection, conversation, open_blob))


def stream_active(
    connection: Connection, conversation: str, open_blob: OpenBlob
) -> Iterator[Message]:
    """The same, one after the other."""
    query = (
        _messages(conversation)
        .where(_index.in_window)
        .order_by(_index.place, _index.rkey, _index.record)
    )
    pairs = Pairs()
    for row in connection.execute(query):
        yield pairs.flag(_message(row, open_blob))


def transcript(connection: Connection, conversation: str, open_blob: OpenBlob) -> Iterator[Message]:
    """Every retained message of a conversation once, in order.

    What a summary covers stands before it, to any depth; the summary itself marks the point
    of compaction. Orphan results and unknown formats are flagged, never left out.
    """
    order = TranscriptOrder(connection, find_conversation_id(connection, conversation))
    pairs = Pairs()
    for message in stored(connection, order.forward(None), open_blob):
        yield pairs.flag(message)


def stored(connection: Connection, nodes: Iterable[Node], open_blob: OpenBlob) -> Iterator[Message]:
    """The messages of places in the index, not flagged yet."""
    for node in nodes:
        cid, data, space, author = _stored.only(connection, record=node.record)
        uri = f"{space}/{author}/{MESSAGE}/{node.rkey}"
        value = _decoded(data, uri)
        yield replace(
            fresh(uri, node.rkey, CID.from_bytes(cid), value, open_blob),
            covered_by=node.covered_by,
            active=bool(node.in_window),
        )


def one(connection: Connection, conversation: str, rkey: str, open_blob: OpenBlob) -> Message:
    """One message of a conversation by its TID. Raises NotFound."""
    query = _messages(conversation).where(_index.rkey == rkey).order_by(_index.record)
    row = connection.execute(query).first()
    if row is None:
        raise NotFound(f"no message {rkey} in {conversation}")
    return _message(row, open_blob)


def message(connection: Connection, record: int, open_blob: OpenBlob) -> Message:
    """One indexed message by its row in `records`.

    The index is kept by conversation and TID, which the record itself tells.
    """
    found = connection.execute(
        select(records.c.rkey, records.c.value).where(records.c.id == record)
    ).one()
    conversation = str(_decoded(found.value, found.rkey)["conversation"])
    return _message(_row(connection, conversation, found.rkey, record), open_blob)


def _row(connection: Connection, conversation: str, rkey: str, record: int) -> Row[Any]:
    return connection.execute(
        _messages(conversation).where(_index.rkey == rkey, _index.record == record)
    ).one()


def _columns() -> Select[Any]:
    return (
        select(
            _index.record,
            _index.rkey,
            _index.covered_by,
            _index.in_window,
            records.c.cid,
            records.c.value,
            repos.c.space,
            repos.c.author,
        )
        .select_from(message_index)
        .join(records, records.c.id == _index.record)
        .join(repos, repos.c.id == records.c.repo)
    )


def _messages(conversation: str) -> Select[Any]:
    return _columns().where(_index.conversation == _known(conversation))


def _known(conversation: str) -> ScalarSelect[Any]:
    return (
        select(message_conversations.c.id)
        .where(message_conversations.c.uri == conversation)
        .scalar_subquery()
    )


def _message(row: Row[Any], open_blob: OpenBlob) -> Message:
    uri = f"{row.space}/{row.author}/{MESSAGE}/{row.rkey}"
    value = _decoded(row.value, uri)
    cid = CID.from_bytes(row.cid)
    return replace(
        fresh(uri, row.rkey, cid, value, open_blob),
        covered_by=row.covered_by,
        active=row.in_window,
    )


def fresh(uri: str, rkey: str, cid: CID, value: Value, open_blob: OpenBlob) -> Message:
    """A message that was just written at the end of its conversation."""
    known = formats.of(value) is not None
    return Message(
        rkey=rkey,
        uri=uri,
        cid=cid,
        value=value,
        covered_by=None,
        active=True,
        _open_blob=open_blob,
        flags=() if known else (UNKNOWN_FORMAT,),
    )


def _decoded(data: bytes, name: str) -> Value:
    try:
        value: Value = cbor.decode(data)
    except InvalidInput as error:
        raise Damaged(f"{name}: {error}") from error
    return value
