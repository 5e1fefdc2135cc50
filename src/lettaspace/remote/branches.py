"""Branches: two machines went on with one conversation, each without knowing of the other.

Their messages are not shuffled together. The branch whose first message has the smaller TID keeps
the conversation; the other one becomes a fork, which begins with copies of what both have in
common. Neither a clock nor who comes first has a say, so all machines that part the two write the
same records. docs/divergence.md is the contract.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from sqlalchemy import Connection, bindparam, false, func, select

from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.origins import fork_tid
from lettaspace.conversation.records import Address
from lettaspace.remote.arranging import Layout, common, window
from lettaspace.remote.parting import Conversation, Parting
from lettaspace.space.repo import Transaction
from lettaspace.space.schema import message_index
from lettaspace.space.statement import Statement

_index = message_index.c
_unmarked = Statement(
    lambda: (
        select(_index.rkey)
        .where(_index.conversation == bindparam("id"), _index.covered_by.is_not(None))
        .where(_index.active)
        .limit(1)
    )
)
_loose = Statement(
    lambda: (
        select(_index.rkey)
        # In the words of the partial index, or SQLite would not use it.
        .where(_index.conversation == bindparam("id"), _index.active == false())
        .where(_index.covered_by.is_(None))
        .limit(1)
    )
)
_tied = Statement(
    lambda: (
        select(_index.seq)
        .where(_index.conversation == bindparam("id"))
        .group_by(_index.seq)
        .having(func.count() > 1)
        .limit(1)
    )
)

Side = Literal["ours", "theirs"]


class Divergence(NamedTuple):
    """A conversation that was parted: its URI, that of the fork, and whose messages moved."""

    conversation: str
    fork: str
    moved: Side


def diverge(
    tx: Transaction,
    address: Address,
    conversation: str,
    ours: Collection[str],
    theirs: Collection[str],
    *,
    moved: Mapping[str, str] | None = None,
) -> Divergence | None:
    """Parts the two branches of a conversation (its URI), once both are stored.

    `ours` are the TIDs of messages that were written here and that the other side did not know,
    `theirs` of those that have just come; both may name messages that stand elsewhere by now.
    `moved` has the messages that stood in this conversation here and that what has come put into
    another, with that one's URI: if ours came after them, ours follow.

    None, and nothing is written, where there is nothing to part or it cannot be told how: then
    all stays in place.
    """
    source = Conversation(tx.view, address, conversation)
    if source.record is None:
        return None
    mine, others = source.sides(ours, theirs)
    mine, others = _unlisted(source, mine, others), _unlisted(source, others, mine)
    if mine and moved and (done := _follow(tx, source, mine, others, moved)) is not None:
        return done
    more, further = _tied_with(source, mine, others), _tied_with(source, others, mine)
    mine, others = mine | (more - further), others | (further - more)
    if not (mine and others):
        return None
    side: Side = "theirs" if min(mine) < min(others) else "ours"
    loser, winner = (others, mine) if side == "theirs" else (mine, others)
    rkey = fork_tid(source.rkey, min(loser))
    if rkey is None:
        return None
    fork = source.at(address.conversation(rkey))
    if fork.record is not None and fork.parent not in (source.uri, None):
        return None  # another conversation, which has this key by chance
    tx.apply(Parting(source, fork, loser, winner).writes())
    return Divergence(conversation, fork.uri, side)


def _unlisted(source: Conversation, mine: set[str], others: set[str]) -> set[str]:
    """Our side without what the other one has summarised, and so has seen."""
    listed = mine & source.layout.covered(others)
    return {rkey for rkey in mine if rkey > max(listed, default="")}


def _tied_with(source: Conversation, mine: set[str], others: set[str]) -> set[str]:
    """What belongs to our side of what both seem to have in common.

    A message gets a seq above all that its machine knows. So of two that share one, neither was
    written by somebody who knew the other, and what came after the one did not know the other.
    """
    layout = source.layout
    common = layout.items.keys() - mine - others
    own = _unmoved(layout, common | mine)
    # Whoever gave one of theirs another seq put it above all they knew, as well.
    seqs = {layout.items[rkey].seq for rkey in others}
    seqs -= {layout.items[rkey].seq for rkey in own & mine}
    tied = {rkey for rkey in own & common if layout.items[rkey].seq in seqs}
    if not tied:
        return set()
    return {rkey for rkey in common - source.copies(common) if rkey >= min(tied)}


def _unmoved(layout: Layout, rkeys: Collection[str]) -> set[str]:
    """Those of the messages that have the seq that they were given at first.

    One that was only marked since has it as well: who gives a message another seq puts it behind
    all others, and so behind what was said later.
    """
    found: set[str] = set()
    lowest: int | None = None
    for rkey in sorted(rkeys, reverse=True):
        item = layout.items[rkey]
        marked = not item.active and lowest is not None and item.seq < lowest
        if marked or not item.touched:
            found.add(rkey)
        lowest = item.seq if lowest is None else min(lowest, item.seq)
    return found


def mend(tx: Transaction, address: Address, conversation: str, new: Collection[str] = ()) -> bool:
    """Makes the marks and seqs of a conversation (its URI) say what its summaries say, where
    merging has left them otherwise; returns whether that took anything.

    What a summary lists is compacted. What none lists, though one that moved to a fork did, is
    not: the fork has a copy of it. No two messages share a seq, but where two branches that are
    not parted yet do. `new` messages, written by who did not know that others have put the
    common ones behind them, stand where they stood.
    """
    number = find_conversation_id(tx.connection, conversation)
    if not new and all(
        each.one(tx.connection, id=number) is None for each in (_unmarked, _loose, _tied)
    ):
        return False
    source = Conversation(tx.view, address, conversation)
    layout = source.layout
    own, _ = source.sides(new, ())
    ties = layout.ties()
    first = {item.rkey for tie in ties for item in tie if not item.touched} - own
    if first - source.copies(first):
        return False  # branches, which somebody who knows them will part
    covered = layout.covered(layout.items)
    loose = {rkey for rkey, item in layout.items.items() if not item.active} - covered
    freed = source.copied(loose) if loose else set()
    marked = any(layout.items[rkey].active for rkey in covered & layout.items.keys())
    for rkey in freed:
        layout.items[rkey].active = True
    line = window(layout, common(layout, own), own)
    seqs = [layout.items[rkey].seq for rkey in line]
    if not (freed or marked or ties or (own and seqs != sorted(seqs))):
        return False
    layout.arrange(line, own)
    tx.apply(layout.writes())
    return True


def tied(connection: Connection, conversation: str) -> bool:
    """Whether messages of a conversation (its URI) share a seq."""
    number = find_conversation_id(connection, conversation)
    return number is not None and _tied.one(connection, id=number) is not None


def _follow(
    tx: Transaction,
    source: Conversation,
    mine: set[str],
    others: set[str],
    moved: Mapping[str, str],
) -> Divergence | None:
    """Moves our messages to where the last one went that they came after, if it went."""
    gone = {rkey: uri for rkey, uri in moved.items() if uri != source.uri}
    stayed = source.layout.items.keys() - mine - others
    if not gone or max(gone) < max(stayed, default=""):
        return None
    path = _path(source, gone[max(gone)])
    left, staying = source, others
    for uri in path:
        fork = source.at(uri)
        parting = Parting(left, fork, mine, staying)
        tx.apply(parting.writes())
        left, staying = source.at(uri), set()
    # There, others may have gone on as well.
    known = {*parting.copies.values(), *gone, *mine}
    again = diverge(tx, source.address, fork.uri, mine, fork.layout.items.keys() - known)
    return again or Divergence(source.uri, fork.uri, "ours")


def _path(source: Conversation, uri: str) -> list[str]:
    """The forks from the one that left the source to this conversation; that one alone, if it
    left what the source has left, too."""
    path = [uri]
    while not (fork := source.at(path[0])).left(source):
        if fork.parent is None or fork.parent in path:
            return [uri]
        path.insert(0, fork.parent)
    return path
