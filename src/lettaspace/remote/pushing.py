"""Pushing: what is only here, or newer here, goes to the host.

In the order in which it was written here, in batches that the host takes whole, blobs before the
records that need them. What was sent counts as being there once a signed commit of the host
covers it; a batch whose answer was lost is looked for, never sent again blindly.
"""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import select

from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.errors import Damaged, HostRefused
from lettaspace.remote.hostrepo import HostRepo, encode
from lettaspace.remote.merging import said
from lettaspace.remote.mirror import REFUSED, Mirror, Pending, There
from lettaspace.remote.pulling import Keys
from lettaspace.space import schema
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.verify import Progress
from lettaspace.space.writes import Create, Delete, Update, Write

CHECKPOINT = 5_000
"""Records after which the host's commit is asked for."""

_LOOK = 100_000
"""Records that are looked up at once: to find some means to look at all."""

_OVERHEAD = 400
"""Bytes of a request around its writes, at most."""

_RECORD_FAULTS = frozenset({"InvalidRecord", "InvalidRequest", "BlobNotFound", "InvalidMimeType"})
"""What hosts call it when a single record is at fault, not the account or the space."""

_BLOB = '"$type":"blob"'
"""What a write holds, as it is sent, that has a blob."""

_HOPELESS = 20
"""So many records refused, and none taken: it is not the records."""


class Stale(Exception):
    """The host has something else than we thought. A pull tells what."""


@dataclass(slots=True)
class Pushed:
    """What a push did."""

    records: int = 0
    blobs: int = 0
    refused: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class _Item:
    pending: Pending
    write: Write
    text: str
    """The write as it is sent."""
    blobs: Sequence[CID]

    @property
    def size(self) -> int:
        """Bytes in a request; as many characters, where all are ASCII."""
        text = self.text
        return (len(text) if text.isascii() else len(text.encode())) + 1


class Pusher:
    """Sends what is pending in one repo."""

    def __init__(
        self,
        repo: EmbeddedRepo,
        host: HostRepo,
        keys: Keys,
        *,
        progress: Progress = lambda _what, _done, _total: None,
    ) -> None:
        self._repo = repo
        self._host = host
        self._keys = keys
        self._progress = progress
        self.pushed = Pushed()
        self._state = SetHash()
        self._pending: list[Pending] = []
        self._sent: list[Pending] = []

    def push(self, *, fresh: bool = True) -> None:
        """What was done is in `pushed`, whatever ends it. `fresh`: a pull has just come before.
        Otherwise the host is asked first whether anybody wrote there since: no host compares
        before it swaps, so what is written blindly takes the place of what they said.

        Raises Stale when a pull has to come first; Unreachable, SignedOut, HostRefused."""
        while pending := self._next():
            if not fresh:
                self._look()
                fresh = True
            with closing(_ahead(self._batches(pending))) as batches:
                for batch in batches:
                    self._send(batch)
            self._confirm(pending[-1].rev)

    def _look(self) -> None:
        """Raises Stale where the host has something that we do not know of."""
        commit = self._host.latest_commit()
        with self._repo.database.read() as connection:
            known = Mirror(connection, self._repo.id).head().rev
        if commit is not None and commit.rev != known:
            raise Stale

    def _next(self) -> list[Pending]:
        """What is to be pushed next, whole revisions; none, and it is noted that all is there."""
        with self._repo.database.write() as connection:
            mirror = Mirror(connection, self._repo.id)
            if not self._pending:
                self._pending = _whole(mirror.pending(_LOOK + 1), _LOOK)
            if not self._pending:
                rev = connection.execute(
                    select(schema.repos.c.rev).where(schema.repos.c.id == self._repo.id)
                ).scalar_one()
                if mirror.head().pushed != rev:
                    mirror.set_pushed(rev)
                return []
            self._state = SetHash(mirror.head().set_hash)
        pending = _whole(self._pending, CHECKPOINT)
        self._pending = self._pending[len(pending) :]
        return pending

    def _batches(self, pending: Sequence[Pending]) -> Iterator[list[_Item]]:
        """As much as a request may hold, and where it can be, whole revisions."""
        batch: list[_Item] = []
        size = _OVERHEAD
        for group in _revisions(pending):
            items = self._items(group)
            total = sum(item.size for item in items)
            if batch and not self._fits(len(batch) + len(items), size + total):
                yield batch
                batch, size = [], _OVERHEAD
            for item in items:
                if batch and not self._fits(len(batch) + 1, size + item.size):
                    yield batch
                    batch, size = [], _OVERHEAD
                batch.append(item)
                size += item.size
        if batch:
            yield batch

    def _fits(self, writes: int, size: int) -> bool:
        return writes <= self._host.limits.writes and size <= self._host.limits.body

    def _items(self, group: Sequence[Pending]) -> list[_Item]:
        """The writes for a revision's records, as they are now."""
        items: list[_Item] = []
        with self._repo.snapshot() as view:
            for each in group:
                record = view.get(*each.key)
                if (None if record is None else record.cid) != each.cid:
                    continue  # written again since we looked: it comes with that revision
                if record is None:
                    if each.there is not None:
                        delete = Delete(*each.key)
                        items.append(_Item(each, delete, encode(delete), ()))
                    continue
                each = each._replace(said=said(each.key.collection, record.value))
                kind = Create if each.there is None else Update
                write = kind(*each.key, record.value)
                text = encode(write, checked=True)
                blobs = blob_refs(record.value) if _BLOB in text else ()
                items.append(_Item(each, write, text, blobs))
        return items

    def _send(self, batch: Sequence[_Item], *, again: bool = True) -> None:
        """Sends a batch; in parts, where the host does not take the whole."""
        if len(batch) > 1 and not self._fits(
            len(batch), _OVERHEAD + sum(each.size for each in batch)
        ):
            self._halves(batch, again=again)  # the limits are lower since it was made
            return
        self._upload(batch)
        try:
            written = self._host.apply(
                [item.write for item in batch], encoded=(item.text for item in batch)
            )
        except HostRefused as error:
            if error.error in ("RecordAlreadyExists", "RecordNotFound"):
                raise Stale from None
            self._refused(batch, error, again=again)
            return
        for item, one in zip(batch, written, strict=True):
            if one.cid != item.pending.cid:
                raise Damaged(
                    f"the host stored {'/'.join(item.pending.key)} otherwise than it was sent"
                )
            self._note(item.pending)
        self.pushed.records += len(batch)
        self.pushed.batches += 1
        self._progress("pushing", self.pushed.records, 0)

    def _refused(self, batch: Sequence[_Item], error: HostRefused, *, again: bool) -> None:
        """Finds out which part of a batch it is that the host does not take."""
        too_large = error.status == 413
        if not too_large and (error.status != 400 or error.error not in _RECORD_FAULTS):
            raise error
        if again and not too_large and (blobs := {cid for item in batch for cid in item.blobs}):
            # It may have dropped blobs that it was given.
            with self._repo.database.write() as connection:
                Mirror(connection, self._repo.id).forget_blobs(blobs)
            self._send(batch, again=False)
            return
        if len(batch) > 1:
            self._halves(batch, again=again)
            return
        self.pushed.refused += 1
        if self.pushed.refused >= _HOPELESS and not self.pushed.records:
            raise error
        with self._repo.database.write() as connection:
            Mirror(connection, self._repo.id).hold(batch[0].pending.key, REFUSED)

    def _halves(self, batch: Sequence[_Item], *, again: bool) -> None:
        middle = len(batch) // 2
        self._send(batch[:middle], again=again)
        self._send(batch[middle:], again=again)

    def _note(self, pending: Pending) -> None:
        key, cid, there = pending.key, pending.cid, pending.there
        if there is not None:
            self._state.remove(element(*key, str(there)))
        if cid is not None:
            self._state.add(element(*key, str(cid)))
        self._sent.append(pending)

    def _upload(self, batch: Sequence[_Item]) -> None:
        """Gives the host the blobs that it was not given yet."""
        wanted = dict.fromkeys(cid for item in batch for cid in item.blobs)
        if not wanted:
            return
        with self._repo.database.read() as connection:
            there = Mirror(connection, self._repo.id).blobs(wanted)
        for cid in wanted:
            if cid in there:
                continue
            self._host.upload_blob(self._repo.get_blob(cid), cid)
            self.pushed.blobs += 1
            with self._repo.database.write() as connection:
                Mirror(connection, self._repo.id).note_blobs([cid])
            self._progress("blobs", self.pushed.blobs, 0)

    def _confirm(self, rev: str) -> None:
        """Takes what was sent as being there, once the host's commit says so."""
        sent, self._sent = self._sent, []
        head = self._covered() if sent else None
        with self._repo.database.write() as connection:
            mirror = Mirror(connection, self._repo.id)
            mirror.put(There(pending.key, pending.cid, pending.said) for pending in sent)
            if head is not None:
                mirror.set_head(head, self._state.state)
            mirror.set_pushed(rev)

    def _covered(self) -> str:
        """The revision of the host's commit, which is of exactly what we think is there."""
        commit = self._host.latest_commit()
        if commit is None or commit.hash != self._state.digest():
            raise Stale
        space, author = self._host.space, self._host.author
        if not any(commit.is_valid(space, author, self._keys(again)) for again in (False, True)):
            raise Damaged("the host's commit is not signed by the author of the repo")
        return commit.rev


def _whole(pending: list[Pending], most: int) -> list[Pending]:
    """The first of them, so many at most, that are whole revisions. No revision is larger."""
    end = min(most, len(pending))
    while 0 < end < len(pending) and pending[end].rev == pending[end - 1].rev:
        end -= 1
    return pending[: end or most]


def _ahead(batches: Iterator[list[_Item]]) -> Generator[list[_Item]]:
    """The same, each made while the one before it is at the host."""
    with ThreadPoolExecutor(1, "pushing") as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


def _revisions(pending: Sequence[Pending]) -> Iterator[list[Pending]]:
    group: list[Pending] = []
    for each in pending:
        if group and group[-1].rev != each.rev:
            yield group
            group = []
        group.append(each)
    if group:
        yield group
