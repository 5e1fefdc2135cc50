"""Ranges of the message index: what stands behind or before a message, a chunk at a time."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, false, func, select, true, tuple_

from lettaspace.space.schema import message_covers, message_index
from lettaspace.space.statement import Statement

_index = message_index.c
_covers = message_covers.c

_CHUNK, _MAX_CHUNK = 32, 512

_HIGH = (1 << 63) - 1
_START, _END = (-1, "", 0), (_HIGH, "~", _HIGH)


class Node(NamedTuple):
    """A message of the index without its record."""

    place: int
    rkey: str
    record: int
    summary: int
    covered_by: str | None
    in_window: int
    ordinal: int = 0
    """Where it stands in the list of the summary that it was looked up in."""

    @property
    def key(self) -> tuple[int, str, int]:
        return self[:3]

    @property
    def unlisted(self) -> "Node":
        return self._replace(ordinal=0)

    @property
    def at(self) -> tuple[int, int]:
        return (self.ordinal, self.record)


_columns = (
    _index.place,
    _index.rkey,
    _index.record,
    _index.summary,
    _index.covered_by,
    _index.in_window,
)
_mine = _index.conversation == bindparam("id")
_key = (_index.place, _index.rkey, _index.record)
_bound_key = tuple_(bindparam("place"), bindparam("rkey"), bindparam("record"))


def _range(condition: Any, up: bool) -> Statement:
    def build() -> Select[Any]:
        beyond = tuple_(*_key) > _bound_key if up else tuple_(*_key) < _bound_key
        order = _key if up else [column.desc() for column in _key]
        query = select(*_columns).where(_mine, condition, beyond)
        return query.order_by(*order).limit(bindparam("limit"))

    return Statement(build)


def _list(condition: Any, up: bool) -> Statement:
    def build() -> Select[Any]:
        again = message_covers.alias()
        listed = (_covers.ordinal, _index.record)
        bound = tuple_(bindparam("ordinal"), bindparam("record"))
        return (
            select(*_columns, _covers.ordinal)
            .select_from(message_covers)
            .join(
                message_index,
                and_(_index.conversation == _covers.conversation, _index.rkey == _covers.covered),
            )
            .where(
                _covers.conversation == bindparam("id"),
                _covers.summary == bindparam("summary"),
                tuple_(*listed) > bound if up else tuple_(*listed) < bound,
                condition,
                ~select(again.c.ordinal)
                .where(
                    again.c.conversation == _covers.conversation,
                    again.c.covered == _covers.covered,
                    again.c.summary == _covers.summary,
                    again.c.ordinal < _covers.ordinal,
                )
                .exists(),
            )
            .order_by(*(listed if up else [column.desc() for column in listed]))
            .limit(bindparam("limit"))
        )

    return Statement(build)


_in_window = _index.in_window == true()
# In the words of the partial index, or SQLite would not use it.
_loose = and_(_index.active == false(), _index.covered_by.is_(None))
_own = _index.covered_by == _covers.summary

WINDOW = {up: _range(_in_window, up) for up in (True, False)}
LOOSE = {up: _range(_loose, up) for up in (True, False)}
OWN = {up: _list(_own, up) for up in (True, False)}
LISTED = {up: _list(true(), up) for up in (True, False)}

_find = Statement(
    lambda: (
        select(*_columns)
        .where(_mine, _index.rkey == bindparam("rkey"))
        .order_by(_index.record)
        .limit(1)
    )
)
_find_summary = Statement(
    lambda: (
        select(*_columns)
        .where(_mine, _index.rkey == bindparam("rkey"), _index.summary == true())
        .order_by(_index.record)
        .limit(1)
    )
)
_ordinal = Statement(
    lambda: select(func.min(_covers.ordinal)).where(
        _covers.conversation == bindparam("id"),
        _covers.covered == bindparam("rkey"),
        _covers.summary == bindparam("summary"),
    )
)
_covered_summaries = Statement(
    lambda: (
        select(*_columns)
        .where(_mine, _index.summary == true(), _index.covered_by.is_not(None))
        # Asks for the index of summaries; without an order SQLite walks the conversation.
        .order_by(_index.seq)
    )
)


class Ranges:
    """The ranges of one conversation's index."""

    def __init__(self, connection: Connection, conversation: int | None) -> None:
        self.connection = connection
        self.id = conversation

    def find(self, rkey: str) -> Node | None:
        row = _find.one(self.connection, id=self.id, rkey=rkey)
        return None if row is None else Node(*row)

    def summary(self, rkey: str) -> Node | None:
        row = _find_summary.one(self.connection, id=self.id, rkey=rkey)
        return None if row is None else Node(*row)

    def ordinal(self, rkey: str, summary: str) -> int | None:
        """The first place of a message in a summary's list."""
        row = _ordinal.only(self.connection, id=self.id, rkey=rkey, summary=summary)
        return None if row[0] is None else int(row[0])

    def range(self, of: dict[bool, Statement], beyond: Node | None, *, up: bool) -> Iterator[Node]:
        """Messages by place on one side of a message; None: all."""

        def fetch(last: Node | None, limit: int) -> list[Node]:
            place, rkey, record = last.key if last else (_START if up else _END)
            rows = of[up].all(
                self.connection, id=self.id, place=place, rkey=rkey, record=record, limit=limit
            )
            return [Node(*row) for row in rows]

        return _chunks(fetch, beyond)

    def listed(
        self, of: dict[bool, Statement], summary: str, beyond: Node | None, *, up: bool
    ) -> Iterator[Node]:
        """What a summary lists on one side of a message in its list; None: all."""

        def fetch(last: Node | None, limit: int) -> list[Node]:
            ordinal, record = last.at if last else ((-1, 0) if up else (_HIGH, _HIGH))
            rows = of[up].all(
                self.connection,
                id=self.id,
                summary=summary,
                ordinal=ordinal,
                record=record,
                limit=limit,
            )
            return [Node(*row) for row in rows]

        return _chunks(fetch, beyond)

    def circles(self) -> list[Node]:
        """The earliest summary of each circle of lists, in order."""
        rows = _covered_summaries.all(self.connection, id=self.id)
        known: dict[str, Node] = {}
        for node in sorted((Node(*row) for row in rows), key=lambda node: node.record):
            known.setdefault(node.rkey, node)
        found: list[Node] = []
        done: set[str] = set()
        for start in known:
            path: dict[str, Node] = {}
            at: str | None = start
            while at is not None and at in known and at not in done and at not in path:
                path[at] = known[at]
                at = known[at].covered_by
            if at in path:
                names = list(path)
                found.append(min(path[name] for name in names[names.index(at) :]))
            done.update(path)
        return sorted(found)


def _chunks(fetch: Callable[[Node | None, int], list[Node]], last: Node | None) -> Iterator[Node]:
    limit = _CHUNK
    while True:
        nodes = fetch(last, limit)
        yield from nodes
        if len(nodes) < limit:
            return
        last = nodes[-1]
        limit = min(limit * 2, _MAX_CHUNK)
