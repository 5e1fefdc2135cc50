"""Writing records in batches, only what is new or different."""

from collections.abc import Callable
from dataclasses import dataclass, field

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, NotFound
from lettaspace.letta.report import Count
from lettaspace.space.writes import MAX_WRITES, Create, Update, Value, Write

MAX_BLOB_BYTES = 8 * 1024 * 1024
"""A batch with that much in blobs is written early, so that memory stays flat."""

_ATTEMPTS = 5


@dataclass(slots=True)
class Item:
    """A record that should be in the space."""

    collection: str
    rkey: str
    value: Value
    count: Count
    once: bool = False
    """Only written where there is no such record."""
    expect_new: bool = False
    """There was none a moment ago, so it need not be looked up."""
    blobs: dict[CID, bytes] = field(default_factory=dict[CID, bytes])


class Writer:
    """Collects items and writes them, at most 200 at a time. A dry one only counts.

    `check` is called for every item; what it raises ends the writing between two batches.
    """

    def __init__(self, space: Space, dry: bool, check: Callable[[], None] | None = None) -> None:
        self.space = space
        self.dry = dry
        self._check = check
        self._items: list[Item] = []
        self._blob_bytes = 0

    def put(self, item: Item) -> None:
        """Adds an item, and writes a batch if that makes one."""
        if self._check is not None:
            self._check()
        self._items.append(item)
        for data in item.blobs.values():
            self._blob_bytes += len(data)
        if len(self._items) >= MAX_WRITES or self._blob_bytes >= MAX_BLOB_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what has been collected."""
        items, self._items, self._blob_bytes = self._items, [], 0
        if not items:
            return
        attempt = 0
        while True:
            attempt += 1
            try:
                self._write(items, look=attempt > 1)
            except (Conflict, NotFound):
                # Somebody else wrote one of them just now: compare with what is there.
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def discard(self) -> None:
        """Forgets what has been collected."""
        self._items, self._blob_bytes = [], 0

    def _write(self, items: list[Item], look: bool) -> None:
        stored = self._stored([item for item in items if look or not item.expect_new])
        writes: list[Write] = []
        blobs: dict[CID, bytes] = {}
        new: list[Item] = []
        changed: list[Item] = []
        for item in items:
            cid = stored.get((item.collection, item.rkey))
            if cid is None:
                writes.append(Create(item.collection, item.rkey, item.value))
                new.append(item)
            elif item.once or cid == record_cid(item.collection, item.value):
                continue
            else:
                writes.append(Update(item.collection, item.rkey, item.value, cid))
                changed.append(item)
            blobs.update(item.blobs)
        if writes and not self.dry:
            self.space.repo.apply_writes(writes, blobs=blobs)
        for item in items:
            item.count.unchanged += 1
        for item in new:
            item.count.new += 1
            item.count.unchanged -= 1
        for item in changed:
            item.count.changed += 1
            item.count.unchanged -= 1

    def _stored(self, items: list[Item]) -> dict[tuple[str, str], CID]:
        wanted: dict[str, list[str]] = {}
        for item in items:
            wanted.setdefault(item.collection, []).append(item.rkey)
        return {
            (collection, rkey): cid
            for collection, rkeys in wanted.items()
            for rkey, cid in self.space.repo.cids(collection, rkeys).items()
        }


def record_cid(collection: str, value: Value) -> CID:
    """The CID a record of that value has in the collection."""
    return CID.for_cbor(cbor.encode({"$type": collection, **value}))
