"""Merging: what a record becomes that two machines changed since they last agreed on it.

Every machine comes to the same result whatever order it hears of the versions in, so nobody has
to be asked. docs/divergence.md has these rules in words.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_datetime
from lettaspace.conversation import formats
from lettaspace.conversation.records import (
    COMPACTED,
    COMPILED_PROMPT,
    CONVERSATION_STATE,
    MEMORY,
    MESSAGE,
    is_active,
    rkey_of,
)
from lettaspace.conversation.times import after
from lettaspace.errors import InvalidInput
from lettaspace.remote.memorymerging import unite
from lettaspace.space.writes import Value

DIVERGED = "diverged"
"""The kind of damage that says of a conversation that two machines went on with it."""

_PARTED = "two machines went on with it: see also "

MAX_DAMAGE = 100
"""The most entries of damage that a conversationState may have."""

_NEVER = datetime.min.replace(tzinfo=UTC)

_PLACE = ("conversation", "seq", "compactedMessageIds")
"""What of a message changes with its place, and not with what it says."""

_SAID = ("role", "message", "agent")
"""What of it says something."""

_Rank = tuple[bool, datetime, bytes]


def merge(
    collection: str,
    ours: Value,
    theirs: Value,
    *,
    said_before: CID | None = None,
) -> Value:
    """What both versions of a record become: the same whichever of them is `ours`.

    One of the two, but for messages, states of conversations and memories, where it may have
    something of both; then it is later by its own time than either. `said_before` is what the
    version said that both come from (see `said`), where that is known.
    """
    if ours == theirs:
        return ours
    winner, other = sorted((ours, theirs), key=lambda each: _rank(collection, each), reverse=True)
    if collection == MESSAGE:
        return _message(winner, other, said_before)
    if collection == CONVERSATION_STATE:
        return _state(winner, other)
    if collection == MEMORY and (united := unite(winner, other)) != winner:
        return {**united, "updatedAt": later(winner, other)}
    return winner


def is_older(collection: str, theirs: Value, ours: Value) -> bool:
    """Whether one version was written before the other, by their own times; False where they
    do not tell. So a write of long ago that arrives late is recognised.

    A message that has moved on since is not older, whatever the time.
    """
    if collection == MESSAGE and _place(theirs)[:2] > _place(ours)[:2]:
        return False
    return _NEVER < _moment(collection, theirs) < _moment(collection, ours)


def is_blind(collection: str, theirs: Value, ours: Value) -> bool:
    """Whether who wrote a version of a message had not seen the other one, and is not just
    older: it is earlier by its time, or has a place that the message has left already."""
    if collection != MESSAGE or is_older(collection, theirs, ours):
        return False
    behind = _place(theirs)[:2] < _place(ours)[:2]
    return behind or _moment(collection, theirs) < _moment(collection, ours)


def later(value: Value, *others: Value) -> str:
    """The first `updatedAt` that is later than those of all these versions.

    Not the time of day: who only moves or marks a record must not outdo one who, unknown to
    them, said something else in it.
    """
    newest = max((value, *others), key=lambda each: _moment(MESSAGE, each))
    time = str(newest["updatedAt"] if "updatedAt" in newest else newest["createdAt"])
    return after(time, time)


def said(collection: str, value: Value | None) -> CID | None:
    """A CID of what a message says, whatever place and marks it has; None of anything else."""
    if collection != MESSAGE or value is None:
        return None
    said = {key: value[key] for key in _SAID if key in value}
    return CID.for_cbor(cbor.encode(said, checked=True))


def settles(value: Value) -> bool:
    """Whether a message stands in the place of a tool result that never came."""
    known = formats.of(value)
    return (
        known is not None
        and value["role"] == "toolResult"
        and known.is_placeholder(value["message"]["data"])
    )


def _rank(collection: str, value: Value) -> _Rank:
    whole = "incomplete" not in value or collection != CONVERSATION_STATE
    return whole, _moment(collection, value), bytes(_cid(value))


def _cid(value: Value) -> CID:
    return CID.for_cbor(cbor.encode(value))


def _moment(collection: str, value: Value) -> datetime:
    names = ("compiledAt",) if collection == COMPILED_PROMPT else ("updatedAt", "createdAt")
    time = next((value[name] for name in names if name in value), None)
    if not is_datetime(time):
        return _NEVER
    try:
        return datetime.fromisoformat(str(time)).astimezone(UTC)
    except OverflowError:
        return _NEVER


def _message(winner: Value, other: Value, before: CID | None) -> Value:
    """Place, status and payload are merged each by itself: the place furthest along, compacted
    if either is, and the payload of whoever rewrote it."""
    if _said(winner) == _said(other) and _place(winner) == _place(other):
        return winner
    rewriter = _rewriter(winner, other, before)
    placed = max(winner, other, key=_place)
    merged = {key: each for key, each in rewriter.items() if key not in _PLACE}
    merged |= {key: placed[key] for key in _PLACE if key in placed}
    if not (is_active(winner) and is_active(other)):
        merged["status"] = COMPACTED
    if {**merged, "updatedAt": None} == {**winner, "updatedAt": None}:
        return winner
    return {**merged, "updatedAt": later(winner, other)}


def _place(value: Value) -> tuple[str, int, bytes]:
    """Messages only ever move to a fork, whose TID is higher than that of what it left, and to
    higher seqs."""
    listed = cbor.encode(value.get("compactedMessageIds"))
    return _rkey(str(value["conversation"])), value["seq"], listed


def _rkey(uri: str) -> str:
    try:
        return rkey_of(uri)
    except InvalidInput:
        return ""


def _rewriter(winner: Value, other: Value, before: CID | None) -> Value:
    """The version whose payload counts. Where nothing tells who rewrote it, it was probably not
    the one that marked the message, or gave it another place."""
    if _said(winner) == _said(other):
        return winner
    settled = [settles(each) for each in (winner, other)]
    if settled[0] != settled[1]:
        # A result that came late never gives way to what stood in its place.
        return other if settled[0] else winner
    first = ["updatedAt" not in each for each in (winner, other)]
    if first[0] != first[1]:
        # All other versions come from the first one.
        return other if first[0] else winner
    if before is not None:
        return other if said(MESSAGE, winner) == before else winner
    return other if _marks(winner, other) and not _marks(other, winner) else winner


def _said(value: Value) -> tuple[Any, ...]:
    return tuple(value[key] for key in _SAID)


def _marks(value: Value, other: Value) -> bool:
    return (not is_active(value) and is_active(other)) or _place(value)[:2] > _place(other)[:2]


def _state(winner: Value, other: Value) -> Value:
    """The winner, with what the other knows of divergences."""
    damage = winner.get("damage", [])
    merged = with_divergences(damage, other.get("damage", []))
    if merged == damage:
        return winner
    return {**winner, "damage": merged, "updatedAt": later(winner, other)}


def with_divergences(damage: Sequence[Value], more: Iterable[Value]) -> list[Value]:
    """What a conversation is damaged by, and what else is known of what it was parted from:
    that first, in an order that all machines have it in."""
    added = [each for each in more if _parts(each) and each not in damage]
    if not added:
        return list(damage)
    parted = [*filter(_parts, damage), *added]
    parted.sort(key=lambda each: str(each["note"]))
    return [*parted, *(each for each in damage if not _parts(each))][:MAX_DAMAGE]


def divergence(other: str) -> Value:
    """The entry of damage that says from what (its TID) a conversation was parted."""
    return {"kind": DIVERGED, "note": _PARTED + other}


def parted_from(damage: Iterable[Value]) -> list[str]:
    """The conversations (their TIDs) that such entries name."""
    return [str(each["note"]).removeprefix(_PARTED) for each in filter(_parts, damage)]


def _parts(entry: Value) -> bool:
    return entry["kind"] == DIVERGED and str(entry.get("note")).startswith(_PARTED)
