"""Appending one message after another, each in a transaction of its own."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from random import Random

from bench.bare import Bare
from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import Cost, interleaved, timed
from bench.rows import Json, Talk
from lettaspace.atproto import cbor
from lettaspace.conversation import codec
from lettaspace.conversation.records import LOCAL_MESSAGE, MESSAGE, Address, envelope
from lettaspace.conversation.shapes import SHAPES
from lettaspace.conversation.space import Space
from lettaspace.space.writes import Create, Value

GOAL = Goal(2.5)

BATCH = 1024
"""Appends in a round: as many as the search index lets wait, so every round pays for one
update of it, wherever in the round that comes."""

PARTS = 16
"""Parts of a round, in each of which the sides take turns."""

_SHAPE = SHAPES[LOCAL_MESSAGE, 1]
_TID = "3kmzzzzzzzz2z"


def append(context: Context) -> list[Figure]:
    """The whole way of a message into the store against a bare insert of the same bytes."""
    rounds, part = context.rounds(6), context.size(BATCH) // PARTS
    count = part * PARTS
    with (
        Space.open(context.work / "append") as space,
        closing(Bare(context.work / "bare.db")) as bare,
    ):
        messages = talk_messages()
        appender = _Appender(space)
        appender.append(islice(messages, count))
        bare.insert(appender.stored)
        ours, base = interleaved(
            rounds,
            lambda: appender.append(islice(messages, part)),
            lambda: bare.insert(appender.stored),
            parts=PARTS,
        )
    return [
        ratio(
            "append",
            ("encoding, validating, storing and indexing a message", ours.per(count)),
            ("inserting the record's bytes with sqlite3", base.per(count)),
            GOAL,
            rounds=rounds,
            appends=rounds * count,
            recordBytes=appender.bytes // appender.seq,
        )
    ]


class _Appender:
    """Appends through the repo, and keeps what the bare insert stores."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.seq = 0
        self.bytes = 0
        self.stored: list[bytes] = []

    def append(self, messages: Iterator[Json]) -> Cost:
        batch = list(messages)
        # What the bare insert stores is made outside the measured time.
        self.stored = [
            record_bytes(self.space.address, _TID, message, self.seq + number)
            for number, message in enumerate(batch, 1)
        ]
        self.bytes += sum(map(len, self.stored))
        return timed(lambda: self._append(batch))

    def _append(self, messages: list[Json]) -> None:
        repo = self.space.repo
        for message in messages:
            self.seq += 1
            value = record(self.space.address, _TID, message, self.seq)
            repo.apply_writes([Create(MESSAGE, None, value)])


def record(address: Address, conversation: str, message: Json, seq: int) -> Value:
    """The record of a message in a conversation (its TID)."""
    return {
        "conversation": address.conversation(conversation),
        "agent": address.agent(message["metadata"]["agent_id"]),
        "role": message["role"],
        "seq": seq,
        "message": envelope(LOCAL_MESSAGE, 1, codec.encode(message, _SHAPE).value),
        "createdAt": message["metadata"]["created_at"],
    }


def record_bytes(address: Address, conversation: str, message: Json, seq: int) -> bytes:
    """The same, encoded."""
    return cbor.encode({"$type": MESSAGE, **record(address, conversation, message, seq)})


def talk_messages() -> Iterator[Json]:
    """Messages without end, as Letta Code's rows hold them."""
    talk = Talk("agent-local-1", "local-conv-1", Random(7))
    while True:
        for row in talk.turn(12):
            yield row["message"]
        talk.window.clear()
