"""Whether it matters how much is stored: a million messages against a thousand."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

from bench.append import BATCH, PARTS, talk_messages
from bench.context import ACTIVE, Context
from bench.figure import Figure, Goal, ratio
from bench.letta import LettaStore
from bench.measure import Cost, interleaved, timed
from bench.rows import Json
from bench.windows import growth, opening, reopening
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.space import Space

GOAL = Goal(1.3)

_WINDOW = "local-conv-1"
"""The conversation whose window is read: the longest, six tenths of all messages."""

_APPENDED = "local-conv-2"
"""The one that is appended to: two tenths of all messages."""

_SUMMARY = "What was said before."


def window(context: Context) -> list[Figure]:
    """The window of the longest conversation in a large store against that in a small one."""
    (many, many_home), (few, few_home) = context.many, context.few
    rounds = context.rounds(41)
    with ExitStack() as stack:
        spaces = [stack.enter_context(Space.open(home)) for home in (many_home, few_home)]
        uris = [space.conversation(_WINDOW).uri for space in spaces]
        measures = [opening(space, uri) for space, uri in zip(spaces, uris, strict=True)]
        measures.append(reopening(many_home, uris[0]))
        for written in (many, few):
            if (letta := context.letta(written.path)) is not None:
                measures.append(letta.opening(_WINDOW, ACTIVE))
        costs = interleaved(rounds, *measures)
    return growth(
        "window-at-1m",
        GOAL,
        f"a window of {ACTIVE}",
        (f"with {many.messages} messages stored", f"with {few.messages}"),
        costs,
        rounds=rounds,
        active=ACTIVE,
    )


def append(context: Context) -> list[Figure]:
    """An append to a large store against one to a small store."""
    (many, many_home), (few, few_home) = context.many, context.few
    rounds, part = context.rounds(6), context.size(BATCH) // PARTS
    count = part * PARTS
    with ExitStack() as stack:
        measures = [
            _Ours(stack.enter_context(Space.open(home)), part).append
            for home in (many_home, few_home)
        ]
        theirs = []
        for written in (many, few):
            if (letta := context.letta(written.path)) is not None:
                theirs.append(_Theirs(letta, part))
        measures += [each.append for each in theirs]
        interleaved(1, *measures, parts=PARTS)
        ours, base, *costs = interleaved(rounds, *measures, parts=PARTS)
    facts = {"rounds": rounds, "appends": rounds * count}
    grown = (f"with {many.messages} messages stored", f"with {few.messages}")
    large, small = (
        (f"Conversation.append {place}", cost.per(count))
        for place, cost in zip(grown, (ours, base), strict=True)
    )
    figures = [ratio("append-at-1m", large, small, GOAL, **facts)]
    if theirs:
        their_large, their_small = (
            (f"Letta Code's store appending {place}", cost.per(count))
            for place, cost in zip(grown, costs, strict=True)
        )
        first = round(theirs[0].first.wall * 1000)
        figures += [
            ratio("append-at-1m-letta", large, their_large, None, **facts),
            ratio(
                "letta-append-at-1m",
                their_large,
                their_small,
                None,
                firstMilliseconds=first,
                **facts,
            ),
        ]
    return figures


class _Ours:
    def __init__(self, space: Space, part: int) -> None:
        self.conversation: Conversation = space.conversation(_APPENDED)
        self.messages = talk_messages()
        self.part = part

    def append(self) -> Cost:
        messages = _next(self.messages, self.part)
        return timed(lambda: [self.conversation.append(message) for message in messages])


class _Theirs:
    """Its first append to a conversation reads all its rows, and each later one writes the
    window anew; so the first is left out, and the window kept as small as it would be."""

    def __init__(self, letta: LettaStore, part: int) -> None:
        self.letta = letta
        self.messages = talk_messages()
        self.part = part
        self.turns = 0
        self.first = letta.append(_APPENDED, _next(self.messages, 1))

    def append(self) -> Cost:
        if self.turns % PARTS == 0:
            self.letta.compact(_APPENDED, ACTIVE, _SUMMARY)
        self.turns += 1
        return self.letta.append(_APPENDED, _next(self.messages, self.part))


def _next(messages: Iterator[Json], count: int) -> list[Json]:
    return list(islice(messages, count))
