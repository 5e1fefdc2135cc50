"""Taking: what a host has at some keys becomes what is here, within one transaction.

A record that only the host changed is taken, one that only we changed stays; of one that both
changed, `merging` says what it becomes. Where both went on in a conversation, `branches` parts
them. Nothing that is here is ever deleted for it, but in a repo of somebody else.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.records import CONVERSATION, MESSAGE, Address
from lettaspace.errors import Damaged, InvalidRecord
from lettaspace.remote.branches import Divergence, diverge, mend
from lettaspace.remote.merging import is_older, merge
from lettaspace.remote.mirror import DELETED, INVALID, NO_BLOB, Key, Mirror
from lettaspace.space import schema
from lettaspace.space.repo import Transaction
from lettaspace.space.writes import Create, Delete, Update, Validate, Value, Write


class Change(NamedTuple):
    """What the host has now at a key: the record and its encoding. `cid` None: nothing, by its
    log. `value` None, otherwise: it did not give what the CID is of."""

    key: Key
    cid: CID | None
    value: Value | None = None
    data: bytes = b""


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
        self._touched: set[str] = set()
        self._same: set[str] = set()
        """Messages that are here as they are there, whoever sent them."""
        self._seqs: dict[str, int] = {}

    def run(self, changes: Sequence[Change]) -> None:
        here = self._here(changes)
        there = self._mirror.cids(change.key for change in changes)
        self._mirror.release([change.key for change in changes])
        for change in changes:
            self._one(change, here.get(change.key), there.get(change.key))
        parting = self._terms.own and (self._arrived or self._left)
        # Before it is noted what the host has: what we have sent may be among what comes.
        unknown = self._mirror.unknown(MESSAGE) if parting else set()
        self._tx.apply(self._writes)
        self._mirror.put((change.key, change.cid) for change in changes)
        self._part(unknown)
        if self._terms.own:
            for conversation in sorted(self._touched):
                mend(self._tx, self._terms.address, conversation)

    def _here(self, changes: Sequence[Change]) -> dict[Key, CID]:
        by_collection: defaultdict[str, list[str]] = defaultdict(list)
        for collection, rkey in (change.key for change in changes):
            by_collection[collection].append(rkey)
        return {
            Key(collection, rkey): cid
            for collection, rkeys in by_collection.items()
            for rkey, cid in self._tx.view.cids(collection, rkeys).items()
        }

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
        elif ours == base or not self._terms.own:
            self._replace(change.key, change.value)
        else:
            self._merge(change.key, change.value, base)

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
        if self._terms.own and is_older(key.collection, value, old):
            # A write of long ago that arrived late, and took the place of a newer one.
            self._mirror.set_pushed(None)
        else:
            self._update(key, old, value)

    def _merge(self, key: Key, value: Value, base: CID | None) -> None:
        """What both changed."""
        ours = self._value(key)
        # A conversation is written once; that of the host has been seen by others.
        stays = key.collection == CONVERSATION
        self._update(key, ours, value if stays else merge(key.collection, ours, value, base))

    def _update(self, key: Key, old: Value, new: Value) -> None:
        if cbor.encode(old) == (data := cbor.encode(new)):
            return
        self._writes.append(Update(*key, new, data=data))
        self.taken.updated += 1
        if key.collection != MESSAGE:
            return
        self._touched |= {old["conversation"], new["conversation"]}
        if old["conversation"] != new["conversation"]:
            self._left[old["conversation"]][key.rkey] = new["conversation"]

    def _value(self, key: Key) -> Value:
        record = self._tx.view.get(*key)
        if record is None:
            raise Damaged(f"{'/'.join(key)} is noted and not stored")
        return record.value

    def _part(self, unknown: set[str]) -> None:
        """Parts the branches of conversations in which both sides went on. `unknown`: messages
        of ours that the host had not when we last looked."""
        if not unknown:
            return
        for conversation in sorted({*self._arrived, *self._left}):
            theirs = self._arrived[conversation]
            ours = (self._messages(conversation) & unknown) - theirs
            ours -= self._known_to(theirs, ours & self._same)
            if not ours:
                continue
            moved = self._left[conversation]
            address = self._terms.address
            done = diverge(self._tx, address, conversation, ours, theirs, moved=moved)
            if done is not None:
                self.taken.forks.append(done)

    def _known_to(self, theirs: set[str], same: set[str]) -> set[str]:
        """Those of the messages that both have, `same`, if whoever wrote `theirs` went on after
        them: then they are no branch of ours, wherever they come from."""
        if not (theirs and same):
            return set()
        first = min(self._seqs[rkey] for rkey in theirs)
        return same if first > max(self._seqs[rkey] for rkey in same) else set()

    def _messages(self, conversation: str) -> set[str]:
        """The TIDs of a conversation's messages."""
        number = find_conversation_id(self._tx.connection, conversation)
        index = schema.message_index.c
        rows = self._tx.connection.execute(select(index.rkey).where(index.conversation == number))
        return set(rows.scalars())
