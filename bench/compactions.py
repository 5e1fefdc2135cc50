"""Compacting a large window, and opening a window after many compactions."""

from collections.abc import Callable, Sequence
from itertools import count, islice
from random import Random

from bench.append import BATCH, record, talk_messages
from bench.context import ACTIVE, Context
from bench.figure import Figure, Goal, ratio
from bench.letta import LettaStore
from bench.measure import Cost, interleaved, timed
from bench.rows import Json, Talk
from bench.windows import growth, opening, reopening
from bench.words import Writer
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.index import conversation_id
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.conversation.writing import top_seq
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Write

KEEP = 50
ROUNDS_GOAL = Goal(1.5)

_SUMMARY = Writer(Random(5)).prose(300)


def compact(context: Context) -> list[Figure]:
    """Compacting a window: for each of its messages against an append, and all of it against
    Letta Code's own store."""
    rounds, window = context.rounds(5), max(context.size(1_000), 2 * KEEP)
    appends = context.size(BATCH)
    letta = context.letta(context.work / "compact-letta")
    with Space.open(context.work / "compact") as space:
        sides = _Sides(space, letta, window, appends)
        measures = [sides.compact, sides.compile, sides.append]
        if letta is not None:
            measures.append(lambda: letta.compact(sides.name, sides.kept, _SUMMARY))
        ours, prompt, append, *theirs = interleaved(rounds, *measures)
    facts = {"rounds": rounds, "window": window, "kept": sides.kept}
    figures = [
        ratio(
            "compact-1000",
            (f"compacting a window of {window}, for each message", ours.per(window)),
            ("Conversation.append of a message", append.per(appends)),
            None,
            **facts,
        )
    ]
    for cost in theirs:
        what = (f"compacting a window of {window}, and compiling the prompt", ours + prompt)
        other = ("Letta Code's store doing so", cost)
        figures.append(ratio("compact-1000-letta", what, other, None, **facts))
    return figures


class _Sides:
    """A new conversation for every round, with the same messages in both stores."""

    def __init__(self, space: Space, letta: LettaStore | None, window: int, appends: int) -> None:
        self.space = space
        self.letta = letta
        self.window = window
        self.appends = appends
        self.agent = space.create_agent("Bench", system=f"{_SUMMARY} {{CORE_MEMORY}}")
        self.messages = talk_messages()
        self.numbers = count(1)
        self.name = ""
        self.kept = KEEP
        self.conversation: Conversation

    def compact(self) -> Cost:
        messages = list(islice(self.messages, self.window))
        self.name = f"local-conv-{next(self.numbers)}"
        self.conversation = self.space.create_conversation(self.agent)
        fill(self.conversation, messages)
        if self.letta is not None:
            self.letta.create(self.name)
            self.letta.append(self.name, messages)
        cost = timed(
            lambda: self.conversation.compact(lambda _: _SUMMARY, lambda window: len(window) - KEEP)
        )
        # A cut that would part a call from its results moves.
        self.kept = len(self.conversation.window().messages) - 1
        return cost

    def compile(self) -> Cost:
        return timed(lambda: self.conversation.compile_prompt(None))

    def append(self) -> Cost:
        messages = list(islice(self.messages, self.appends))
        return timed(lambda: [self.conversation.append(message) for message in messages])


def window_after(context: Context) -> list[Figure]:
    """The window of a conversation after 100 rounds of compaction against one after 10."""
    many, few, rounds = context.rounds(100), context.rounds(10), context.rounds(41)
    home = context.work / "rounds"
    letta = context.letta(context.work / "rounds-letta")
    with Space.open(home) as space:
        agent = space.create_agent("Bench")
        talks = [
            _compacted(space.create_conversation(agent), letta, f"local-conv-{number}", number)
            for number in (many, few)
        ]
        measures = [opening(space, talk.uri) for talk in talks]
        measures.append(reopening(home, talks[0].uri))
        if letta is not None:
            measures += [letta.opening(f"local-conv-{number}", ACTIVE) for number in (many, few)]
        costs = interleaved(rounds, *measures)
    return growth(
        "window-after-100",
        ROUNDS_GOAL,
        f"a window of {ACTIVE}",
        (f"after {many} rounds of compaction", f"after {few}"),
        costs,
        rounds=rounds,
        active=ACTIVE,
    )


def _compacted(
    conversation: Conversation, letta: LettaStore | None, name: str, rounds: int
) -> Conversation:
    """Says as much again as a window holds and compacts it, so many times. The window has the
    same messages whatever the rounds: a summary and all that was said last but for one."""
    messages = _plain(ACTIVE)
    if letta is not None:
        letta.create(name)
    for _ in range(rounds):
        fill(conversation, messages)
        conversation.compact(lambda _: _SUMMARY, lambda window: len(window) - ACTIVE + 1)
        if letta is not None:
            letta.append(name, messages)
            letta.compact(name, ACTIVE - 1, _SUMMARY)
    return conversation


def _plain(count: int) -> list[Json]:
    """Questions and answers without tool calls, so that a cut can be anywhere."""
    talk = Talk("agent-local-1", "local-conv-1", Random(8))
    return [row["message"] for _ in range(count // 2) for row in talk.turn(2)]


def fill(conversation: Conversation, messages: Sequence[Json]) -> None:
    """Appends many messages, as many in a transaction as may be."""
    for at in range(0, len(messages), MAX_WRITES):
        batch = messages[at : at + MAX_WRITES]
        conversation.space.repo.transact(_filling(conversation, batch))


def _filling(
    conversation: Conversation, messages: Sequence[Json]
) -> Callable[[View], Sequence[Write]]:
    def plan(view: View) -> list[Write]:
        number = conversation_id(view.connection, conversation.uri)
        address, rkey = conversation.space.address, conversation.rkey
        return [
            Create(MESSAGE, None, record(address, rkey, message, seq))
            for seq, message in enumerate(messages, top_seq(view.connection, number) + 1)
        ]

    return plan
