"""A stored conversation as Letta Code's files would say it.

Only the texts: putting them into a storage directory, when and in which order, is up to the
caller. Row ids are the messages' TIDs, and parents are chained, so the same records always
give the same bytes, and reading the rows back gives the same records. Rows are in the order in
which Letta would have appended them, compaction rows included.

Not told: messages in formats that are not Letta's, and messages that left the window without
a summary that lists them come back so only with the window of `conversation_json`.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec, reading
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    LOCAL_AGENT,
    LOCAL_CONVERSATION,
    LOCAL_MESSAGE,
    NO_AGENT,
    clip,
)
from lettaspace.conversation.space import Space
from lettaspace.conversation.times import valid
from lettaspace.errors import NotFound
from lettaspace.letta.build import (
    KEY_KEY,
    LEGACY_MESSAGE,
    MANIFEST_KEY,
    MAX_NAME,
    MAX_TITLE,
    PROMPT_FIELDS,
    SESSION_KEY,
    agent_key,
    standard_header,
    standard_manifest,
)
from lettaspace.letta.source import IDS
from lettaspace.space.schema import message_conversations, message_index, records
from lettaspace.space.view import View
from lettaspace.space.writes import Value

_index = message_index.c
_CHUNK = 200


@dataclass(slots=True)
class Files:
    """What stands beside the rows."""

    key: str
    conversation: dict[str, Any]
    manifest: dict[str, Any]
    header: dict[str, Any]


def files(space: Space, rkey: str, *, local_id: str | None = None) -> Files:
    """conversation.json, the manifest and the session header of the conversation with that
    TID. Raises NotFound.

    `local_id` is what the conversation is called in the directory, if that is not its own id.
    """
    with space.repo.snapshot() as view:
        found = files_in(space, view, rkey, local_id=local_id)
        found.conversation[IDS] = window_ids(space, view, rkey)
    return found


def files_in(space: Space, view: View, rkey: str, *, local_id: str | None = None) -> Files:
    """The same, of one snapshot and without the window."""
    record = view.get(CONVERSATION, rkey)
    if record is None:
        raise NotFound(f"no conversation {rkey}")
    stored = view.get(CONVERSATION_STATE, rkey)
    state = stored.value if stored is not None else {}
    data = letta_state(state, space.repo.get_blob)
    if "id" not in data:
        agent = letta_agent_id(view, record.value["agent"].rpartition("/")[2], space.repo.get_blob)
        data |= {"id": rkey, "agent_id": agent, "created_at": record.value["createdAt"]}
        data["summary"] = state.get("title")
    elif (title := state.get("title")) and title != clip(data.get("summary"), MAX_TITLE):
        data["summary"] = title  # somebody who is not Letta named it
    created_at = valid(data.get("created_at")) or record.value["createdAt"]
    header = data.pop(SESSION_KEY, None)
    manifest = data.pop(MANIFEST_KEY, None)
    agent_id = data.get("agent_id")
    plain_key = f"default:{agent_id}" if data["id"] == "default" else f"conversation:{data['id']}"
    key = data.pop(KEY_KEY, plain_key)
    if local_id is not None:
        data["id"] = local_id
    return Files(
        key,
        data,
        manifest or standard_manifest(created_at),
        header or standard_header(data["id"], created_at, state.get("cwd")),
    )


def window_ids(space: Space, view: View, rkey: str) -> list[str]:
    """The ids of the messages in the window, as conversation.json lists them."""
    uri = space.address.conversation(rkey)
    active = reading.active(view.connection, uri, space.repo.get_blob)
    return [
        payload_id(message)
        for message in sorted(filter(is_letta, active), key=lambda message: message.seq)
    ]


def prompt_in(space: Space, view: View, rkey: str) -> dict[str, Any] | None:
    """What system-prompt.json says; None where nothing is stored."""
    stored = view.get(CONVERSATION_STATE, rkey)
    large = stored.value.get("oversizePrompt") if stored is not None else None
    if large is not None:
        value = codec.decode(large["data"], space.repo.get_blob)
        return value if isinstance(value, dict) else None
    record = view.get(COMPILED_PROMPT, rkey)
    if record is None:
        return None
    return {key: record.value[key] for key in PROMPT_FIELDS if key in record.value}


def message_rows(space: Space, rkey: str, header: Mapping[str, Any]) -> Iterator[bytes]:
    """The lines of messages.jsonl, each with its newline."""
    yield line(header)
    with space.database.read() as connection:
        yield from missing_rows(space, connection, rkey)


def missing_rows(
    space: Space,
    connection: Connection,
    rkey: str,
    *,
    present: Container[str] = (),
    row_id: Callable[[str], str] = str,
    parent: str | None = None,
) -> Iterator[bytes]:
    """The rows of the messages that a file lacks, in the order in which they are to be appended.

    `present` are the messages in the file, by TID, `row_id` tells the id of their rows, and
    `parent` is the last one's.
    """
    window: dict[str, None] = {}
    uri = space.address.conversation(rkey)
    for place, message in _in_file_order(connection, uri, space.repo.get_blob, present):
        if message is not None and not is_letta(message):
            continue
        covered = None if message is None else message.compacted_message_ids
        for tid in covered or ():
            window.pop(tid, None)
        if message is not None and place.rkey not in present:
            payload = _payload(message)
            if message.format == LEGACY_MESSAGE:
                # In a row it would make Letta refuse the file; by itself it is passed over.
                yield line(payload)
                continue
            kept = None if covered is None else next(iter(window), None)
            if kept is not None and kept in present:
                kept = row_id(kept)
            yield _row(message, payload, parent, kept)
            parent = place.rkey
        if covered is not None:
            window = {place.rkey: None, **window}
        window[place.rkey] = None


def message_row(message: Message, parent: str | None) -> bytes:
    """The row of a message that the file has, and that has another payload since."""
    return _row(message, _payload(message), parent, None)


def _row(
    message: Message, payload: dict[str, Any], parent: str | None, first_kept: str | None
) -> bytes:
    is_summary = message.compacted_message_ids is not None
    row: dict[str, Any] = {
        "type": "compaction" if is_summary else "message",
        "id": message.rkey,
        "parentId": parent,
        "timestamp": message.created_at,
    }
    if is_summary:
        row |= _compaction(payload, first_kept)
    else:
        row["message"] = payload
    return line(row)


def payload_id(message: Message) -> str:
    """The id by which Letta's list of the window names a message."""
    stored = message.data.get("id")
    if type(stored) is str:
        return stored  # as it is nearly always, without a look at all the rest
    found: str = _payload(message, images=False)["id"]
    return found


def _payload(message: Message, *, images: bool = True) -> dict[str, Any]:
    """The payload under the id by which Letta's list of the window names it: its own, or the
    TID of a message that another harness wrote without one."""
    payload: dict[str, Any] = message.payload(images=images)
    return payload if isinstance(payload.get("id"), str) else {**payload, "id": message.rkey}


@dataclass(frozen=True, slots=True)
class _Place:
    record: int
    rkey: str
    summary: bool
    seq: int
    created_at: str


def _kept(payload: dict[str, Any]) -> int | None:
    """How many messages a compaction kept, by its own statistics."""
    value: Any = payload
    for key in ("metadata", "compaction", "stats", "messages_count_after"):
        value = value.get(key) if isinstance(value, dict) else None
    return value - 1 if type(value) is int else None


def _in_file_order(
    connection: Connection, uri: str, open_blob: OpenBlob, present: Container[str]
) -> Iterator[tuple[_Place, Message | None]]:
    """All messages; of those that are present only the summaries are read."""
    order = _file_order(connection, uri, open_blob)
    for start in range(0, len(order), _CHUNK):
        some = order[start : start + _CHUNK]
        wanted = [each.record for each in some if each.summary or each.rkey not in present]
        values = _values(connection, wanted) if wanted else {}
        for place in some:
            if place.record not in values:
                yield place, None
                continue
            cid, value = values[place.record]
            yield place, reading.fresh("", place.rkey, cid, value, open_blob)


def _values(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[CID, Value]]:
    rows = connection.execute(
        select(records.c.id, records.c.cid, records.c.value).where(records.c.id.in_(ids))
    )
    return {row.id: (CID.from_bytes(row.cid), cbor.decode(row.value)) for row in rows}


def _file_order(connection: Connection, uri: str, open_blob: OpenBlob) -> Sequence[_Place]:
    """All messages in the order of their rows: before a compaction stand those it kept,
    which got their present seqs from it."""
    mine = (
        select(message_conversations.c.id)
        .where(message_conversations.c.uri == uri)
        .scalar_subquery()
    )
    rows = connection.execute(
        select(_index.record, _index.rkey, _index.summary, _index.seq, _index.created_at)
        .where(_index.conversation == mine)
        .order_by(_index.seq, _index.rkey)
    )
    order = [_Place(*row) for row in rows]
    for at in range(len(order) - 1, -1, -1):
        summary = order[at]
        if not summary.summary:
            continue
        cid, value = _values(connection, [summary.record])[summary.record]
        message = reading.fresh("", summary.rkey, cid, value, open_blob)
        most = _kept(message.payload(images=False)) if is_letta(message) else 0
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


def letta_state(state: Value, open_blob: OpenBlob) -> dict[str, Any]:
    """What a conversationState holds of Letta's own; {} where that is nothing."""
    return _data(state, LOCAL_CONVERSATION, open_blob)


def letta_agent(value: Value, open_blob: OpenBlob) -> dict[str, Any]:
    """What an agent's record holds of Letta's own, without its template; {}: nothing."""
    return _data(value, LOCAL_AGENT, open_blob)


def agent_file(space: Space, view: View, rkey: str) -> dict[str, Any] | None:
    """What the file of the agent with that record key says; None: there is no such agent."""
    record = view.get(AGENT, rkey)
    if record is None:
        return None
    value = record.value
    data = letta_agent(value, space.repo.get_blob)
    if not data:
        data = {"id": rkey, "name": value["name"], "description": value.get("description")}
        data |= {"tags": list(value.get("tags", [])), "model_settings": {}}
    if "system" in value or "system" not in data:
        data["system"] = value.get("system", "")
    # What somebody who is not Letta called it.
    if value["name"] != (clip(data.get("name"), MAX_NAME) or clip(data.get("id"), MAX_NAME)):
        data["name"] = value["name"]
    return data


def letta_agent_id(view: View, rkey: str, open_blob: OpenBlob) -> str | None:
    """Letta's id of the agent with that record key; None for the one that stands for none."""
    if rkey == NO_AGENT:
        return None
    record = view.get(AGENT, rkey)
    agent_id = letta_agent(record.value, open_blob).get("id") if record is not None else None
    return agent_id if type(agent_id) is str and agent_key(agent_id) == rkey else rkey


def _data(value: Value, name: str, open_blob: OpenBlob) -> dict[str, Any]:
    envelope = value.get("state")
    if not envelope or (envelope["format"], envelope["version"]) != (name, 1):
        return {}
    data = codec.decode(envelope["data"], open_blob)
    return data if isinstance(data, dict) else {}


def is_letta(message: Message) -> bool:
    """Whether Letta could read the message."""
    return (message.format, message.version) in ((LOCAL_MESSAGE, 1), (LEGACY_MESSAGE, 1))


def line(value: Mapping[str, Any]) -> bytes:
    """One line of messages.jsonl."""
    return dumps(dict(value)).encode() + b"\n"
