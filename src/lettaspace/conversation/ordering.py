"""The order of a window, kept in seqs: which messages need a new one, and which.

Plain seq order must give every reader the right window. Where something is put before
messages that stand already, those get new seqs; the numbers only ever go up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, literal_column, or_, select

from lettaspace.conversation.writing import top_seq
from lettaspace.space import schema
from lettaspace.space.statement import Statement

_index = schema.message_index.c

_window = Statement(
    lambda: (
        select(_index.rkey, _index.seq)
        .where(_index.conversation == bindparam("id"), _index.in_window)
        .order_by(_index.place, _index.rkey, _index.record)
    )
)
_used = Statement(
    lambda: (
        select(_index.rkey)
        .where(
            _index.conversation == bindparam("id"),
            or_(
                and_(
                    _index.in_window.in_((literal_column("0"), literal_column("1"))),
                    _index.place >= bindparam("low"),
                    _index.place < bindparam("high"),
                ),
                and_(
                    _index.summary == literal_column("1"),
                    _index.seq >= bindparam("low"),
                    _index.seq < bindparam("high"),
                ),
            ),
        )
        .limit(1)
    )
)

UNPLACED = 0
"""The seq of a message that is yet to be written."""


@dataclass(frozen=True, slots=True)
class Place:
    """A message of a window and the seq it has."""

    rkey: str
    seq: int


def window_places(connection: Connection, conversation: int) -> list[Place]:
    """The window in order, without payloads."""
    return [Place(rkey, seq) for rkey, seq in _window.all(connection, id=conversation)]


def rising(
    connection: Connection, conversation: int, places: Sequence[Place]
) -> list[tuple[str, int]]:
    """New seqs, as few as will do, with which seq order gives `places` in this order.

    They come last message first. Written in this order, in as many batches as it takes and
    asked for anew before each, every state between leaves the order right: what is not yet
    moved stands before what is, and the seqs for it stay free.
    """
    wrong = next(
        (at for at in range(len(places) - 1) if places[at].seq >= places[at + 1].seq), None
    )
    if wrong is None:
        return []
    start = _reserved(connection, conversation, places, wrong)
    if start is None:
        moved = places[wrong + 1 :]
        first = max(top_seq(connection, conversation), places[wrong].seq) + 1
    else:
        moved = places[wrong + 1 : start]
        first = places[start].seq - len(moved)
    return [(place.rkey, first + at) for at, place in reversed(list(enumerate(moved)))]


def _reserved(
    connection: Connection, conversation: int, places: Sequence[Place], wrong: int
) -> int | None:
    """Where a tail begins that an earlier batch has moved, with room left free before it."""
    floor = places[wrong].seq
    found = None
    for at in range(len(places) - 1, wrong, -1):
        seq = places[at].seq
        if seq <= floor or (at + 1 < len(places) and seq >= places[at + 1].seq):
            break
        needed = at - wrong - 1
        low = seq - needed
        before = places[at - 1].seq
        if (
            needed
            and low > max(floor, before if before < seq else 0)
            and _used.one(connection, id=conversation, low=low, high=seq) is None
        ):
            found = at
    return found
