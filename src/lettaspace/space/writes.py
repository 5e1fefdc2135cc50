"""What one can ask of a repo, and what it answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lettaspace.atproto.cid import CID

Value = dict[str, Any]

Validate = Callable[[str, str, Value], None]
"""Raises InvalidRecord unless (collection, rkey, value) may be stored."""

MAX_WRITES = 200
"""The most writes in one batch (protocol, section 10)."""


@dataclass(frozen=True, slots=True)
class Create:
    """Writes a record where there is none. `rkey` None: a fresh TID.

    `data` is the value's encoding, for who has it already; the value then has its `$type`.
    """

    collection: str
    rkey: str | None
    value: Value
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Update:
    """Replaces a record that exists; with `expected`, only while it has that CID. `data` is as
    for `Create`."""

    collection: str
    rkey: str
    value: Value
    expected: CID | None = None
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a record that exists; with `expected`, only while it has that CID."""

    collection: str
    rkey: str
    expected: CID | None = None


Write = Create | Update | Delete


@dataclass(frozen=True, slots=True)
class Record:
    """A stored record: its key, its CID, and its value in the data model."""

    collection: str
    rkey: str
    cid: CID
    value: Value


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of one write: where, and the new CID (None after a delete)."""

    collection: str
    rkey: str
    cid: CID | None


@dataclass(frozen=True, slots=True)
class Op:
    """One entry of the oplog. `cid` None: deleted. `prev` None: created."""

    rev: str
    index: int
    collection: str
    rkey: str
    cid: CID | None
    prev: CID | None


class Reader(Protocol):
    """One consistent view of a repo."""

    def get(self, collection: str, rkey: str) -> Record | None:
        """The record, or None."""
        ...

    def cids(self, collection: str, rkeys: Sequence[str]) -> dict[str, CID]:
        """The CIDs of those of `rkeys` that exist."""
        ...

    def records(
        self, collection: str, *, after: str | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """Records by ascending rkey, strictly after `after`."""
        ...

    def get_blob(self, cid: CID) -> bytes:
        """A blob's bytes. Raises NotFound."""
        ...


Plan = Callable[[Reader], Sequence[Write]]


class Repo(Reader, Protocol):
    """The one interface through which the layers above see a repo.

    A repo belongs to one author in one space. `Reader` methods called on the repo itself
    each see the newest state; inside `transact` they see one state.
    """

    @property
    def space(self) -> str: ...

    @property
    def author(self) -> str: ...

    def apply_writes(
        self, writes: Sequence[Write], *, blobs: Mapping[CID, bytes] | None = None
    ) -> list[Written]:
        """All of `writes` (at most 200), in order, or none.

        Raises Conflict (exists already, or another CID than expected), NotFound (update or
        delete of what does not exist), InvalidRecord, InvalidInput (too many writes).
        """
        ...

    def transact(self, plan: Plan, *, blobs: Mapping[CID, bytes] | None = None) -> list[Written]:
        """Like `apply_writes`, with writes that `plan` decides from the state they apply to. It is
        called again, with the newer state, where a database broke the first try off."""
        ...

    def ops(self, since: str | None = None, *, limit: int | None = None) -> Iterator[Op]:
        """The oplog in order, strictly after revision `since`."""
        ...
