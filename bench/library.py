"""What the library's face costs: an append, beside the bare insert and Letta Code's own."""

from contextlib import closing
from itertools import islice

from bench.append import BATCH, PARTS, record_bytes, talk_messages
from bench.bare import Bare
from bench.context import Context
from bench.figure import Figure, ratio
from bench.letta import LettaStore
from bench.measure import Cost, interleaved, timed
from bench.rows import Json
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.space import Space


def append(context: Context) -> list[Figure]:
    """`Conversation.append` against a bare insert, and against Letta Code's own store."""
    rounds, part = context.rounds(6), context.size(BATCH) // PARTS
    with (
        Space.open(context.work / "library-append") as space,
        closing(Bare(context.work / "library-bare.db")) as bare,
    ):
        letta = context.letta(context.work / "library-letta")
        sides = _Sides(space, bare, letta, part)
        measures = [sides.ours, sides.bare]
        if letta is not None:
            measures.append(lambda: letta.append(sides.name, sides.batch))
        interleaved(1, *measures, parts=PARTS)
        ours, base, *theirs = interleaved(rounds, *measures, parts=PARTS)
    count = part * PARTS
    what = ("Conversation.append of a message", ours.per(count))
    facts = {
        "rounds": rounds,
        "appends": rounds * count,
        "recordBytes": sides.bytes // sides.appended,
    }
    figures = [
        ratio(
            "library-append",
            what,
            ("inserting the record's bytes with sqlite3", base.per(count)),
            None,
            **facts,
        )
    ]
    for cost in theirs:
        other = ("Letta Code's store appending it", cost.per(count))
        figures.append(ratio("library-append-letta", what, other, None, **facts))
    return figures


class _Sides:
    """The sides in one turn append the same messages. Each round has a conversation of its
    own: Letta Code writes its window anew with every message."""

    def __init__(self, space: Space, bare: Bare, letta: LettaStore | None, part: int) -> None:
        self.space = space
        self.inserts = bare
        self.letta = letta
        self.part = part
        self.agent = space.create_agent("Bench")
        self.messages = talk_messages()
        self.batch: list[Json] = []
        self.turns = 0
        self.appended = 0
        self.bytes = 0
        self.name = ""
        self.conversation: Conversation

    def ours(self) -> Cost:
        if self.turns % PARTS == 0:
            self.conversation = self.space.create_conversation(self.agent)
            self.name = f"local-conv-{self.turns + 1}"
            if self.letta:
                self.letta.create(self.name)
        self.turns += 1
        self.batch = list(islice(self.messages, self.part))
        self.appended += self.part
        return timed(self._append)

    def _append(self) -> None:
        for message in self.batch:
            self.conversation.append(message)

    def bare(self) -> Cost:
        address, rkey = self.space.address, self.conversation.rkey
        values = [
            record_bytes(address, rkey, message, seq)
            for seq, message in enumerate(self.batch, self.appended)
        ]
        self.bytes += sum(map(len, values))
        return self.inserts.insert(values)
