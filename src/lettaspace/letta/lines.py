"""The lines of a messages.jsonl, as Letta Code would have written those of a stored conversation.

Row ids are the messages' TIDs, and parents are chained, so the same records always give the
same bytes, and reading the rows back gives the same records. Rows are in the order in which
Letta would have appended them, compaction rows included.

Not told: messages in formats that are not Letta's, and messages that left the window without
a summary that lists them come back so only with the window of conversation.json.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, func, select

from lettaspace.atproto import cbor
from lettaspace.conversation import codec
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import LOCAL_MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.conversation.storedtext import quick_text
from lettaspace.errors import Damaged, InvalidInput
from lettaspace.letta.build import LEGACY_MESSAGE
from lettaspace.space.schema import message_conversations, message_index, records
from lettaspace.space.statement import Statement
from lettaspace.space.writes import Value

_CHUNK = 200
"""Records that are read at once; each may have 128 KiB."""

_FORMATS = ((LOCAL_MESSAGE, 1), (LEGACY_MESSAGE, 1))

_index = message_index.c
_mine = (
    select(message_conversations.c.id)
    .where(message_conversations.c.uri == bindparam("uri"))
    .scalar_subquery()
)
_places = Statement(
    lambda: (
        select(
            _index.record,
            _index.rkey,
            _index.summary,
            _index.seq,
            _index.created_at,
            _index.place,
            _index.in_window,
        )
        .where(_index.conversation == _mine)
        .order_by(_index.seq, _index.rkey)
    )
)
_records = Statement(
    lambda: select(records.c.id, records.c.rev, records.c.value).where(
        records.c.id.in_(select(func.json_each(bindparam("ids")).table_valued("value").c.value))
    )
)


class Rows:
    """The rows of the messages that a file lacks, each with its newline, in the order in which
    they are to be appended. To be gone through once.

    `present` are the messages in the file, by TID, `row_id` tells the id of their rows, and
    `parent` is the last one's. Raises Damaged, or NotFound for a blob.
    """

    def __init__(
        self,
        space: Space,
        connection: Connection,
        rkey: str,
        *,
        present: Container[str] = (),
        row_id: Callable[[str], str] = str,
        parent: str | None = None,
    ) -> None:
        self.count = 0
        """How many there were so far."""
        self.read = 0
        """How many records were read for it."""
        self.newest = ""
        """The newest revision that any of those was written in."""
        self._connection = connection
        self._uri = space.address.conversation(rkey)
        self._open_blob = space.repo.get_blob
        self._present = present
        self._row_id = row_id
        self._parent = parent
        self._listed: list[tuple[int, int, str, int, str]] = []

    def behind(self, header: Mapping[str, Any]) -> Iterable[bytes]:
        """The rows behind a session row; nothing at all where there are none."""
        rows = iter(self)
        first = next(rows, None)
        return () if first is None else chain((line(header), first), rows)

    def window_ids(self) -> list[str]:
        """The ids by which conversation.json lists those of the messages that are in the
        window. Known when all rows were told."""
        return [message_id for *_, message_id in sorted(self._listed)]

    def __iter__(self) -> Iterator[bytes]:
        window: dict[str, None] = {}
        for place, record in self._in_file_order():
            rkey = place.rkey
            covered: list[str] | None = None
            if record is not None:
                # It was checked before it was stored; what `quick_text` cannot tell is once more.
                value = _decoded(rkey, record, checked=True)
                if not is_letta(value):
                    continue
                covered = value.get("compactedMessageIds")
                for tid in covered or ():
                    window.pop(tid, None)
                if rkey not in self._present:
                    kept = None if covered is None else next(iter(window), None)
                    yield self._told(place, value, record, kept)
                    if value["message"]["format"] == LEGACY_MESSAGE:
                        continue
                    self._parent = rkey
            if covered is not None:
                window = {rkey: None, **window}
            window[rkey] = None

    def _told(self, place: "_Place", value: Value, record: bytes, kept: str | None) -> bytes:
        """A message's line; `kept` is the first message that stays when it is a summary."""
        rkey, open_blob = place.rkey, self._open_blob
        self.count += 1
        if place.in_window:
            listed = (place.seq, place.place, rkey, place.record)
            self._listed.append((*listed, _payload_id(rkey, value, open_blob)))
        if value["message"]["format"] == LEGACY_MESSAGE:
            # In a row it would make Letta refuse the file; by itself it is passed over.
            return line(_payload(rkey, _decoded(rkey, record), open_blob))
        if not place.summary:
            row = _quick_row(rkey, value, record, self._parent)
            if row is not None:
                return row
        if kept is not None and kept in self._present:
            kept = self._row_id(kept)
        return _row(rkey, _decoded(rkey, record), open_blob, self._parent, kept)

    def _in_file_order(self) -> Iterator[tuple["_Place", bytes | None]]:
        """All messages with their records; of those that are present only the summaries'."""
        order, present = self._file_order(), self._present
        for start in range(0, len(order), _CHUNK):
            some = order[start : start + _CHUNK]
            found = self._read(
                [each.record for each in some if each.summary or each.rkey not in present]
            )
            self.read += len(found)
            for place in some:
                yield place, found.get(place.record)

    def _file_order(self) -> list["_Place"]:
        """All messages in the order of their rows: before a compaction stand those it kept,
        which got their present seqs from it."""
        order = [_Place._make(row) for row in _places.each(self._connection, uri=self._uri)]
        for at in range(len(order) - 1, -1, -1):
            summary = order[at]
            if not summary.summary:
                continue
            most = self._kept(summary)
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

    def _kept(self, summary: "_Place") -> int | None:
        """How many messages a compaction kept, by its own statistics."""
        record = self._read([summary.record])[summary.record]
        value: Any = _decoded(summary.rkey, record)
        if not is_letta(value):
            return 0
        value = _payload(summary.rkey, value, self._open_blob, images=False)
        for key in ("metadata", "compaction", "stats", "messages_count_after"):
            value = value.get(key) if isinstance(value, dict) else None
        return value - 1 if type(value) is int else None

    def _read(self, ids: list[int]) -> dict[int, bytes]:
        rows = _records.all(self._connection, ids=str(ids))
        self.newest = max(self.newest, max((rev for _, rev, _ in rows), default=""))
        return {record: data for record, _, data in rows}


class _Place(NamedTuple):
    """Where a message stands, by the index."""

    record: int
    rkey: str
    summary: int
    seq: int
    created_at: str
    place: int
    in_window: int


def is_letta(value: Value) -> bool:
    """Whether Letta could read a message, by its record."""
    message = value["message"]
    return (message["format"], message["version"]) in _FORMATS


def payload_id(message: Message) -> str:
    """The id by which Letta's list of the window names a message."""
    return _payload_id(message.rkey, message.value, message.open_blob)


def message_row(message: Message, parent: str | None) -> bytes:
    """The row of a message that the file has, and that has another payload since."""
    return _row(message.rkey, message.value, message.open_blob, parent, None)


def line(value: Mapping[str, Any]) -> bytes:
    """One line of messages.jsonl."""
    return dumps(dict(value)).encode() + b"\n"


def _decoded(rkey: str, record: bytes, *, checked: bool = False) -> Value:
    try:
        value: Value = cbor.decode(record, checked=checked)
    except InvalidInput as error:
        raise Damaged(f"{rkey}: {error}") from error
    return value


def _payload(
    rkey: str, value: Value, open_blob: OpenBlob, *, images: bool = True
) -> dict[str, Any]:
    """The payload under the id by which Letta's list of the window names it: its own, or the
    TID of a message that another harness wrote without one."""
    payload = codec.decode(value["message"]["data"], open_blob, images=images)
    return payload if isinstance(payload.get("id"), str) else {**payload, "id": rkey}


def _payload_id(rkey: str, value: Value, open_blob: OpenBlob) -> str:
    stored = value["message"]["data"].get("id")
    if type(stored) is str:
        return stored  # as it is nearly always, without a look at all the rest
    found: str = _payload(rkey, value, open_blob, images=False)["id"]
    return found


def _quick_row(rkey: str, value: Value, record: bytes, parent: str | None) -> bytes | None:
    """The row of a message that is no summary, if there is a short cut to it."""
    data = value["message"]["data"]
    if type(data.get("id")) is not str:
        return None
    row = {
        "type": "message",
        "id": rkey,
        "parentId": parent,
        "timestamp": value["createdAt"],
        "message": data,
    }
    text = quick_text(row, record)
    return None if text is None else text + b"\n"


def _row(
    rkey: str, value: Value, open_blob: OpenBlob, parent: str | None, first_kept: str | None
) -> bytes:
    payload = _payload(rkey, value, open_blob)
    is_summary = value.get("compactedMessageIds") is not None
    row: dict[str, Any] = {
        "type": "compaction" if is_summary else "message",
        "id": rkey,
        "parentId": parent,
        "timestamp": value["createdAt"],
    }
    if is_summary:
        row |= _compaction(payload, first_kept)
    else:
        row["message"] = payload
    return line(row)


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
