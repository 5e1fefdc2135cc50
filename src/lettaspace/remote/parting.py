"""Parting: the records that put one side of a divergence into a fork, and the other in order.

The fork has copies of what both sides have in common, with derived keys, and then the messages
of the side that moves, under their own. Each of the two conversations is left with the window
that its side's machine had.
"""

from collections.abc import Collection
from functools import cached_property
from itertools import count

from sqlalchemy import func, literal, or_, select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_tid
from lettaspace.conversation.forking import strong_ref
from lettaspace.conversation.origins import copied, copy_tid, is_fork, near
from lettaspace.conversation.records import (
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    Address,
    new_message,
)
from lettaspace.remote.arranging import Item, Layout, common, window
from lettaspace.remote.merging import divergence, later, parted_from, with_divergences
from lettaspace.space import schema
from lettaspace.space.view import View
from lettaspace.space.writes import Create, Update, Value, Write

MAX_TITLE = 8192
"""The most bytes of a title."""

_MARK = " (fork)"


class Conversation:
    """A conversation of the author's own, as far as it is stored."""

    def __init__(self, view: View, address: Address, uri: str) -> None:
        self.view = view
        self.address = address
        self.uri = uri
        self.rkey = uri.removeprefix(address.conversation(""))
        self.record = view.get(CONVERSATION, self.rkey) if is_tid(self.rkey) else None

    def at(self, uri: str) -> "Conversation":
        return Conversation(self.view, self.address, uri)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.view, self.uri)

    @property
    def parent(self) -> str | None:
        """The conversation that it left."""
        left = None if self.record is None else self.record.value.get("forkedFrom")
        return None if left is None else str(left["conversation"]["uri"])

    def left(self, source: "Conversation") -> bool:
        """Whether this is a fork of another conversation. Where two machines began that one there
        is no message to have left it at, and only the key tells."""
        if self.parent is not None:
            return self.parent == source.uri
        return any(is_fork(self.rkey, source.rkey, rkey) for rkey in self.layout.items)

    def copies(self, rkeys: Collection[str]) -> set[str]:
        """Those of the messages that have the key of a copy."""
        if self.parent is None:
            return set()
        found = set(copied(self.rkey, rkeys, Layout(self.view, self.parent).items))
        # What they are copies of may have moved since.
        rest = set(rkeys) - found
        originals = near(self.view.connection, self.view.repo, rest)
        return found | set(copied(self.rkey, rest, originals))

    def copied(self, rkeys: Collection[str]) -> set[str]:
        """Those of its messages that a fork has a copy of under a derived key: a fork of this
        conversation, or of one in which they stood before."""
        records = schema.records.c
        names = or_(*(func.instr(records.value, literal(uri.encode())) > 0 for uri in self.line()))
        forks = self.view.connection.execute(
            select(records.rkey).where(
                records.repo == self.view.repo, records.collection == CONVERSATION, names
            )
        )
        found: set[str] = set()
        for rkey in forks.scalars().all():
            there = Layout(self.view, self.address.conversation(rkey)).items
            found.update(copied(rkey, there, rkeys).values())
        return found

    def line(self) -> list[str]:
        """This conversation, the one that it was parted from, and so on."""
        line = [self.uri]
        while (last := self.at(line[-1])).record is not None:
            left = last.parent
            if left is None:
                # Where two machines began one, only the marks tell.
                state = self.view.get(CONVERSATION_STATE, last.rkey)
                others = parted_from([] if state is None else state.value.get("damage", []))
                older = [other for other in others if other < last.rkey]
                left = self.address.conversation(max(older)) if older else None
            if left is None or left in line:
                break
            line.append(left)
        return line

    def sides(self, ours: Collection[str], theirs: Collection[str]) -> tuple[set[str], set[str]]:
        """Those of both that stand here. A copy is nobody's, nor is what both have."""
        mine = self.layout.items.keys() & set(ours)
        others = self.layout.items.keys() & set(theirs)
        nobodys = (mine & others) | self.copies(mine | others)
        return mine - nobodys, others - nobodys


class Parting:
    """Moves `loser`, the TIDs of messages in `source`, to `fork`; `winner` stays.

    The fork may be there already, with all of it or a part. `source` has its record.
    """

    def __init__(
        self,
        source: Conversation,
        fork: Conversation,
        loser: Collection[str],
        winner: Collection[str],
    ) -> None:
        self.source = source
        self.fork = fork
        self.loser = loser
        self.winner = winner
        self.copies: dict[str, str] = {}
        """The keys of the copies in the fork, by their originals."""
        self._base = common(source.layout, loser, winner)

    def writes(self) -> list[Write]:
        """All that is to be written. The layouts of both are then as it will be."""
        source, fork = self.source.layout, self.fork.layout
        moving = window(source, self._base, self.loser, self.winner)
        staying = window(source, self._base, self.winner, self.loser)
        records = self._records()
        is_new = not fork.items
        self._copy()
        self._move()
        if is_new:
            moving = [self.copies.get(rkey, rkey) for rkey in moving]
        else:
            moving = window(fork, common(fork, self.loser), self.loser)
        fork.arrange(moving, self.loser)
        source.arrange(staying, self.winner)
        # Whatever part of it arrives elsewhere: a copy is there before its original's branch
        # goes, and what a summary lists is active before the summary goes.
        writes = fork.writes()
        copies = [write for write in writes if isinstance(write, Create)]
        moves = [write for write in writes if not isinstance(write, Create)]
        return [*records, *copies, *source.writes(), *moves]

    def _records(self) -> list[Write]:
        """The fork's records beside its messages, and the marks on both conversations."""
        source, fork = self.source, self.fork
        mark = _mark(source, fork.rkey)
        if fork.record is not None or source.record is None:
            return [*mark, *_mark(fork, source.rkey)]
        at = source.layout.value(min(self.loser))["createdAt"]
        value: Value = {"agent": source.record.value["agent"], "createdAt": at}
        if (message := self._last()) is not None:
            conversation = strong_ref(source.uri, source.record.cid)
            value["forkedFrom"] = {"conversation": conversation, "message": message}
        new = [
            Create(CONVERSATION, fork.rkey, value),
            Create(CONVERSATION_STATE, fork.rkey, self._state(at)),
        ]
        prompt = source.view.get(COMPILED_PROMPT, source.rkey)
        if prompt is not None:
            new.append(
                Create(COMPILED_PROMPT, fork.rkey, {**prompt.value, "conversation": fork.uri})
            )
        # What there is of them was written by another machine, and is the same.
        missing = [each for each in new if not _has(source.view, each)]
        return [*missing, *mark]

    def _last(self) -> Value | None:
        """The last message that both have in common: as it is first in the fork, but for its
        conversation. Every machine can tell that, whatever was made of its marks and seqs."""
        layout = self.source.layout
        both = [
            item
            for rkey, item in layout.items.items()
            if rkey not in self.loser and rkey not in self.winner
        ]
        if self._base:
            rkey, seq = self._base[-1], len(self._base)
        elif both:
            last = max(both, key=lambda item: item.place)
            rkey, seq = last.place[::-1]
        else:
            return None
        first = _first(layout.value(rkey), self.source.uri, seq)
        uri = self.source.address.uri(MESSAGE, rkey)
        return strong_ref(uri, CID.for_cbor(cbor.encode(first)))

    def _state(self, at: str) -> Value:
        state: Value = {"conversation": self.fork.uri, "updatedAt": at}
        stored = self.source.view.get(CONVERSATION_STATE, self.source.rkey)
        known: Value = {} if stored is None else stored.value
        if title := known.get("title"):
            room = MAX_TITLE - len(_MARK)
            state["title"] = title.encode()[:room].decode(errors="ignore") + _MARK
        if "cwd" in known:
            state["cwd"] = known["cwd"]
        return {**state, "damage": [divergence(self.source.rkey)]}

    def _copy(self) -> None:
        """Gives the fork the copies that it lacks."""
        view, items = self.fork.view, self.fork.layout.items
        numbers = {rkey: number for number, rkey in enumerate(self._base, 1)}
        wanted = {original: copy_tid(self.fork.rkey, original) for original in sorted(numbers)}
        stored = set(view.cids(MESSAGE, list(wanted.values())))
        taken: set[str] = set()
        for original, rkey in wanted.items():
            for probe in count(1):
                if rkey not in taken and (rkey in items or rkey not in stored):
                    break
                # Another message of the same millisecond has it.
                rkey = copy_tid(self.fork.rkey, original, probe)
                stored |= set(view.cids(MESSAGE, [rkey]))
            taken.add(rkey)
            self.copies[original] = rkey
            if rkey not in items:
                value = self.source.layout.value(original)
                number = numbers[original]
                new = _first(value, self.fork.uri, number)
                items[rkey] = Item(rkey, number, new=new)

    def _move(self) -> None:
        source, fork = self.source.layout.items, self.fork.layout.items
        items = [source.pop(rkey) for rkey in self.loser]
        top = max(self.fork.layout.top(), len(self._base))
        up = top + 1 - min(item.seq for item in items)
        known = {rkey: rkey for rkey in (*fork, *self.loser)} | self.copies
        for item in items:
            seq, listed = item.seq + up, item.covers
            if listed is not None:
                listed = [known[rkey] for rkey in listed if rkey in known]
            fork[item.rkey] = Item(item.rkey, seq, item.active, listed, item.touched)
        for item in source.values():
            if item.covers is not None:
                item.covers = [rkey for rkey in item.covers if rkey not in self.loser]


def _first(value: Value, conversation: str, seq: int) -> Value:
    """A message as it would first be written in a conversation."""
    message, created_at = value["message"], value["createdAt"]
    return new_message(conversation, value["agent"], value["role"], seq, message, created_at)


def _mark(conversation: Conversation, other: str) -> list[Write]:
    """What says of a conversation that it was parted from another one."""
    if conversation.record is None:
        return []
    stored = conversation.view.get(CONVERSATION_STATE, conversation.rkey)
    entry = divergence(other)
    if stored is None:
        at = conversation.record.value["createdAt"]
        state = {"conversation": conversation.uri, "updatedAt": at, "damage": [entry]}
        return [Create(CONVERSATION_STATE, conversation.rkey, state)]
    damage = stored.value.get("damage", [])
    if entry in damage:
        return []
    state = {**stored.value, "damage": with_divergences(damage, [entry])}
    state["updatedAt"] = later(stored.value)
    return [Update(CONVERSATION_STATE, conversation.rkey, state)]


def _has(view: View, new: Create) -> bool:
    return new.rkey is not None and view.get(new.collection, new.rkey) is not None
