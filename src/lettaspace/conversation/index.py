"""The index of messages: which stand in a conversation's window, and in what order.

A projection of the `message` records of a store. What the contract says of reading is worked
out here, when records are written, so that reading is one range of an index:

- a message is in the window when its status is not "compacted" and no summary lists it: the
  summary alone states the intent, whatever became of the marks;
- it stands at its seq; a summary stands where the earliest of what it covers stood, so that
  the window is right whether or not the writer gave the kept tail new seqs;
- messages that share a place are ordered by TID.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, delete, func, insert, select, update

from lettaspace.conversation import formats
from lettaspace.conversation.formats import names
from lettaspace.conversation.records import MESSAGE, is_active
from lettaspace.space.projection import Change
from lettaspace.space.schema import message_conversations, message_covers, message_index
from lettaspace.space.statement import Statement
from lettaspace.space.writes import Value

_index = message_index.c
_covers = message_covers.c

_one = and_(_index.conversation == bindparam("id"), _index.rkey == bindparam("key"))
_listing = and_(_covers.conversation == bindparam("id"), _covers.covered == bindparam("key"))
_listed = and_(_covers.conversation == bindparam("id"), _covers.summary == bindparam("key"))

_find_conversation = Statement(
    lambda: select(message_conversations.c.id).where(
        message_conversations.c.uri == bindparam("uri")
    )
)
_add_conversation = Statement(lambda: insert(message_conversations).values(uri=bindparam("uri")))
_add = Statement(lambda: insert(message_index))
_drop = Statement(lambda: delete(message_index).where(_one, _index.record == bindparam("record")))
_mark = Statement(
    lambda: (
        update(message_index)
        .where(_one)
        .values(
            covered_by=bindparam("summary"),
            in_window=case((bindparam("covered") == 1, 0), else_=_index.active),
        )
    )
)
_seq = Statement(lambda: select(_index.seq).where(_one))
_add_cover = Statement(lambda: insert(message_covers))
_drop_covers = Statement(lambda: delete(message_covers).where(_listed))
_covered_of = Statement(lambda: select(_covers.covered).where(_listed))
_summaries_of = Statement(lambda: select(_covers.summary).where(_listing).order_by(_covers.summary))
_any_cover = Statement(
    lambda: select(_covers.ordinal).where(_covers.conversation == bindparam("id")).limit(1)
)
_count_summaries = Statement(
    lambda: select(func.count(_covers.summary.distinct())).where(
        _covers.conversation == bindparam("id")
    )
)


def _place_statement() -> Any:
    # The place of each covered message by a lookup of its own: given a join to plan, SQLite
    # would walk the whole conversation instead.
    covered = message_index.alias("covered")
    place_of = (
        select(func.min(covered.c.place))
        .where(covered.c.conversation == _covers.conversation, covered.c.rkey == _covers.covered)
        .scalar_subquery()
    )
    earliest = (
        select(func.min(place_of))
        .where(_covers.conversation == _index.conversation, _covers.summary == _index.rkey)
        .scalar_subquery()
    )
    place = case((earliest < _index.seq, earliest), else_=_index.seq)
    return (
        update(message_index)
        .where(_one, _index.place != place)
        .values(place=place)
        .returning(_index.rkey)
    )


_place = Statement(_place_statement)


class MessageIndex:
    """The projection. Stateless."""

    collections = frozenset({MESSAGE})

    def clear(self, connection: Connection) -> None:
        # Conversations keep their numbers: the keys of appends are kept by them.
        for table in (message_index, message_covers):
            connection.execute(delete(table))

    def apply(self, connection: Connection, changes: Sequence[Change]) -> None:
        ids: dict[str, int] = {}
        by_conversation: dict[int, _Entries] = {}
        for change in changes:
            # A rewritten message may even name another conversation: it leaves the old one.
            for value, is_new in ((change.old, False), (change.new, True)):
                if value is None:
                    continue
                uri = value["conversation"]
                if uri not in ids:
                    ids[uri] = conversation_id(connection, uri)
                entries = by_conversation.setdefault(ids[uri], _Entries([], []))
                (entries.added if is_new else entries.dropped).append((change, value))
        for conversation, entries in by_conversation.items():
            _Conversation(connection, conversation).apply(entries)


@dataclass(frozen=True, slots=True)
class _Entries:
    dropped: list[tuple[Change, Value]]
    added: list[tuple[Change, Value]]


class _Conversation:
    """One conversation's rows while a batch is applied."""

    def __init__(self, connection: Connection, conversation: int) -> None:
        self.connection = connection
        self.id = conversation

    def apply(self, entries: _Entries) -> None:
        released = self._drop(entries.dropped)
        _add.many(self.connection, [self._row(*entry) for entry in entries.added])
        lists = {
            change.rkey: value["compactedMessageIds"]
            for change, value in entries.added
            if value.get("compactedMessageIds")
        }
        for summary, covered in lists.items():
            self._list(summary, covered)
        if not (released or lists) and _any_cover.one(self.connection, id=self.id) is None:
            return
        touched = {change.rkey for change, _ in entries.dropped + entries.added}
        summaries = set(lists)
        for rkey in chain(touched.difference(released), released, *lists.values()):
            summaries.update(self._mark(rkey, rkey in released))
        self._place(summaries)

    def _row(self, change: Change, value: Value) -> dict[str, Any]:
        active = int(is_active(value))
        return {
            "conversation": self.id,
            "rkey": change.rkey,
            "record": change.record,
            "seq": value["seq"],
            "place": value["seq"],
            "active": active,
            "covered_by": None,
            "in_window": active,
            "summary": int("compactedMessageIds" in value),
            "settles": _settled_call(value),
            "created_at": value["createdAt"],
            "updated_at": value.get("updatedAt"),
        }

    def _list(self, summary: str, covered: Sequence[str]) -> None:
        _add_cover.many(
            self.connection,
            (
                {"conversation": self.id, "summary": summary, "ordinal": at, "covered": rkey}
                for at, rkey in enumerate(covered)
                if rkey != summary
            ),
        )

    def _drop(self, entries: Sequence[tuple[Change, Value]]) -> set[str]:
        """Removes rows; returns what summaries among them had covered."""
        released: set[str] = set()
        for change, value in entries:
            _drop.run(self.connection, id=self.id, key=change.rkey, record=change.record)
            if "compactedMessageIds" in value:
                covered = _covered_of.all(self.connection, id=self.id, key=change.rkey)
                released.update(rkey for (rkey,) in covered)
                _drop_covers.run(self.connection, id=self.id, key=change.rkey)
        return released

    def _mark(self, rkey: str, released: bool) -> list[str]:
        """Notes which summary covers a message; returns all that list it. If more than one
        does, the smallest TID counts."""
        summaries = [row[0] for row in _summaries_of.all(self.connection, id=self.id, key=rkey)]
        if summaries or released:
            _mark.run(
                self.connection,
                id=self.id,
                key=rkey,
                summary=summaries[0] if summaries else None,
                covered=int(bool(summaries)),
            )
        return summaries

    def _place(self, summaries: set[str]) -> None:
        """Works out where summaries stand, then those that cover them, upwards."""
        if not summaries:
            return
        # No chain of summaries is longer than their number; one that goes in a circle, which
        # only a broken writer makes, ends there too.
        for _ in range(_count_summaries.only(self.connection, id=self.id)[0]):
            moved = [
                rkey
                for summary in self._in_order(summaries)
                for (rkey,) in _place.all(self.connection, id=self.id, key=summary)
            ]
            summaries = {
                summary
                for rkey in moved
                for (summary,) in _summaries_of.all(self.connection, id=self.id, key=rkey)
            }
            if not summaries:
                return

    def _in_order(self, summaries: set[str]) -> list[str]:
        # By seq, what a summary covers comes before it, so one pass settles a whole chain.
        seqs = {
            rkey: _seq.all(self.connection, id=self.id, key=rkey) or [(0,)] for rkey in summaries
        }
        return sorted(summaries, key=lambda rkey: (seqs[rkey][0][0], rkey))


def _settled_call(value: Value) -> str | None:
    """On a placeholder: the first half of the call's id, by which every result names it."""
    if value["role"] != "toolResult":
        return None
    known, data = formats.of(value), value["message"]["data"]
    if known is None or not known.is_placeholder(data):
        return None
    return names(known.answers(data) or "")[-1]


def find_conversation_id(connection: Connection, uri: str) -> int | None:
    """The row of a conversation; None where no message names it."""
    row = _find_conversation.one(connection, uri=uri)
    return None if row is None else int(row[0])


def conversation_id(connection: Connection, uri: str) -> int:
    """The row of a conversation, added when it is new."""
    row = _find_conversation.one(connection, uri=uri)
    if row is None:
        _add_conversation.run(connection, uri=uri)
        row = _find_conversation.only(connection, uri=uri)
    return int(row[0])
