"""Records of one author and space made those of another: what they refer to moves along.

Only the references that our lexicons define are rewritten, where they name the old author's repo
in the old space; never what stands in payloads or texts. A strong reference gets the CID that
its record has once it is rewritten, if the record is the version that the reference names; what
refers to an older version keeps that one's CID, as no record has it any more.
"""

from collections.abc import Callable, Iterable
from graphlib import TopologicalSorter
from typing import Final, Protocol

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation.records import (
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MEMORY,
    MESSAGE,
    Address,
)
from lettaspace.space.writes import Value

URIS: Final = {
    MESSAGE: ("conversation", "agent"),
    COMPILED_PROMPT: ("conversation", "agent"),
    CONVERSATION: ("agent",),
    CONVERSATION_STATE: ("conversation",),
    MEMORY: ("agent",),
}
"""The fields of each collection that are references."""

FORK: Final = "forkedFrom"
FORK_REFS: Final = ("conversation", "message")
"""Where a conversation has strong references."""


class Stored(Protocol):
    """A record where it was."""

    @property
    def collection(self) -> str: ...

    @property
    def rkey(self) -> str: ...

    @property
    def cid(self) -> CID: ...

    @property
    def value(self) -> Value: ...


class Source(Protocol):
    """The records that are to move: an archive, or a repo in a store."""

    @property
    def address(self) -> Address:
        """Where they stood."""
        ...

    def records(self, wanted: Callable[[str, str], bool]) -> Iterable[Stored]:
        """Those whose collection and key are wanted. They satisfy their lexicons."""
        ...


class Readdress:
    """Rewrites the records of a source for another address."""

    def __init__(self, source: Source, address: Address) -> None:
        self._old = source.address.prefix
        self._new = address.prefix
        self._cids: dict[tuple[str, str], str] = {}
        if self.needed:
            self._find_cids(source)

    @property
    def needed(self) -> bool:
        """Whether the source's address is another."""
        return self._old != self._new

    def __call__(self, collection: str, value: Value) -> Value:
        """The record's value at the new address; the argument is not changed."""
        if not self.needed:
            return value
        value = dict(value)
        for field in URIS.get(collection, ()):
            if field in value:
                value[field] = self._uri(value[field])
        if collection == CONVERSATION and FORK in value:
            value[FORK] = dict(value[FORK])
            for field in FORK_REFS:
                value[FORK][field] = self._ref(value[FORK][field])
        return value

    def _uri(self, uri: str) -> str:
        return self._new + uri[len(self._old) :] if uri.startswith(self._old) else uri

    def _ref(self, ref: Value) -> Value:
        uri, cid = ref["uri"], ref["cid"]
        return {**ref, "uri": self._uri(uri), "cid": self._cids.get((uri, cid), cid)}

    def _find_cids(self, source: Source) -> None:
        """Works out the new CIDs of what forks refer to: first of what refers to nothing."""
        forks: dict[str, Stored] = {}
        for each in source.records(lambda collection, _rkey: collection == CONVERSATION):
            if FORK in each.value:
                forks[self._name(each.collection, each.rkey)] = each
        if not forks:
            return
        uris = {ref["uri"] for fork in forks.values() for ref in _refs(fork)}
        others = source.records(
            lambda collection, rkey: (
                (name := self._name(collection, rkey)) in uris and name not in forks
            )
        )
        for each in others:
            self._note(each)
        # No fork comes before what it was made from: that one's CID is in it.
        before = {
            name: [
                ref["uri"]
                for ref in _refs(fork)
                if ref["uri"] in forks and str(forks[ref["uri"]].cid) == ref["cid"]
            ]
            for name, fork in forks.items()
        }
        for name in TopologicalSorter(before).static_order():
            self._note(forks[name])

    def _note(self, record: Stored) -> None:
        value = self(record.collection, record.value)
        cid = CID.for_cbor(cbor.encode(value))
        self._cids[self._name(record.collection, record.rkey), str(record.cid)] = str(cid)

    def _name(self, collection: str, rkey: str) -> str:
        return f"{self._old}{collection}/{rkey}"


def unversioned(conversation: Value) -> Value:
    """A conversation's value without the CIDs in its references. Once what it left was rewritten,
    a later copy cannot tell their new ones any more, and is no other conversation for that."""
    if FORK not in conversation:
        return conversation
    names = {field: conversation[FORK][field]["uri"] for field in FORK_REFS}
    return {**conversation, FORK: names}


def _refs(conversation: Stored) -> list[Value]:
    return [conversation.value[FORK][field] for field in FORK_REFS]
