"""Full text search over every message ever stored, compacted ones too.

The semantics are those of a plain substring scan, letter case aside: what stands in the text
is found, in languages that write without spaces too, and no character of a query is syntax.
An index of three-character sequences (FTS5's trigram tokenizer) narrows the candidates, a
comparison of the text itself decides. Queries of one or two characters scan.
"""

import re
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

_BATCH = 1024
"""Texts that wait before the index takes them. One by one it would rewrite itself at each
message; together they cost a tenth. What waits is scanned, so a search misses nothing."""

_texts = schema.search_text
_trigrams = schema.search_trigrams
_progress = schema.search_progress
_unreadable = schema.search_unreadable

_add = Statement(lambda: insert(_texts))
_get = Statement(
    lambda: select(_texts.c.text, _texts.c.thinking).where(_texts.c.record == bindparam("key"))
)
_drop = Statement(lambda: delete(_texts).where(_texts.c.record == bindparam("key")))
_add_unreadable = Statement(lambda: insert(_unreadable))
_drop_unreadable = Statement(
    lambda: delete(_unreadable).where(_unreadable.c.record == bindparam("key"))
)
_indexed = Statement(lambda: select(_progress.c.indexed))
_set_indexed = Statement(lambda: update(_progress).values(indexed=bindparam("last")))
_index = Statement(
    lambda: insert(_trigrams).values(
        rowid=bindparam("record"), text=bindparam("text"), thinking=bindparam("thinking")
    )
)
_index_range = Statement(
    lambda: insert(_trigrams).from_select(
        ["rowid", "text", "thinking"],
        select(_texts.c.record, _texts.c.text, _texts.c.thinking).where(
            _texts.c.record > bindparam("first"), _texts.c.record <= bindparam("last")
        ),
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
_HAS_UNSTORABLE = re.compile("[\0\ud800-\udfff]").search

_SEPARATOR = "\n"


def fold(written: str) -> str:
    """A text as the index holds it: without case, storable."""
    folded = written.casefold()
    return folded.translate(_UNSTORABLE) if _HAS_UNSTORABLE(folded) else folded


@dataclass(frozen=True, slots=True)
class Indexed:
    """What is indexed of one message: everything but thinking, and thinking."""

    text: str
    thinking: str


class SearchIndex:
    """The projection. Stateless."""

    collections = frozenset({MESSAGE})

    def clear(self, connection: Connection) -> None:
        for table in (_texts, _unreadable):
            connection.execute(delete(table))
        connection.execute(update(_progress).values(indexed=0))
        connection.execute(insert(_trigrams).values(search_trigrams="rebuild"))

    def apply(self, connection: Connection, changes: Sequence[Change]) -> None:
        rows = []
        unreadable = []
        done = _indexed.only(connection)[0]
        for change in changes:
            if change.old is not None:
                if change.new is not None and change.old["message"] == change.new["message"]:
                    continue  # a mark or a new seq: by far the most frequent update
                self._remove(connection, change.record, done)
            if change.new is None:
                continue
            found = indexed(connection, change.new)
            if found is None:
                unreadable.append({"record": change.record})
            else:
                rows.append(
                    {"record": change.record, "text": found.text, "thinking": found.thinking}
                )
        _add_unreadable.many(connection, unreadable)
        _add.many(connection, rows)
        _index.many(connection, (row for row in rows if row["record"] <= done))
        last = max((change.record for change in changes), default=0)
        if last - done >= _BATCH:
            _index_range.run(connection, first=done, last=last)
            _set_indexed.run(connection, last=last)

    def _remove(self, connection: Connection, record: int, done: int) -> None:
        row = _get.one(connection, key=record)
        if row is None:
            _drop_unreadable.run(connection, key=record)
            return
        if record <= done:
            _unindex.run(connection, record=record, text=row[0], thinking=row[1])
        _drop.run(connection, key=record)

    def unreadable(self, connection: Connection) -> int:
        """How many messages are not in the index because their text could not be read."""
        count = select(func.count()).select_from(_unreadable)
        return int(connection.execute(count).scalar_one())

    def matches(
        self,
        connection: Connection,
        query: str,
        *,
        thinking: bool = False,
        repo: int | None = None,
    ) -> Iterator[int]:
        """Record ids of the messages that hold `query`, in one repo or in all, newest TID
        first."""
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
        if repo is not None:
            statement = statement.where(schema.records.c.repo == repo)
        if len(wanted) >= 3:
            done = select(_progress.c.indexed).scalar_subquery()
            candidates = (
                select(_trigrams.c.rowid)
                .where(text("search_trigrams MATCH :trigrams"))
                .union_all(select(_texts.c.record).where(_texts.c.record > done))
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
