"""The order of a conversation's messages, walked from any of them in either direction.

A walk reads the index in ranges, so it costs what it gives out, and the depth of the
summaries that it starts under; never the length of the conversation.

A transcript is a forest. What no summary lists stands at the top, by place, TID and record;
what one lists stands before it, in the list's order. A message that several summaries list
stands with the one that the index names (`covered_by`), once. Lists that go in a circle, which
only a broken writer makes, have no top: each circle is cut open before its earliest summary,
which then stands behind everything else.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Protocol

from sqlalchemy import Connection

from lettaspace.conversation.ranges import LISTED, LOOSE, OWN, WINDOW, Node, Ranges


class Order(Protocol):
    """An order of some of a conversation's messages."""

    def find(self, rkey: str) -> Node | None:
        """The message with a TID, if it is one of them."""
        ...

    def forward(self, after: Node | None) -> Iterator[Node]:
        """What follows a message; None: everything."""
        ...

    def backward(self, before: Node | None) -> Iterator[Node]:
        """What precedes a message, the nearest first; None: everything from the end."""
        ...


class WindowOrder:
    """The messages of the window, as `reading.active` has them."""

    def __init__(self, connection: Connection, conversation: int | None) -> None:
        self._ranges = Ranges(connection, conversation)

    def find(self, rkey: str) -> Node | None:
        node = self._ranges.find(rkey)
        return node if node is not None and node.in_window else None

    def forward(self, after: Node | None) -> Iterator[Node]:
        return self._ranges.range(WINDOW, after, up=True)

    def backward(self, before: Node | None) -> Iterator[Node]:
        return self._ranges.range(WINDOW, before, up=False)


class CoveredOrder:
    """What one summary lists, in the list's order."""

    def __init__(self, connection: Connection, conversation: int | None, summary: str) -> None:
        self._ranges = Ranges(connection, conversation)
        self._summary = summary

    def find(self, rkey: str) -> Node | None:
        node = self._ranges.find(rkey)
        ordinal = self._ranges.ordinal(rkey, self._summary)
        return None if node is None or ordinal is None else node._replace(ordinal=ordinal)

    def forward(self, after: Node | None) -> Iterator[Node]:
        return self._ranges.listed(LISTED, self._summary, after, up=True)

    def backward(self, before: Node | None) -> Iterator[Node]:
        return self._ranges.listed(LISTED, self._summary, before, up=False)


class TranscriptOrder:
    """Every message once, what a summary covers before it."""

    def __init__(self, connection: Connection, conversation: int | None) -> None:
        self._ranges = Ranges(connection, conversation)
        self._circles: list[Node] | None = None
        """Looked for when they are met: at the end of the transcript, or inside one."""

    def find(self, rkey: str) -> Node | None:
        return self._ranges.find(rkey)

    def forward(self, after: Node | None) -> Iterator[Node]:
        if after is not None:
            steps, after = self._up(after)
            for node, summary in steps:
                for each in self._covered(summary, node, up=True):
                    yield from self._with_covered(each)
                yield summary
        for top in self._tops_after(after):
            yield from self._with_covered(top)

    def backward(self, before: Node | None) -> Iterator[Node]:
        if before is not None:
            summary, (steps, before) = before, self._up(before)
            for each in self._covered(summary, None, up=False):
                yield from self._with_covered_backward(each)
            for node, summary in steps:
                for each in self._covered(summary, node, up=False):
                    yield from self._with_covered_backward(each)
        for top in self._tops_before(before):
            yield from self._with_covered_backward(top)

    def _with_covered(self, top: Node) -> Iterator[Node]:
        # A stack of open lists instead of recursion: summaries may nest a thousand deep.
        stack: list[tuple[Iterator[Node], Node | None]] = [(iter((top,)), None)]
        while stack:
            inner, summary = stack[-1]
            node = next(inner, None)
            if node is None:
                stack.pop()
                if summary is not None:
                    yield summary
            elif node.summary:
                stack.append((self._covered(node, None, up=True), node))
            else:
                yield node

    def _with_covered_backward(self, top: Node) -> Iterator[Node]:
        stack = [iter((top,))]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            yield node
            stack.append(self._covered(node, None, up=False))

    def _covered(self, summary: Node, beyond: Node | None, *, up: bool) -> Iterator[Node]:
        """What stands with a summary, on one side of one of them or all."""
        if not summary.summary or self._ranges.summary(summary.rkey) != summary.unlisted:
            return  # another author's message of the same TID
        for node in self._ranges.listed(OWN, summary.rkey, beyond, up=up):
            if self._circles is None or node.unlisted not in self._circles:
                yield node

    def _up(self, node: Node) -> tuple[list[tuple[Node, Node]], Node]:
        """The way from a message to the top: at each step the message in the list that it
        stands in, and the summary whose list that is."""
        steps: list[tuple[Node, Node]] = []
        seen: set[int] = set()
        top = node
        while top.covered_by is not None and top.record not in seen:
            seen.add(top.record)
            summary = self._ranges.summary(top.covered_by)
            if summary is None:
                break
            ordinal = self._ranges.ordinal(top.rkey, summary.rkey)
            steps.append((top._replace(ordinal=ordinal or 0), summary))
            top = summary
        if top.covered_by is None:
            return steps, top
        circles = self._known_circles()
        for at, (each, _) in enumerate(steps):
            if each.unlisted in circles:
                return steps[:at], each.unlisted
        return steps, top

    def _tops_after(self, top: Node | None) -> Iterator[Node]:
        if top is None or top.covered_by is None:
            sides = (self._ranges.range(of, top, up=True) for of in (WINDOW, LOOSE))
            yield from merge(*sides)
            yield from self._known_circles()
        else:
            yield from (each for each in self._known_circles() if each > top)

    def _tops_before(self, top: Node | None) -> Iterator[Node]:
        circles = reversed(self._known_circles() if top is None or top.covered_by else [])
        yield from (each for each in circles if top is None or each < top)
        outer = None if top is None or top.covered_by else top
        sides = (self._ranges.range(of, outer, up=False) for of in (WINDOW, LOOSE))
        yield from merge(*sides, reverse=True)

    def _known_circles(self) -> list[Node]:
        if self._circles is None:
            self._circles = self._ranges.circles()
        return self._circles
