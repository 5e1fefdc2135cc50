"""Full text search over every message ever stored, compacted ones too.

The semantics are those of a plain substring scan, letter case aside: what stands in the text
is found, in languages that write without spaces too, and no character of a query is syntax.
An index of three-character sequences (FTS5's trigram tokenizer) narrows the candidates, a
comparison of the text itself decides. Queries of one or two characters scan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text, update

from lettaspace.atproto.cid import CID
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.text import pieces
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.projection import Change
from lettaspace.space.statement import Statement
from lettaspace.space.writes import Value

_MAX_TRIGRAMS = 24
"""Enough to narrow a long query down; each costs a look into the index."""

_BATCH = 256
"""Texts that wait before the index takes them. One by one it would rewrite itself at each
message; together they cost a tenth. What waits is scanned, so a search misses nothing."""

_texts = schema.search_text
_trigrams = schema.search_trigrams

_waiting = _texts.c.pending == 1

_add = Statement(lambda: insert(_texts))
_get = Statement(lambda: select(_texts).where(_texts.c.record == bindparam("key")))
_drop = Statement(lambda: delete(_texts).where(_texts.c.record == bindparam("key")))
_count_waiting = Statement(lambda: select(func.count()).select_from(_texts).where(_waiting))
_all_waiting = Statement(
    lambda: select(_texts.c.record, _texts.c.text, _texts.c.thinking).where(_waiting)
)
_done_waiting = Statement(lambda: update(_texts).where(_waiting).values(pending=0))
_index = Statement(
    lambda: insert(_trigrams).values(
        rowid=bindparam("record"), text=bindparam("text"), thinking=bindparam("thinking")
    )
)
_unindex = Statement(
    lambda: insert(_trigrams).values(
        search_trigrams="delete",
        rowid=bindparam("record"),
        text=bindparam("text"),
        thinking=bindparam("thinking"),
    )
)
_blob = Statement(lambda: select(schema.blobs.c.data).where(schema.blobs.c.cid == bindparam("cid")))

# SQLite's functions take NUL for the end of a text, and UTF-8 has no lone surrogates.
_UNSTORABLE = {0: "␀", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}

_SEPARATOR = "\n"


def fold(written: str) -> str:
    """A text as the index holds it: without case, storable."""
    folded = written.casefold()
    return folded if folded.isascii() and "\0" not in folded else folded.translate(_UNSTORABLE)


@dataclass(frozen=True, slots=True)
class Indexed:
    """What is indexed of one message: everything but thinking, and thinking."""

    text: str
    thinking: str


class SearchIndex:
    """The projection. Stateless."""

    collections = frozenset({MESSAGE})

    def clear(self, connection: Connection) -> None:
        connection.execute(delete(_texts))
        connection.execute(insert(_trigrams).values(search_trigrams="rebuild"))

    def apply(self, connection: Connection, changes: Sequence[Change]) -> None:
        rows = []
        for change in changes:
            if change.old is not None:
                if change.new is not None and change.old["message"] == change.new["message"]:
                    continue  # a mark or a new seq: by far the most frequent update
                self._remove(connection, change.record)
            if change.new is not None and (found := indexed(connection, change.new)) is not None:
                rows.append(
                    {"record": change.record, "text": found.text, "thinking": found.thinking}
                )
        if not rows:
            return
        wait = len(rows) + _count_waiting.only(connection)[0] < _BATCH
        if not wait:
            for record, spoken, thought in _all_waiting.all(connection):
                _index.run(connection, record=record, text=spoken, thinking=thought)
            _done_waiting.run(connection)
            _index.many(connection, rows)
        _add.many(connection, [{**row, "pending": int(wait)} for row in rows])

    def _remove(self, connection: Connection, record: int) -> None:
        row = _get.one(connection, key=record)
        if row is not None:
            _, spoken, thought, pending = row
            if not pending:
                _unindex.run(connection, record=record, text=spoken, thinking=thought)
            _drop.run(connection, key=record)

    def unreadable(self, connection: Connection) -> int:
        """How many messages are not in the index because their text could not be read."""
        messages = select(func.count()).select_from(schema.message_index).scalar_subquery()
        rows = select(func.count()).select_from(_texts).scalar_subquery()
        return int(connection.execute(select(messages - rows)).scalar_one())

    def matches(
        self, connection: Connection, query: str, *, thinking: bool = False
    ) -> Iterator[int]:
        """Record ids of the messages that hold `query`, newest TID first."""
        wanted = fold(query)
        if not wanted:
            return iter(())
        holds = func.instr(_texts.c.text, wanted) > 0
        if thinking:
            holds |= func.instr(_texts.c.thinking, wanted) > 0
        statement = (
            select(schema.records.c.id)
            .join(_texts, _texts.c.record == schema.records.c.id)
            .where(holds)
            .order_by(schema.records.c.rkey.desc(), schema.records.c.id.desc())
        )
        if len(wanted) >= 3:
            candidates = (
                select(_trigrams.c.rowid)
                .where(text("search_trigrams MATCH :trigrams"))
                .union_all(select(_texts.c.record).where(_waiting))
            )
            statement = statement.where(_texts.c.record.in_(candidates)).params(
                trigrams=_match(wanted)
            )
        return iter(connection.execute(statement).scalars())


def blob_reader(connection: Connection) -> OpenBlob:
    """Reads blobs in the connection's own transaction."""

    def open_blob(cid: CID) -> bytes:
        row = _blob.one(connection, cid=bytes(cid))
        if row is None:
            raise NotFound(f"no blob {cid}")
        return bytes(row[0])

    return open_blob


def indexed(connection: Connection, message: Value) -> Indexed | None:
    """What the index holds of a message; None when a part of it cannot be read."""
    spoken: list[str] = []
    thought: list[str] = []
    try:
        for kind, written in pieces(message, blob_reader(connection)):
            (thought if kind == "thinking" else spoken).append(written)
    except (Damaged, InvalidInput, NotFound, RecursionError):
        return None
    return Indexed(fold(_SEPARATOR.join(spoken)), fold(_SEPARATOR.join(thought)))


def _match(wanted: str) -> str:
    """An FTS5 query for texts that hold every three-character sequence of `wanted`."""
    trigrams = list(dict.fromkeys(wanted[at : at + 3] for at in range(len(wanted) - 2)))
    step = max(1, len(trigrams) // _MAX_TRIGRAMS)
    return " AND ".join('"' + part.replace('"', '""') + '"' for part in trigrams[::step])


def snippet(message: Value, query: str, open_blob: OpenBlob, *, width: int = 60) -> str | None:
    """A line of context around the first hit in a message, about `width` characters each side."""
    wanted = fold(query)
    for _, written in pieces(message, open_blob):
        at = _find(written, wanted)
        if at is None:
            continue
        start, end = at
        left = max(0, start - width)
        right = min(len(written), end + width)
        return ("…" if left else "") + written[left:right] + ("…" if right < len(written) else "")
    return None


def _find(written: str, wanted: str) -> tuple[int, int] | None:
    """Where the hit stands in the text as written; folding may have changed lengths."""
    folded = fold(written)
    at = folded.find(wanted)
    if at < 0:
        return None
    if len(folded) == len(written):
        return at, at + len(wanted)
    position, start = 0, 0
    for index, character in enumerate(written):
        if position <= at:
            start = index
        if position >= at + len(wanted):
            return start, index
        position += len(fold(character))
    return start, len(written)
