"""Where the messages of a file stand in the space.

As a rule all are of one conversation. Where two machines went on with it and were parted, the
rows in the file are the fork's: those that both have are there as copies under other keys, and
what had left the window before stands in the conversation that the fork left.
"""

from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from lettaspace.conversation.derive import message_tid
from lettaspace.conversation.origins import copied
from lettaspace.conversation.records import (
    CONVERSATION,
    LOCAL_MESSAGE,
    MESSAGE,
    rkey_of,
)
from lettaspace.conversation.space import Space
from lettaspace.letta import rows
from lettaspace.letta.build import LEGACY_MESSAGE
from lettaspace.letta.plan import Plan
from lettaspace.letta.tracking import Stored, stored_messages

_CHUNK = 500
_MOST = 1000
"""Forks of forks that are followed."""


@dataclass(slots=True)
class Located:
    """A plan's messages, held against what is stored of a conversation."""

    uri: str
    stored: Stored
    here: set[int] = field(default_factory=set[int])
    """The entries whose messages are stored in the conversation."""
    new: list[int] = field(default_factory=list[int])
    """Those whose messages are stored nowhere, in file order."""
    elsewhere: dict[int, str] = field(default_factory=dict[int, str])
    """Those whose messages stand in a conversation that this one left, or in one that left it,
    with its URI."""
    extra: set[str] = field(default_factory=set[str])
    """The stored messages (TIDs) that the file lacks, or has in rows that Letta never saw."""
    waiting: set[str] = field(default_factory=set[str])
    """Those of them that Letta would be given: they are in the window, and of its formats."""


def locate(space: Space, conversation: str, plan: Plan, *, size: int | None = None) -> Located:
    """Finds the messages of a plan, whose TIDs become those that they have in a conversation.

    `size` is that of the file when Letta last knew all of it; rows of ours behind that are
    there for Letta once they are listed. The TIDs derive from `plan.scan.conversation`.
    """
    uri = space.address.conversation(conversation)
    found = Located(uri, stored_messages(space, uri))
    scan = plan.scan
    for fork in lineage(space, conversation, scan.conversation)[1:]:
        _rename(space, plan, fork)
    alive = plan.messages()
    known = np.isin(scan.tid_array()[alive], found.stored.tids)
    found.here = set(alive[known].tolist())
    unknown: list[int] = alive[~known].tolist()
    taken = _taken(space, [scan.tid(entry) for entry in unknown])
    homes = _homes(space, found.uri, taken, scan.conversation) if taken else {}
    for entry in unknown:
        home = homes.get(scan.tid(entry))
        if home is not None:
            found.elsewhere[entry] = home
        elif scan.tid(entry) in taken and _avoid(space, plan, entry, found.stored):
            found.here.add(entry)
        else:
            found.new.append(entry)
    _find_extra(space, plan, found, size)
    return found


def lineage(space: Space, conversation: str, derived: str) -> list[str]:
    """The conversations (their TIDs) from `derived` to `conversation`, each the source of the
    next one; only the last where it does not come from the first."""
    found = [conversation]
    while found[-1] != derived and len(found) < _MOST:
        source = _source(space, found[-1])
        if source is None or source in found:
            return [conversation]
        found.append(source)
    return found[::-1]


def home(plan: Plan, located: Located) -> str:
    """The conversation (its TID) that a file belongs to: where the last of its messages stand
    that Letta knows of."""
    listed = [entry for entry in plan.window if entry in located.elsewhere or entry in located.here]
    last = max(listed, default=None)
    return rkey_of(located.elsewhere.get(last, located.uri) if last is not None else located.uri)


def _rename(space: Space, plan: Plan, fork: str) -> None:
    """Gives the messages that a fork has copies of the keys of those."""
    scan = plan.scan
    there = stored_messages(space, space.address.conversation(fork)).tids
    entries = plan.messages()
    tids = scan.tid_array()[entries]
    loose = entries[~np.isin(tids, there)]
    by_tid = {scan.tid(entry): entry for entry in loose.tolist()}
    for copy, original in copied(fork, _texts(there), by_tid).items():
        scan.set_tid(by_tid[original], copy)


def _texts(tids: NDArray[np.bytes_]) -> list[str]:
    return [tid.decode() for tid in tids.tolist()]


def _taken(space: Space, rkeys: list[str]) -> set[str]:
    """The TIDs that messages have, whatever conversation they are of."""
    found: set[str] = set()
    for start in range(0, len(rkeys), _CHUNK):
        found.update(space.repo.cids(MESSAGE, rkeys[start : start + _CHUNK]))
    return found


def _avoid(space: Space, plan: Plan, entry: int, stored: Stored) -> bool:
    """Gives another TID to a message whose derived one a message of a conversation has that this
    one has nothing to do with; whether it is stored under that."""
    scan = plan.scan
    with scan.path.open("rb") as file:
        row = scan.reread(file, entry)
    identity = scan.identity(row, rows.recognise(row)[1])
    for probe in count(1):
        tid = message_tid(scan.conversation, *identity, plan.ordinals.get(entry, 0), probe)
        if (stored.tids == tid.encode()).any():
            scan.set_tid(entry, tid)
            return True
        if not space.repo.cids(MESSAGE, [tid]):
            scan.set_tid(entry, tid)
            break
    return False


def _homes(space: Space, uri: str, wanted: set[str], derived: str) -> dict[str, str]:
    """The other conversations of the family (their URIs) in which messages stand, by TID."""
    found: dict[str, str] = {}
    for member in _family(space, rkey_of(uri), derived) - {uri}:
        there = wanted.intersection(_texts(stored_messages(space, member).tids))
        found.update(dict.fromkeys(there, member))
    return found


def _source(space: Space, conversation: str) -> str | None:
    """The TID of the conversation that one left; None for one that left none of ours."""
    record = space.repo.get(CONVERSATION, conversation)
    left = None if record is None else record.value.get("forkedFrom")
    prefix = space.address.conversation("")
    uri = "" if left is None else str(left["conversation"]["uri"])
    return uri.removeprefix(prefix) if uri.startswith(prefix) else None


def _family(space: Space, conversation: str, derived: str) -> set[str]:
    """The URIs of all conversations that the two come from, or that come from those."""
    sources: dict[str, str] = {}
    for record in space.repo.records(CONVERSATION):
        if "forkedFrom" in record.value:
            source = _source(space, record.rkey)
            if source is not None:
                sources[record.rkey] = source
    related = {conversation, derived}
    for name in list(related):
        while (name := sources.get(name, "")) and name not in related:
            related.add(name)
    size = 0
    while size < len(related):
        size = len(related)
        related |= {fork for fork, source in sources.items() if source in related}
    return {space.address.conversation(name) for name in related}


def _find_extra(space: Space, plan: Plan, found: Located, size: int | None) -> None:
    scan, stored = plan.scan, found.stored
    listed = set(plan.window)
    seen = found.here
    if size is not None:
        seen = {
            entry
            for entry in seen
            if entry in listed or not scan.given[entry] or scan.offsets[entry] < size
        }
    tids = scan.tid_array()[sorted(seen)]
    extra = ~np.isin(stored.tids, tids)
    found.extra = set(_texts(stored.tids[extra]))
    waiting = _texts(stored.tids[extra & stored.in_window])
    with space.repo.snapshot() as view:
        for rkey in waiting:
            record = view.get(MESSAGE, rkey)
            message = record.value["message"] if record is not None else {}
            if (message.get("format"), message.get("version")) in _LETTAS:
                found.waiting.add(rkey)


_LETTAS = {(LOCAL_MESSAGE, 1), (LEGACY_MESSAGE, 1)}
