"""Pages of a conversation: any part of a window or a transcript, without reading the rest."""

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, and_, bindparam, false, select, true

from lettaspace.conversation import reading
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.message import Message
from lettaspace.errors import NotFound
from lettaspace.space.schema import message_covers, message_index
from lettaspace.space.statement import Row, Statement

View = Literal["window", "transcript"]
"""The order of `reading.active` or that of `reading.transcript`."""


@dataclass(frozen=True, slots=True)
class First:
    """The first page."""


@dataclass(frozen=True, slots=True)
class Last:
    """The last page."""


@dataclass(frozen=True, slots=True)
class At:
    """The page with the message of this TID in its middle, or as near to it as there are
    messages on both sides."""

    tid: str


@dataclass(frozen=True, slots=True)
class From:
    """The page that starts with the message of this TID."""

    tid: str


@dataclass(frozen=True, slots=True)
class Before:
    """The page that ends before the message of this TID."""

    tid: str


@dataclass(frozen=True, slots=True)
class After:
    """The page that starts after the message of this TID."""

    tid: str


_index = message_index.c
_covers = message_covers.c

_listed = and_(_covers.conversation == _index.conversation, _covers.summary == _index.rkey)


def _points() -> Select[Any]:
    # Each a seek at one end of the list: a list may be long.
    def end(column: Any, order: Any) -> Any:
        return select(column).where(_listed).order_by(order).limit(1).scalar_subquery()

    return select(
        _index.rkey,
        _index.seq,
        _index.place,
        _index.created_at,
        end(_covers.ordinal, _covers.ordinal.desc()),
        end(_covers.covered, _covers.ordinal),
        end(_covers.covered, _covers.ordinal.desc()),
        _index.covered_by,
    ).where(_index.conversation == bindparam("id"), _index.summary == true())


_all_points = Statement(lambda: _points().order_by(_index.seq, _index.rkey, _index.record))
_one_point = Statement(lambda: _points().where(_index.rkey == bindparam("key")).limit(1))
_covered_by = Statement(
    lambda: (
        select(_index.covered_by)
        .where(_index.conversation == bindparam("id"), _index.rkey == bindparam("key"))
        .limit(1)
    )
)
_ticks = select(_index.rkey, _index.seq, _index.created_at).where(
    _index.conversation == bindparam("id"),
    _index.in_window == bindparam("side"),
    _index.summary == false(),
)
_at_or_after = Statement(
    lambda: (
        _ticks.where(_index.place >= bindparam("place"))
        .order_by(_index.place, _index.rkey, _index.record)
        .limit(1)
    )
)
_last_tick = Statement(
    lambda: _ticks.order_by(_index.place.desc(), _index.rkey.desc(), _index.record.desc()).limit(1)
)

Anchor = First | Last | At | From | Before | After


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages that follow each other."""

    messages: list[Message]
    """In order, those too that a model is not given; their `flags` say why."""
    before: str | None
    """The TID to ask for the page `Before`; None at the start."""
    after: str | None
    """The TID to ask for the page `After`; None at the end."""


@dataclass(frozen=True, slots=True)
class CompactionPoint:
    """A summary, without its text."""

    rkey: str
    seq: int
    place: int
    """Where it stands: the seq of the earliest message that it covers."""
    created_at: str
    covers: int
    """How many messages it lists."""
    first: str | None
    """The TID of the first message it lists."""
    last: str | None
    covered_by: str | None
    """The TID of the summary that lists this one."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A message on the way through a conversation."""

    rkey: str
    seq: int
    created_at: str


def page(
    connection: Connection,
    conversation: str,
    open_blob: OpenBlob,
    view: View,
    anchor: Anchor,
    limit: int,
) -> Page:
    """About `limit` messages of a conversation (its URI): more, up to `REACH` on either side,
    where a tool call would be parted from its results.

    Raises NotFound for the TID of an anchor that is no message of the conversation.
    """
    read = reading.active if view == "window" else reading.transcript
    return _cut(list(read(connection, conversation, open_blob)), anchor, limit)


def covered(
    connection: Connection,
    conversation: str,
    open_blob: OpenBlob,
    summary: str,
    anchor: Anchor,
    limit: int,
) -> Page:
    """A page of what one summary (its TID) lists, in the list's order."""
    listed = reading.one(connection, conversation, summary, open_blob).compacted_message_ids or []
    found = []
    for rkey in listed:
        try:
            found.append(reading.one(connection, conversation, rkey, open_blob))
        except NotFound:
            continue
    return _cut(found, anchor, limit)


def compactions(connection: Connection, conversation: str) -> list[CompactionPoint]:
    """The summaries of a conversation by seq."""
    number = find_conversation_id(connection, conversation)
    return [_point(row) for row in _all_points.all(connection, id=number)]


def covering(connection: Connection, conversation: str, rkey: str) -> list[CompactionPoint]:
    """The summaries that cover a message, from the one that lists it to the outermost.

    Lists that go in a circle end before the first summary that comes again.
    """
    number = find_conversation_id(connection, conversation)
    found: dict[str, CompactionPoint] = {}
    above = _covered_by.one(connection, id=number, key=rkey)
    while above is not None and above[0] is not None and above[0] not in found:
        row = _one_point.one(connection, id=number, key=above[0])
        if row is None:
            break
        found[above[0]] = point = _point(row)
        above = (point.covered_by,)
    return list(found.values())


def ticks(connection: Connection, conversation: str, view: View, count: int) -> list[Tick]:
    """At most `count` messages, summaries not among them, that divide a conversation evenly by
    seq, in order; the first and the last message are among them."""
    number = find_conversation_id(connection, conversation)
    sides = (1,) if view == "window" else (1, 0)

    def seek(statement: Statement, **values: Any) -> list[Tick]:
        rows = [statement.one(connection, id=number, side=side, **values) for side in sides]
        return [Tick(*row) for row in rows if row is not None]

    ends = seek(_at_or_after, place=0) + seek(_last_tick)
    if not ends or count < 1:
        return []
    low, high = min(each.seq for each in ends), max(each.seq for each in ends)
    steps = max(count - 1, 1)
    places = [low + (high - low) * step // steps for step in range(count)]
    near = (min(seek(_at_or_after, place=place), key=lambda tick: tick.seq) for place in places)
    return list({tick.rkey: tick for tick in near}.values())


def _point(row: Row) -> CompactionPoint:
    rkey, seq, place, created_at, last_ordinal, first, last, covered_by = row
    covers = 0 if last_ordinal is None else last_ordinal + 1
    return CompactionPoint(rkey, seq, place, created_at, covers, first, last, covered_by)


def _cut(messages: list[Message], anchor: Anchor, limit: int) -> Page:
    rkeys = [message.rkey for message in messages]
    match anchor:
        case First():
            start, end = 0, limit
        case Last():
            start, end = len(rkeys) - limit, len(rkeys)
        case At(tid):
            start = rkeys.index(tid) - limit // 2
            end = start + limit
        case From(tid):
            start = rkeys.index(tid)
            end = start + limit
        case Before(tid):
            end = rkeys.index(tid)
            start = end - limit
        case After(tid):
            start = rkeys.index(tid) + 1
            end = start + limit
    start, end = max(start, 0), min(end, len(rkeys))
    some = messages[start:end]
    return Page(
        some,
        some[0].rkey if some and start > 0 else None,
        some[-1].rkey if some and end < len(rkeys) else None,
    )
