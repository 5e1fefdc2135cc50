"""What becomes of an agent's memory that two machines stored, neither knowing of the other.

Both versions' commits stay in the record: the heads of one that are not in the history of the
other, and the bundles that these need. What git would know is told by the records alone, for it
is not asked here, and may not be on this machine.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from lettaspace.space.writes import Value

MAX_HEADS: Final = 100
MAX_BUNDLES: Final = 200
MAX_INCLUDED: Final = 100
"""What a record has at most of each. Where two together have more heads or bundles, the winner
stays as it is, and the other machine adds its own when it stores again."""


def unite(winner: Value, other: Value) -> Value:
    """The winner, with what of the other's history it lacks. The `updatedAt` is the winner's."""
    here, there = _History(winner), _History(other)
    if there.heads <= here.known:
        return winner
    if here.heads <= there.known:
        return {**other, "updatedAt": winner["updatedAt"]}
    head = winner["head"]
    if head in there.past:
        head = other["head"]  # who wrote that went on from here
    others = {
        *(each for each in here.heads if each not in there.past),
        *(each for each in there.heads if each not in here.known),
    }
    others.discard(head)
    bundles = [*winner["bundles"]]
    bundles += (each for each in other["bundles"] if each["head"] not in here.known)
    if len(others) > MAX_HEADS or len(bundles) > MAX_BUNDLES:
        return winner
    united = {**winner, "head": head, "otherHeads": sorted(others), "bundles": bundles}
    included = dict.fromkeys([*winner.get("included", ()), *other.get("included", ())])
    if included:
        united["included"] = list(included)[:MAX_INCLUDED]
    return united


class _History:
    """The commits that a record is known to hold. `heads` are those with nothing after them;
    `past` are in the history of these, `known` is both."""

    def __init__(self, value: Value) -> None:
        self.heads = {value["head"], *value.get("otherHeads", ())}
        self.past = {*value.get("included", ()), *_of(value["bundles"])} - self.heads
        self.known = self.heads | self.past


def _of(bundles: Any) -> Iterator[str]:
    return chain.from_iterable((each["head"], *each.get("prerequisites", ())) for each in bundles)
