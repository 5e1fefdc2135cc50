"""Arranging: a conversation's messages in memory, put in order so that every reader sees it.

The window that one side of a divergence had is worked out from what both sides left: the
messages that both know, in one order, and its own. Then marks and seqs are made to say that
window, and only what differs from what is stored is written.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import bindparam, select

from lettaspace.atproto.cid import CID
from lettaspace.conversation import reading
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.message import Message
from lettaspace.conversation.pairing import Ledger, answers
from lettaspace.conversation.records import COMPACTED, MESSAGE
from lettaspace.conversation.writing import message_value
from lettaspace.remote.merging import later, settles
from lettaspace.space import schema
from lettaspace.space.statement import Statement
from lettaspace.space.view import View
from lettaspace.space.writes import Create, Update, Value, Write

_index = schema.message_index.c
_covers = schema.message_covers.c

_own = Statement(
    lambda: (
        select(_index.rkey, _index.seq, _index.active, _index.summary, _index.updated_at)
        .join(schema.records, schema.records.c.id == _index.record)
        .where(_index.conversation == bindparam("id"), schema.records.c.repo == bindparam("repo"))
    )
)
_lists = Statement(
    lambda: (
        select(_covers.summary, _covers.covered)
        .where(_covers.conversation == bindparam("id"))
        .order_by(_covers.summary, _covers.ordinal)
    )
)


@dataclass(slots=True)
class Item:
    """A message: what of its record changes with its place."""

    rkey: str
    seq: int
    active: bool = True
    """By its own status."""
    covers: list[str] | None = None
    """What a summary lists."""
    touched: bool = False
    """It was written again since; otherwise it has the seq that it was given at first."""
    new: Value | None = None
    """The record of one that is not stored yet."""
    stored: "tuple[int, bool, list[str] | None] | None" = None
    """How its place is stored in this conversation."""

    @property
    def place(self) -> tuple[int, str]:
        return self.seq, self.rkey


class Layout:
    """The messages of one conversation."""

    def __init__(self, view: View, conversation: str) -> None:
        self.view = view
        self.conversation = conversation
        self.items: dict[str, Item] = {}
        number = find_conversation_id(view.connection, conversation)
        if number is None:
            return
        for rkey, seq, active, summary, updated_at in _own.all(
            view.connection, id=number, repo=view.repo
        ):
            covers: list[str] | None = [] if summary else None
            self.items[rkey] = Item(rkey, seq, active, covers, updated_at is not None)
        for summary, covered in _lists.all(view.connection, id=number):
            if (item := self.items.get(summary)) is not None and item.covers is not None:
                item.covers.append(covered)
        for item in self.items.values():
            item.stored = item.seq, item.active, _copied(item.covers)

    def value(self, rkey: str) -> Value:
        new = self.items[rkey].new
        return new if new is not None else message_value(self.view, rkey)

    def ties(self) -> list[list[Item]]:
        """The messages that share a seq with others."""
        by_seq: defaultdict[int, list[Item]] = defaultdict(list)
        for item in self.items.values():
            by_seq[item.seq].append(item)
        return [items for items in by_seq.values() if len(items) > 1]

    def covered(self, by: Iterable[str]) -> set[str]:
        """What these messages list."""
        return {each for rkey in by for each in self.items[rkey].covers or ()}

    def top(self) -> int:
        return max((item.seq for item in self.items.values()), default=0)

    def arrange(self, window: Sequence[str], own: Collection[str] = ()) -> None:
        """Makes marks and seqs say that `window` is the window, in this order.

        What no summary lists and is not in the window stays as it is marked; if that is active,
        it stands at the end. Of compacted messages that share a seq, one of `own` keeps it.
        """
        covered = self.covered(self.items)
        inside = dict.fromkeys(window)
        for item in sorted(self.items.values(), key=lambda item: item.place):
            item.active = item.rkey in inside or (item.active and item.rkey not in covered)
            if item.active:
                inside.setdefault(item.rkey)
        top = self.top()
        outside = [item for item in self.items.values() if item.rkey not in inside]
        used: set[int] = set()
        for item in sorted(outside, key=lambda item: (item.seq, item.rkey not in own, item.rkey)):
            if item.seq in used:
                top = item.seq = top + 1
            used.add(item.seq)
        last = 0
        for rkey in inside:
            item = self.items[rkey]
            if item.seq <= last or item.seq in used:
                top = item.seq = top + 1
            last = item.seq

    def writes(self) -> list[Write]:
        """What is to be written so that the records say how the messages stand here."""
        return [write for item in self._in_order() if (write := self._write(item)) is not None]

    def _in_order(self) -> list[Item]:
        """Summaries first, the latest before those it lists: what states the intent before the
        marks that follow from it."""
        items = sorted(self.items.values(), key=lambda item: item.place)
        summaries = [item for item in reversed(items) if item.covers is not None]
        return summaries + [item for item in items if item.covers is None]

    def _write(self, item: Item) -> Write | None:
        if item.new is not None:
            return Create(MESSAGE, item.rkey, self._placed(item.new, item))
        if item.stored == (item.seq, item.active, item.covers):
            return None
        stored = message_value(self.view, item.rkey)
        return Update(
            MESSAGE, item.rkey, {**self._placed(stored, item), "updatedAt": later(stored)}
        )

    def _placed(self, value: Value, item: Item) -> Value:
        value = {**value, "conversation": self.conversation, "seq": item.seq}
        if item.covers is not None:
            value["compactedMessageIds"] = item.covers
        if not item.active:
            value["status"] = COMPACTED
        elif value.get("status") == COMPACTED:
            del value["status"]
        return value


class Key(NamedTuple):
    """Where a message stands among those of one side: behind which of the messages that both
    know, and among its own there."""

    behind: int
    own: int = 0
    seq: int = 0
    rkey: str = ""


def common(layout: Layout, *sides: Collection[str]) -> list[str]:
    """The window without what the sides did to it, in order: what is none of theirs and was
    active before any summary of theirs."""
    base = [rkey for rkey in layout.items if not any(rkey in side for side in sides)]
    covered = layout.covered(base)
    marked = {rkey for side in sides for rkey in layout.covered(side)}
    places = {rkey: layout.items[rkey].seq for rkey in base}
    for item in sorted((layout.items[rkey] for rkey in base), key=lambda item: item.place):
        earlier = [places[each] for each in item.covers or () if each in places]
        places[item.rkey] = min([item.seq, *earlier])
    inside = [
        rkey
        for rkey in base
        if rkey not in covered and (layout.items[rkey].active or rkey in marked)
    ]
    return sorted(inside, key=lambda rkey: (places[rkey], rkey))


def window(
    layout: Layout, base: Sequence[str], own: Collection[str], others: Collection[str] = ()
) -> list[str]:
    """The window of the side that has `own`, in order; `base` is what `common` gave."""
    keys = {rkey: Key(at) for at, rkey in enumerate(base)}
    keys |= _own_keys(layout, base, own)
    summaries = [layout.items[rkey] for rkey in own if layout.items[rkey].covers is not None]
    for item in sorted(summaries, key=lambda item: item.place):
        # Where the first of what it lists stood, before whatever of that stays.
        listed = [keys[each] for each in item.covers or () if each in keys]
        keys[item.rkey] = min([keys[item.rkey], *listed])
    covered = layout.covered(rkey for rkey in layout.items if rkey not in others)
    marked = layout.covered(others)
    inside = [
        rkey
        for rkey in keys
        if rkey not in covered and (rkey not in own or layout.items[rkey].active or rkey in marked)
    ]
    return sorted(inside, key=lambda rkey: (keys[rkey], rkey))


def _own_keys(layout: Layout, base: Sequence[str], own: Collection[str]) -> dict[str, Key]:
    """Behind everything, but for results that settled calls of earlier messages."""
    items = sorted((layout.items[rkey] for rkey in own), key=lambda item: item.place)
    keys = {item.rkey: Key(len(base), 1, *item.place) for item in items}
    values = {item.rkey: layout.value(item.rkey) for item in items}
    # A result that was appended has its first seq, unless a compaction gave it another.
    early = [
        item
        for item in items
        if values[item.rkey]["role"] == "toolResult"
        and (item.touched or settles(values[item.rkey]))
    ]
    if not early:
        return keys
    messages = [_message(layout, rkey) for rkey in base]
    shown = [_message(layout, item.rkey) for item in items if item.covers is None]
    called = {
        shown[at - len(base)].rkey: each.at
        for each in Ledger([*messages, *shown]).calls
        for at in each.results
        if each.at < len(base) <= at
    }
    compactions = {
        values[item.rkey]["createdAt"]: item for item in items if item.covers is not None
    }
    for item in early:
        if (owner := called.get(item.rkey)) is None:
            continue
        value = values[item.rkey]
        behind = owner
        while behind + 1 < len(base) and answers(messages[behind + 1]) is not None:
            behind += 1
        if not settles(value):
            compaction = compactions.get(value.get("updatedAt"))
            if compaction is not None:
                behind = _behind(layout, base, items, compaction, item)
            elif any(layout.items[rkey].seq < item.seq for rkey in base[behind + 1 :]):
                continue
        if behind < len(base) - 1:
            keys[item.rkey] = Key(behind, 1, *item.place)
    return keys


def _behind(
    layout: Layout, base: Sequence[str], own: Sequence[Item], compaction: Item, kept: Item
) -> int:
    """Behind which common message one stands that a compaction kept: it gave what it kept seqs
    in a row, whatever others have given the common ones since."""
    earlier = [item.rkey for item in own if item.place <= compaction.place]
    covered = layout.covered(earlier)
    tail = [at for at, rkey in enumerate(base) if rkey not in covered]
    before = kept.seq - compaction.seq - 1
    before -= sum(compaction.seq < item.seq < kept.seq for item in own)
    return tail[before - 1] if 0 < before <= len(tail) else len(base)


def _message(layout: Layout, rkey: str) -> Message:
    value = layout.value(rkey)
    return reading.fresh("", rkey, CID.for_raw(b""), value, layout.view.get_blob)


def _copied(covers: list[str] | None) -> list[str] | None:
    return None if covers is None else list(covers)
