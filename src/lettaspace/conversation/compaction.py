"""Compaction: a summary takes the place of the first part of a window.

Nothing is deleted. The summary lists the TIDs of what it covers; those are marked compacted
and keep their seq; the kept tail gets new seqs after the summary. The summary alone states
the intent: it is written first, and whatever of the rest a crash cuts off, readers see the
right window and `repair` finishes the marks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select

from lettaspace.conversation.index import conversation_id
from lettaspace.conversation.message import Message
from lettaspace.conversation.ordering import rising, window_places
from lettaspace.conversation.pairing import Ledger
from lettaspace.conversation.reading import UNKNOWN_FORMAT
from lettaspace.conversation.records import COMPACTED, MESSAGE, new_message
from lettaspace.conversation.writing import (
    Data,
    Payload,
    appended,
    fresh_rkey,
    message_value,
    remember,
    top_seq,
    updated,
)
from lettaspace.errors import Conflict
from lettaspace.space import schema
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.statement import Statement
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Update, Value, Write

MAX_COVERED = 20_000
"""The most TIDs one summary lists; more are chained through intermediate summaries."""

Choose = Callable[[Sequence[Message]], int]
"""Says how many messages of a window, from its start, should be summarised."""

Summarize = Callable[[Sequence[Message]], "str | Data"]
"""The caller's own: a text, or the payload of the summary message."""

_index = schema.message_index.c

_unmarked = Statement(
    lambda: (
        select(_index.rkey)
        .where(
            _index.conversation == bindparam("id"),
            _index.covered_by.is_not(None),
            _index.active,
        )
        .order_by(_index.seq)
        .limit(MAX_WRITES)
    )
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a window is cut: as asked for, and as tool calls allow."""

    asked: int
    count: int


def boundary(messages: Sequence[Message], asked: int) -> Boundary:
    """The nearest earlier place that parts no tool call from its results.

    A call that has no result yet is in flight: it stays, and what follows it.
    """
    spans = [
        (each.at, each.results[-1] if each.results else len(messages))
        for each in Ledger(messages).calls
    ]
    count = max(0, min(asked, len(messages)))
    while True:
        parted = [at for at, until in spans if at < count <= until]
        if not parted:
            return Boundary(asked, count)
        count = min(parted)


def covered_by(messages: Sequence[Message], count: int) -> list[Message]:
    """What a summary of the first `count` messages covers: all that a reader of this version
    understands. A message in an unknown format stays for those who do."""
    return [message for message in messages[:count] if UNKNOWN_FORMAT not in message.flags]


class Compact:
    """A plan that writes a summary, and everything else if it fits the same batch."""

    def __init__(
        self,
        repo: EmbeddedRepo,
        conversation: str,
        agent: str,
        covered: Sequence[Message],
        summary: Payload,
        at: str,
        key: str | None = None,
    ) -> None:
        self.rkey = ""
        self._repo = repo
        self._conversation = conversation
        self._agent = agent
        self._covered = covered
        self._summary = summary
        self._at = at
        self._key = key

    def __call__(self, view: View) -> Sequence[Write]:
        number = conversation_id(view.connection, self._conversation)
        if self._key is not None and (known := appended(view.connection, number, self._key)):
            if "compactedMessageIds" not in message_value(view, known):
                raise Conflict(f"key {self._key!r} was used to append a message")
            self.rkey = known
            return []
        places = window_places(view.connection, number)
        stored = self._check(view, {place.rkey for place in places})
        top = top_seq(view.connection, number)
        rkeys = [message.rkey for message in self._covered]
        summaries: list[Write] = []
        while True:
            top += 1
            some, rkeys = rkeys[:MAX_COVERED], rkeys[MAX_COVERED:]
            self.rkey = fresh_rkey(view, self._repo.clock)
            status = {"status": COMPACTED} if rkeys else {}
            value = new_message(
                self._conversation,
                self._agent,
                self._summary.role,
                top,
                self._summary.message,
                self._at,
            )
            value |= {"compactedMessageIds": some, **status}
            summaries.append(Create(MESSAGE, self.rkey, value))
            if not rkeys:
                break
            rkeys.insert(0, self.rkey)
        if self._key is not None:
            remember(view.connection, number, self._key, self.rkey, self._summary)
        covered = {message.rkey for message in self._covered}
        # What stands before all that is covered, in a format unknown here, may stay there.
        first = next(at for at, place in enumerate(places) if place.rkey in covered)
        kept = [place for place in places[first:] if place.rkey not in covered]
        if len(summaries) + len(covered) + len(kept) > MAX_WRITES:
            return summaries
        marks = [
            Update(MESSAGE, rkey, updated(value, self._at, status=COMPACTED))
            for rkey, value in stored.items()
        ]
        tail = [_moved(view, place.rkey, seq, self._at) for seq, place in enumerate(kept, top + 1)]
        return [*summaries, *marks, *tail]

    def _check(self, view: View, window: set[str]) -> dict[str, Value]:
        """What was summarised must still be in the window, and say what it said."""
        stored = {}
        for message in self._covered:
            record = view.get(MESSAGE, message.rkey)
            if message.rkey not in window or record is None:
                raise Conflict(f"message {message.rkey} was compacted meanwhile")
            if record.value["message"] != message.value["message"]:
                raise Conflict(f"message {message.rkey} was rewritten meanwhile")
            stored[message.rkey] = record.value
        return stored


class Finish:
    """A plan for the next batch of what summaries imply: marks, then new seqs."""

    def __init__(self, conversation: str, at: str) -> None:
        self._conversation = conversation
        self._at = at

    def __call__(self, view: View) -> Sequence[Write]:
        number = conversation_id(view.connection, self._conversation)
        marks: list[Write] = [
            Update(MESSAGE, rkey, updated(message_value(view, rkey), self._at, status=COMPACTED))
            for (rkey,) in _unmarked.all(view.connection, id=number)
        ]
        if marks:
            return marks
        moves = rising(view.connection, number, window_places(view.connection, number))
        return [_moved(view, rkey, seq, self._at) for rkey, seq in moves[:MAX_WRITES]]


def repair(repo: EmbeddedRepo, conversation: str, at: str) -> int:
    """Finishes what compactions of a conversation left undone; returns how many messages it
    changed. Doing it again changes nothing."""
    changed = 0
    while written := repo.transact(Finish(conversation, at)):
        changed += len(written)
    return changed


def _moved(view: View, rkey: str, seq: int, at: str) -> Update:
    return Update(MESSAGE, rkey, updated(message_value(view, rkey), at, seq=seq))
