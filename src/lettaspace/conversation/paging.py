"""Pages of a conversation: any part of a window or a transcript, without reading the rest."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from sqlalchemy import Connection

from lettaspace.conversation.formats import OpenBlob, names
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.landmarks import CompactionPoint as CompactionPoint
from lettaspace.conversation.landmarks import covering
from lettaspace.conversation.message import Message
from lettaspace.conversation.outline import CoveredOrder, Order, TranscriptOrder, WindowOrder
from lettaspace.conversation.pairing import ORPHAN, Pairs, answers, calls
from lettaspace.conversation.ranges import Node
from lettaspace.conversation.reach import REACH, Side, calls_behind, results_ahead, without_call
from lettaspace.conversation.reading import stored
from lettaspace.errors import NotFound

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


def page(
    connection: Connection,
    conversation: str,
    open_blob: OpenBlob,
    view: View,
    anchor: Anchor,
    limit: int,
) -> Page:
    """About `limit` messages of a conversation (its URI): up to `REACH` more at an end that
    the anchor leaves open, where a tool call would be parted from its results.

    A result is flagged an orphan unless its call stands before it, or may stand further
    before the page than `REACH`. Raises NotFound where the message of an anchor is none of
    the conversation, or for `At` and `From` none of the view. For `Before` and `After`, what
    the window has lost to a compaction stands where the summary does.
    """
    number = find_conversation_id(connection, conversation)
    order: Order
    if view == "window":
        order = WindowOrder(connection, number)
        if isinstance(anchor, Before | After):
            above = covering(connection, conversation, anchor.tid)
            anchor = replace(anchor, tid=above[-1].rkey) if above else anchor
    else:
        order = TranscriptOrder(connection, number)
    return _Paging(connection, order, order, open_blob).page(anchor, max(limit, 1))


def covered(
    connection: Connection,
    conversation: str,
    open_blob: OpenBlob,
    summary: str,
    anchor: Anchor,
    limit: int,
) -> Page:
    """A page of what one summary (its TID) lists, in the list's order; else like `page`.

    Empty for a message that lists nothing.
    """
    number = find_conversation_id(connection, conversation)
    order = CoveredOrder(connection, number, summary)
    # A call may stand before all that the summary lists.
    around = TranscriptOrder(connection, number)
    return _Paging(connection, order, around, open_blob).page(anchor, max(limit, 1))


class _Paging:
    """Makes one page: messages on both sides of a cut, taken from what is behind and ahead."""

    def __init__(
        self, connection: Connection, order: Order, around: Order, open_blob: OpenBlob
    ) -> None:
        self.connection = connection
        self.order = order
        self.around = around
        self.open_blob = open_blob

    def page(self, anchor: Anchor, limit: int) -> Page:
        behind, ahead = self._cut(anchor)
        first: list[Message] = []
        second: list[Message] = []
        if isinstance(anchor, At):
            first = behind.take(limit // 2)
            second = ahead.take(limit - len(first))
            first += behind.take(limit - len(first) - len(second))
        elif isinstance(anchor, Last | Before):
            first = behind.take(limit)
        else:
            second = ahead.take(limit)
        messages = [*reversed(first), *second]
        if isinstance(anchor, At | Last | Before):
            messages[:0] = reversed(behind.take(calls_behind(messages, behind)))
        if not isinstance(anchor, Last | Before):
            messages += ahead.take(results_ahead(messages, ahead))
        if not messages:
            return Page([], None, None)
        return Page(
            self._flagged(messages, behind),
            messages[0].rkey if behind.at(0) else None,
            messages[-1].rkey if ahead.at(0) else None,
        )

    def _cut(self, anchor: Anchor) -> tuple[Side, Side]:
        order = self.order
        if isinstance(anchor, First):
            return self._side(iter(())), self._side(order.forward(None))
        if isinstance(anchor, Last):
            return self._side(order.backward(None)), self._side(iter(()))
        node = order.find(anchor.tid)
        if node is None:
            raise NotFound(f"no message {anchor.tid} here")
        behind, ahead = order.backward(node), order.forward(node)
        if isinstance(anchor, After):
            behind = chain((node,), behind)
        else:
            ahead = chain((node,), ahead)
        return self._side(behind), self._side(ahead)

    def _side(self, nodes: Iterator[Node]) -> Side:
        return Side(stored(self.connection, nodes, self.open_blob))

    def _flagged(self, messages: list[Message], behind: Side) -> list[Message]:
        pairs = Pairs()
        flagged = [pairs.flag(message) for message in messages]
        missing = {
            answered
            for message in flagged
            if ORPHAN in message.flags and (answered := answers(message)) is not None
        }
        if not missing:
            return flagged
        if self.around is not self.order:
            behind = self._side(self.around.backward(self.around.find(messages[0].rkey)))
        for at in range(REACH):
            message = behind.at(at)
            if message is None or not missing:
                break
            met = {name for call in calls(message) for name in names(call.id)}
            missing = without_call(missing, met)
        else:
            missing = set()
        return [
            message
            if (answered := answers(message)) is None or answered in missing
            # Its call is found, or may stand further back than was looked.
            else replace(message, flags=tuple(flag for flag in message.flags if flag != ORPHAN))
            for message in flagged
        ]
