"""Taking: what a host has at some keys becomes what is here, within one transaction.

A record that only the host changed is taken, one that only we changed stays; of one that both
changed, `merging` says what it becomes. Where both went on in a conversation, `branches` parts
them. Nothing that is here is ever deleted for it, but in a repo of somebody else.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MEMORY,
    MESSAGE,
    Address,
    rkey_of,
)
from lettaspace.errors import Damaged, InvalidRecord
from lettaspace.remote.branches import Divergence, diverge, mend, tied
from lettaspace.remote.merging import is_blind, is_older, later, merge, said
from lettaspace.remote.mirror import DELETED, INVALID, NO_BLOB, Key, Mirror, There
from lettaspace.remote.parting import Conversation
from lettaspace.space import schema
from lettaspace.space.repo import Transaction
from lettaspace.space.writes import Create, Delete, Update, Validate, Value, Write

_TIMED = frozenset({AGENT, COMPILED_PROMPT, CONVERSATION_STATE, MEMORY, MESSAGE})
"""Where every version says when it was written, so that none comes back."""

_MANY = 500
"""CIDs in one query."""


class Change(NamedTuple):
    """What the host has now at a key: the record and its encoding. `cid` None: nothing, by its
    log. `value` None, otherwise: it did not give what the CID is of. `at`: the place in the log
    of the first change to it since we last looked, where it is known."""

    key: Key
    cid: CID | None
    value: Value | None = None
    data: bytes = b""
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """How records are taken. `own`: the repo's author writes here as well; otherwise it is
    somebody else's, and only what the host has counts."""

    address: Address
    own: bool
    validate: Validate


@dataclass(slots=True)
class Taken:
    """What became of it. Counts of records; `forks` are the conversations that two machines
    had gone on with."""

    created: int = 0
    updated: int = 0
    held: int = 0
    forks: list[Divergence] = field(default_factory=list[Divergence])

    def __iadd__(self, other: "Taken") -> "Taken":
        self.created += other.created
        self.updated += other.updated
        self.held += other.held
        self.forks += other.forks
        return self


def take(
    tx: Transaction, repo: int, changes: Sequence[Change], terms: Terms, missing: set[CID]
) -> Taken:
    """Writes into the repo, and notes what the host has. `missing` are blobs that neither has."""
    taking = _Taking(tx, repo, terms, missing)
    taking.run(changes)
    return taking.taken


class _Taking:
    def __init__(self, tx: Transaction, repo: int, terms: Terms, missing: set[CID]) -> None:
        self.taken = Taken()
        self._tx = tx
        self._mirror = Mirror(tx.connection, repo)
        self._terms = terms
        self._missing = missing
        self._writes: list[Write] = []
        # By conversation: the messages that were new here, and those that left it, with the
        # conversation that they went to.
        self._arrived: defaultdict[str, set[str]] = defaultdict(set)
        self._left: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._lowest: dict[str, int] = {}
        """By conversation: the lowest seq that one of those had which left it."""
        self._touched: set[str] = set()
        self._same: set[str] = set()
        """Messages that are here as they are there, whoever sent them."""
        self._seqs: dict[str, int] = {}
        self._landed: dict[Key, int] = {}
        """In which order they came to the host."""
        self._coming: set[Key] = set()
        """Whose records are among what has come."""
        self._earlier: set[tuple[Key, CID]] = set()
        """What the host has that we have said before, and have said otherwise since."""

    def run(self, changes: Sequence[Change]) -> None:
        here = self._here(changes)
        there = self._mirror.cids(change.key for change in changes)
        self._mirror.release([change.key for change in changes])
        self._coming = {change.key for change in changes if change.cid is not None}
        self._landed = {change.key: change.at for change in changes if change.at is not None}
        self._earlier = self._said_before(changes, here, there)
        for change in changes:
            self._one(change, here.get(change.key), there.get(change.key))
        parting = self._terms.own and bool(self._touched)
        # Before it is noted what the host has: what we have sent may be among what comes.
        unknown = self._mirror.unknown(MESSAGE) if parting else set()
        parted = self._parted() if parting else {}
        self._tx.apply(self._writes)
        self._mirror.put(
            There(change.key, change.cid, said(change.key.collection, change.value))
            for change in changes
        )
        if parting:
            self._part(unknown, parted)
            self._mend(unknown)

    def _here(self, changes: Sequence[Change]) -> dict[Key, CID]:
        by_collection: defaultdict[str, list[str]] = defaultdict(list)
        for collection, rkey in (change.key for change in changes):
            by_collection[collection].append(rkey)
        return {
            Key(collection, rkey): cid
            for collection, rkeys in by_collection.items()
            for rkey, cid in self._tx.view.cids(collection, rkeys).items()
        }

    def _said_before(
        self, changes: Sequence[Change], here: Mapping[Key, CID], there: Mapping[Key, CID]
    ) -> set[tuple[Key, CID]]:
        """Versions that were here before ours and that we did not know to be at the host: we sent
        them, and the answer was lost. Each version has a time of its own, so it is no other's."""
        wanted = {
            (change.key, change.cid)
            for change in changes
            if change.cid is not None
            and change.key.collection in _TIMED
            and here.get(change.key) not in (None, change.cid, there.get(change.key))
        }
        ops = schema.ops.c
        found: set[tuple[Key, CID]] = set()
        cids = sorted({bytes(cid) for _, cid in wanted})
        for start in range(0, len(cids) if self._terms.own else 0, _MANY):
            rows = self._tx.connection.execute(
                select(ops.collection, ops.rkey, ops.cid).where(
                    ops.repo == self._tx.view.repo, ops.cid.in_(cids[start : start + _MANY])
                )
            )
            found |= {(Key(row.collection, row.rkey), CID.from_bytes(row.cid)) for row in rows}
        return found & wanted

    def _one(self, change: Change, ours: CID | None, base: CID | None) -> None:
        """`base` is what the host had when we last looked."""
        if change.cid is None:
            if ours is not None:
                self._gone(change.key, ours)
        elif ours == change.cid:
            self._keep(change.key, change.value)
        elif change.value is None:
            self._hold(change.key, INVALID)
        elif (reason := self._unfit(change.key, change.value)) is not None:
            self._hold(change.key, reason)
        elif ours is None:
            self._create(change.key, change.value, change.data)
        elif (change.key, change.cid) in self._earlier:
            self._mirror.set_pushed(None)  # ours comes after it
        elif ours == base or not self._terms.own:
            self._replace(change.key, change.value)
        else:
            self._merge(change.key, change.value)

    def _keep(self, key: Key, value: Value | None) -> None:
        if key.collection == MESSAGE and value is not None:
            self._same.add(key.rkey)
            self._seqs[key.rkey] = value["seq"]

    def _gone(self, key: Key, ours: CID) -> None:
        if self._terms.own:
            self._hold(key, DELETED)
        else:
            self._writes.append(Delete(*key, ours))
            self.taken.updated += 1

    def _hold(self, key: Key, reason: str) -> None:
        self._mirror.hold(key, reason)
        self.taken.held += 1

    def _unfit(self, key: Key, value: Value) -> str | None:
        """Why a record cannot be stored here, if it cannot."""
        if value.get("$type") != key.collection:
            return INVALID
        if self._missing and not self._missing.isdisjoint(blob_refs(value)):
            return NO_BLOB
        try:
            self._terms.validate(*key, value)
        except InvalidRecord:
            return INVALID
        return None

    def _create(self, key: Key, value: Value, data: bytes) -> None:
        self._writes.append(Create(*key, value, data))
        self.taken.created += 1
        if key.collection == MESSAGE:
            self._touched.add(value["conversation"])
            self._arrived[value["conversation"]].add(key.rkey)
            self._seqs[key.rkey] = value["seq"]

    def _replace(self, key: Key, value: Value) -> None:
        """What only the host changed."""
        old = self._value(key)
        if self._terms.own and key.collection == MEMORY:
            # Who wrote it may not have known of ours, whatever the times: no commit goes.
            merged = merge(key.collection, old, value)
            self._update(key, old, merged)
            if merged != value:
                self._mirror.set_pushed(None)
            return
        if self._terms.own and is_older(key.collection, value, old):
            # A write of long ago that arrived late, and took the place of a newer one.
            self._mirror.set_pushed(None)
            return
        now, before = self._mirror.said(key)
        same = said(key.collection, value)
        blind = same is not None and same == before != now
        if self._terms.own and blind and value.get("updatedAt") != later(old):
            # A write of somebody who had not seen what is said here, as who merged it would have.
            self._update(key, old, merge(key.collection, old, value, said_before=before))
            self._mirror.set_pushed(None)
        elif self._terms.own and is_blind(key.collection, value, old):
            self._update(key, old, merge(key.collection, old, value))
            self._mirror.set_pushed(None)
        else:
            self._update(key, old, value)

    def _merge(self, key: Key, value: Value) -> None:
        """What both changed."""
        ours = self._value(key)
        # A conversation is written once; that of the host has been seen by others.
        stays = key.collection == CONVERSATION
        said_before, _ = self._mirror.said(key)
        merged = merge(key.collection, ours, value, said_before=said_before)
        self._update(key, ours, value if stays else merged)

    def _update(self, key: Key, old: Value, new: Value) -> None:
        if cbor.encode(old) == (data := cbor.encode(new)):
            return
        self._writes.append(Update(*key, new, data=data))
        self.taken.updated += 1
        if key.collection != MESSAGE:
            return
        self._touched |= {old["conversation"], new["conversation"]}
        if old["conversation"] != new["conversation"]:
            left = old["conversation"]
            self._left[left][key.rkey] = new["conversation"]
            self._lowest[left] = min(old["seq"], self._lowest.get(left, old["seq"]))

    def _value(self, key: Key) -> Value:
        record = self._tx.view.get(*key)
        if record is None:
            raise Damaged(f"{'/'.join(key)} is noted and not stored")
        return record.value

    def _parted(self) -> dict[str, dict[str, str]]:
        """By conversation in which something has arrived: the messages of it that we have put
        into a fork of which the host had nothing when we last looked, and that fork's URI."""
        address, view = self._terms.address, self._tx.view
        rkeys = self._mirror.unknown(CONVERSATION)
        forks = [Conversation(view, address, address.conversation(rkey)) for rkey in sorted(rkeys)]
        found: dict[str, dict[str, str]] = {}
        for uri in self._arrived if forks else ():
            source = Conversation(view, address, uri)
            for fork in forks:
                if fork.left(source):
                    theirs = self._mirror.cids(Key(MESSAGE, rkey) for rkey in fork.layout.items)
                    found.setdefault(uri, {}).update((key.rkey, fork.uri) for key in theirs)
        return found

    def _part(self, unknown: set[str], parted: Mapping[str, Mapping[str, str]]) -> None:
        """Parts the branches of conversations in which both sides went on. `unknown`: messages
        of ours that the host had not when we last looked; `parted` is of that time, too."""
        # What follows others has to be gone before it is told who went on in a conversation.
        for conversation in sorted(
            {*self._arrived, *self._left}, key=lambda uri: (uri not in self._left, uri)
        ):
            theirs = self._arrived[conversation]
            ours = (self._messages(conversation) & unknown) - theirs
            ours -= self._known_to(theirs, ours)
            ours |= self._followers(conversation) - theirs
            if moved := self._behind(parted.get(conversation, {})):
                # Who wrote these did not know that we had moved what they came after.
                self._diverge(conversation, theirs, ours, moved, is_theirs=True)
            elif ours or tied(self._tx.connection, conversation):
                self._diverge(conversation, ours, theirs, self._left[conversation])

    def _mend(self, unknown: set[str]) -> None:
        """Puts in order what merging has left otherwise."""
        for conversation in sorted(self._touched):
            new = self._arrived[conversation]
            if not new:
                # What has come back, others may have put elsewhere.
                new = self._messages(conversation) & unknown
                new = {rkey for rkey in new if Key(MESSAGE, rkey) not in self._coming}
            elif not self._put_behind(conversation, min(self._seqs[rkey] for rkey in new)):
                new = set()
            mend(self._tx, self._terms.address, conversation, new)

    def _put_behind(self, conversation: str, seq: int) -> bool:
        """Whether we have given messages seqs above this one that the host does not know."""
        number = find_conversation_id(self._tx.connection, conversation)
        index = schema.message_index.c
        rows = self._tx.connection.execute(
            select(index.rkey).where(
                index.conversation == number, index.seq >= seq, index.updated_at.is_not(None)
            )
        )
        rkeys = [rkey for rkey in rows.scalars() if rkey not in self._arrived[conversation]]
        here = self._tx.view.cids(MESSAGE, rkeys)
        there = self._mirror.cids(Key(MESSAGE, rkey) for rkey in rkeys)
        return any(there.get(Key(MESSAGE, rkey)) != cid for rkey, cid in here.items())

    def _diverge(
        self,
        conversation: str,
        mine: set[str],
        others: set[str],
        moved: Mapping[str, str],
        *,
        is_theirs: bool = False,
    ) -> None:
        done = diverge(self._tx, self._terms.address, conversation, mine, others, moved=moved)
        if done is not None and is_theirs:
            done = done._replace(moved="ours" if done.moved == "theirs" else "theirs")
        if done is not None:
            self.taken.forks.append(done)

    def _known_to(self, theirs: set[str], ours: set[str]) -> set[str]:
        """Those of ours that were at the host before `theirs`. Whoever sent these has seen ours
        since, and has parted from them or went on after them: they are no branch of ours."""
        if not theirs:
            return set()
        landed = {rkey: self._landed.get(Key(MESSAGE, rkey)) for rkey in ours}
        first = min(self._landed.get(Key(MESSAGE, rkey), -1) for rkey in theirs)
        if first >= 0:
            return {rkey for rkey, at in landed.items() if at is not None and at < first}
        # Without the log, the seqs have to tell.
        same = ours & self._same
        if not same:
            return set()
        first = min(self._seqs[rkey] for rkey in theirs)
        return same if first > max(self._seqs[rkey] for rkey in same) else set()

    def _followers(self, conversation: str) -> set[str]:
        """The messages that came after one that has just left: those that whoever moved it had
        not seen yet, or had not sent yet."""
        if (lowest := self._lowest.get(conversation)) is None:
            return set()
        number = find_conversation_id(self._tx.connection, conversation)
        index = schema.message_index.c
        # A compaction gives what it keeps other seqs, but not other TIDs.
        at_first = index.updated_at.is_(None) | (index.rkey > min(self._left[conversation]))
        rows = self._tx.connection.execute(
            select(index.rkey).where(index.conversation == number, index.seq > lowest, at_first)
        )
        return set(rows.scalars())

    def _behind(self, moved: Mapping[str, str]) -> dict[str, str]:
        """What we have moved to where the host had nothing till now. Whoever brought it there
        has seen what was said behind it, and has taken it along."""
        return {
            rkey: uri
            for rkey, uri in moved.items()
            if Key(CONVERSATION, rkey_of(uri)) not in self._coming
        }

    def _messages(self, conversation: str) -> set[str]:
        """The TIDs of a conversation's messages."""
        number = find_conversation_id(self._tx.connection, conversation)
        index = schema.message_index.c
        rows = self._tx.connection.execute(select(index.rkey).where(index.conversation == number))
        return set(rows.scalars())
