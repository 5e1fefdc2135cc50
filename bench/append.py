"""Appending one message after another, each in a transaction of its own."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import Cost, interleaved, timed
from bench.rows import Json, Talk
from lettaspace.atproto import cbor
from lettaspace.atproto.tid import TidClock
from lettaspace.conversation import codec
from lettaspace.conversation.records import LOCAL_MESSAGE, MESSAGE, envelope
from lettaspace.conversation.shapes import SHAPES
from lettaspace.conversation.space import Space
from lettaspace.space.writes import Create, Value

GOAL = Goal(2.5)

_BATCH = 256
"""Appends in a round: as many as the search index lets wait, so every round pays for one
update of it."""

_SHAPE = SHAPES[LOCAL_MESSAGE, 1]
_TID = "3kmzzzzzzzz2z"


def append(context: Context) -> list[Figure]:
    """The whole way of a message into the store against a bare insert of the same bytes."""
    rounds = context.rounds(8)
    with (
        Space.open(context.work / "append") as space,
        closing(_bare_database(context.work / "bare.db")) as bare,
    ):
        messages = _messages()
        appender = _Appender(space, bare)
        appender.ours(islice(messages, _BATCH))
        appender.bare(_BATCH)
        ours, base = interleaved(
            rounds,
            lambda: appender.ours(islice(messages, _BATCH)),
            lambda: appender.bare(_BATCH),
        )
        size = sum(map(len, appender.stored)) // len(appender.stored)
    return [
        ratio(
            "append",
            ("encoding, validating, storing and indexing a message", ours.per(_BATCH)),
            ("inserting the record's bytes with sqlite3", base.per(_BATCH)),
            GOAL,
            rounds=rounds,
            appends=rounds * _BATCH,
            recordBytes=size,
        )
    ]


class _Appender:
    """Appends to both, the same records."""

    def __init__(self, space: Space, bare: sqlite3.Connection) -> None:
        self.space = space
        self.connection = bare
        self.clock = TidClock()
        self.seq = 0
        self.stored: list[bytes] = []

    def ours(self, messages: Iterator[Json]) -> Cost:
        batch = list(messages)
        # What the bare insert stores is made outside the measured time.
        self.stored = [
            cbor.encode({"$type": MESSAGE, **self._record(message, self.seq + number)})
            for number, message in enumerate(batch, 1)
        ]
        return timed(lambda: self._append(batch))

    def _append(self, messages: list[Json]) -> None:
        repo = self.space.repo
        for message in messages:
            self.seq += 1
            repo.apply_writes([Create(MESSAGE, None, self._record(message, self.seq))])

    def _record(self, message: Json, seq: int) -> Value:
        address = self.space.address
        return {
            "conversation": address.conversation(_TID),
            "agent": address.agent(message["metadata"]["agent_id"]),
            "role": message["role"],
            "seq": seq,
            "message": envelope(LOCAL_MESSAGE, 1, codec.encode(message, _SHAPE).value),
            "createdAt": message["metadata"]["created_at"],
        }

    def bare(self, count: int) -> Cost:
        rows = [(self.clock.mint(), data) for data in self.stored[:count]]
        return timed(lambda: self._insert(rows))

    def _insert(self, rows: list[tuple[str, bytes]]) -> None:
        execute = self.connection.execute
        for row in rows:
            # A transaction of its own: the connection commits by itself.
            execute("INSERT INTO records VALUES (?, ?)", row)


def _messages() -> Iterator[Json]:
    talk = Talk("agent-local-1", "local-conv-1", Random(7))
    while True:
        for row in talk.turn(12):
            yield row["message"]
        talk.window.clear()


def _bare_database(path: Path) -> sqlite3.Connection:
    """The pragmas are those of `space.database`."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("CREATE TABLE records (rkey TEXT PRIMARY KEY, value BLOB)")
    return connection
