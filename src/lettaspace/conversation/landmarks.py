"""Landmarks of a conversation: its points of compaction, and messages to find one's way by."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, false, select, true

from lettaspace.conversation.index import find_conversation_id
from lettaspace.space.schema import message_covers, message_index
from lettaspace.space.statement import Row, Statement

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


def ticks(connection: Connection, conversation: str, *, window: bool, count: int) -> list[Tick]:
    """At most `count` messages, summaries not among them, that divide a conversation evenly by
    seq, in order; the first and the last message are among them."""
    number = find_conversation_id(connection, conversation)
    sides = (1,) if window else (1, 0)

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
