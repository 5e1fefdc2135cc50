"""Adding a record to a set hash."""

from collections.abc import Callable

from blake3 import blake3

from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import Cost, interleaved, timed
from lettaspace.atproto.cid import CID
from lettaspace.conversation.records import MESSAGE
from lettaspace.space.sethash import STATE_BYTES, SetHash, element

GOAL = Goal(2.5)


def add(context: Context) -> list[Figure]:
    """`SetHash.add` against the BLAKE3 expansion it needs."""
    count, rounds = context.size(4000), context.rounds(41)
    items = [
        element(MESSAGE, f"3kn{number:010d}", str(CID.for_raw(b"%d" % number)))
        for number in range(count)
    ]
    ours, bare = interleaved(rounds, _adding(items), _expanding(items))
    return [
        ratio(
            "set-hash-add",
            ("SetHash.add of one element", ours.per(count)),
            ("blake3(element).digest(length=2048)", bare.per(count)),
            GOAL,
            rounds=rounds,
        )
    ]


def _adding(items: list[bytes]) -> Callable[[], Cost]:
    def run() -> None:
        state = SetHash()
        for item in items:
            state.add(item)

    return lambda: timed(run)


def _expanding(items: list[bytes]) -> Callable[[], Cost]:
    def run() -> None:
        for item in items:
            blake3(item).digest(length=STATE_BYTES)

    return lambda: timed(run)
