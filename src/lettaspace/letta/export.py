"""A stored conversation as Letta Code's files would say it.

Only the texts: putting them into a storage directory, when and in which order, is up to the
caller. Row ids are the messages' TIDs, and parents are chained, so the same records always
give the same bytes, and reading the rows back gives the same records. Rows are in the order in
which Letta would have appended them, compaction rows included.

Not told: messages in formats that are not Letta's, and messages that left the window without
a summary that lists them come back so only with the window of `conversation_json`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from lettaspace.conversation import codec, reading
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import (
    CONVERSATION,
    CONVERSATION_STATE,
    LOCAL_CONVERSATION,
    LOCAL_MESSAGE,
)
from lettaspace.conversation.space import Space
from lettaspace.errors import NotFound
from lettaspace.letta.build import (
    KEY_KEY,
    LEGACY_MESSAGE,
    MANIFEST_KEY,
    SESSION_KEY,
    standard_header,
    standard_manifest,
)
from lettaspace.letta.source import IDS
from lettaspace.space.schema import message_conversations, message_index
from lettaspace.space.writes import Value

_index = message_index.c


@dataclass(slots=True)
class Files:
    """What stands beside the rows."""

    key: str
    conversation: dict[str, Any]
    manifest: dict[str, Any]
    header: dict[str, Any]


def files(space: Space, rkey: str) -> Files:
    """conversation.json, the manifest and the session header of the conversation with that
    TID. Raises NotFound."""
    record = space.repo.get(CONVERSATION, rkey)
    if record is None:
        raise NotFound(f"no conversation {rkey}")
    created_at = record.value["createdAt"]
    stored = space.repo.get(CONVERSATION_STATE, rkey)
    state = stored.value if stored is not None else {}
    data = _letta_state(space, state)
    if "id" not in data:
        agent = record.value["agent"].rpartition("/")[2]
        data |= {"id": rkey, "agent_id": agent, "created_at": created_at}
        data["summary"] = state.get("title")
    header = data.pop(SESSION_KEY, None)
    manifest = data.pop(MANIFEST_KEY, None)
    agent_id = data.get("agent_id")
    plain_key = f"default:{agent_id}" if data["id"] == "default" else f"conversation:{data['id']}"
    key = data.pop(KEY_KEY, plain_key)
    window = space.window(space.address.conversation(rkey))
    active = sorted(
        (m for m in (*window.messages, *window.left_out) if _is_letta(m)), key=lambda m: m.seq
    )
    data[IDS] = [_payload(message, images=False)["id"] for message in active]
    return Files(
        key,
        data,
        manifest or standard_manifest(created_at),
        header or standard_header(data["id"], created_at, state.get("cwd")),
    )


def message_rows(space: Space, rkey: str, header: Mapping[str, Any]) -> Iterator[bytes]:
    """The lines of messages.jsonl, each with its newline."""
    yield _line(header)
    parent: str | None = None
    window: dict[str, None] = {}
    uri = space.address.conversation(rkey)
    with space.database.read() as connection:
        for place in _file_order(connection, uri, space.repo.get_blob):
            message = reading.message(connection, place.record, space.repo.get_blob)
            if not _is_letta(message):
                continue
            payload = _payload(message)
            if message.format == LEGACY_MESSAGE:
                # In a row it would make Letta refuse the file; by itself it is passed over.
                yield _line(payload)
                continue
            covered = message.compacted_message_ids
            row: dict[str, Any] = {
                "type": "message" if covered is None else "compaction",
                "id": message.rkey,
                "parentId": parent,
                "timestamp": message.created_at,
            }
            if covered is None:
                row["message"] = payload
            else:
                for tid in covered:
                    window.pop(tid, None)
                row |= _compaction(payload, next(iter(window), None))
                window = {message.rkey: None, **window}
            window[message.rkey] = None
            parent = message.rkey
            yield _line(row)


def _payload(message: Message, *, images: bool = True) -> dict[str, Any]:
    """The payload under the id by which Letta's list of the window names it: its own, or the
    TID of a message that another harness wrote without one."""
    payload: dict[str, Any] = message.payload(images=images)
    return payload if isinstance(payload.get("id"), str) else {**payload, "id": message.rkey}


@dataclass(frozen=True, slots=True)
class _Place:
    record: int
    summary: bool
    seq: int
    created_at: str


def _kept(payload: dict[str, Any]) -> int | None:
    """How many messages a compaction kept, by its own statistics."""
    value: Any = payload
    for key in ("metadata", "compaction", "stats", "messages_count_after"):
        value = value.get(key) if isinstance(value, dict) else None
    return value - 1 if type(value) is int else None


def _file_order(connection: Connection, uri: str, open_blob: OpenBlob) -> Sequence[_Place]:
    """All messages in the order of their rows: before a compaction stand those it kept,
    which got their present seqs from it."""
    mine = (
        select(message_conversations.c.id)
        .where(message_conversations.c.uri == uri)
        .scalar_subquery()
    )
    rows = connection.execute(
        select(_index.record, _index.summary, _index.seq, _index.created_at)
        .where(_index.conversation == mine)
        .order_by(_index.seq, _index.rkey)
    )
    order = [_Place(row.record, row.summary, row.seq, row.created_at) for row in rows]
    for at in range(len(order) - 1, -1, -1):
        summary = order[at]
        if not summary.summary:
            continue
        message = reading.message(connection, summary.record, open_blob)
        most = _kept(message.payload(images=False))
        end = at + 1
        # What was appended after a compaction is younger than its summary. By Letta's count
        # alone one would go wrong where a later writer did not give the tail new seqs.
        while (
            end < len(order)
            and (most is None or end - at <= most)
            and order[end].created_at <= summary.created_at
        ):
            end += 1
        order[at:end] = [*order[at + 1 : end], summary]
    return order


def _compaction(payload: dict[str, Any], first_kept: str | None) -> dict[str, Any]:
    compaction = payload.get("metadata", {}).get("compaction", {})
    stats = compaction.get("stats")
    row: dict[str, Any] = {
        "summary": compaction.get("summary", ""),
        "firstKeptEntryId": first_kept,
        "tokensBefore": (stats or {}).get("context_tokens_before", 0),
        "message": payload,
    }
    if stats is not None:
        row["details"] = {"stats": stats}
    return row


def _letta_state(space: Space, state: Value) -> dict[str, Any]:
    envelope = state.get("state")
    if not envelope or (envelope["format"], envelope["version"]) != (LOCAL_CONVERSATION, 1):
        return {}
    data = codec.decode(envelope["data"], space.repo.get_blob)
    return data if isinstance(data, dict) else {}


def _is_letta(message: Message) -> bool:
    return (message.format, message.version) in ((LOCAL_MESSAGE, 1), (LEGACY_MESSAGE, 1))


def _line(value: Mapping[str, Any]) -> bytes:
    return dumps(dict(value)).encode() + b"\n"
