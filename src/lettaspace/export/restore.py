"""An archive brought into a space: what is not there is created, what is newer replaces.

Nothing is ever deleted. Where both have a record and they differ, a conversation stays as it is
here, and of everything else the later one by its own time stays, this space's if they are
equally late. A message never takes the place of another conversation's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sqlalchemy import Connection, func, select

from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.readdress import Readdress, unversioned
from lettaspace.conversation.records import COMPILED_PROMPT, CONVERSATION, MESSAGE, is_active
from lettaspace.conversation.space import Space
from lettaspace.conversation.times import to_millis, valid
from lettaspace.export.archive import Archive
from lettaspace.letta.writer import record_cid
from lettaspace.space import schema
from lettaspace.space.car import RepoBlock
from lettaspace.space.verify import Progress
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Update, Value, Write

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch with that much in records and blobs is written early, so that memory stays flat."""

Outcome = Literal["created", "updated", "unchanged", "kept"]


@dataclass(slots=True)
class Outcomes:
    """What became of a collection's records. `kept`: they differ, and ours stayed."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    kept: int = 0


@dataclass(slots=True)
class RestoreReport:
    """What an import did, or would do."""

    space: str
    """The archive's."""
    author: str
    """The archive's."""
    rev: str
    """The archive's revision."""
    readdressed: bool
    """The archive's author or space is another, so its records became this space's own."""
    dry_run: bool
    collections: dict[str, Outcomes] = field(default_factory=dict[str, Outcomes])
    kept_conversations: list[str] = field(default_factory=list[str])
    """TIDs of conversations whose record here is another than the archive's."""
    mixed_conversations: list[str] = field(default_factory=list[str])
    """TIDs of conversations that got messages beside some that only this space had: seqs may
    stand twice, which `verify` names."""

    def to_json(self) -> dict[str, Any]:
        return {
            "space": self.space,
            "author": self.author,
            "rev": self.rev,
            "readdressed": self.readdressed,
            "dryRun": self.dry_run,
            "collections": {name: asdict(self.collections[name]) for name in self.collections},
            "keptConversations": self.kept_conversations,
            "mixedConversations": self.mixed_conversations,
        }


def restore(
    space: Space,
    archive: Archive,
    *,
    dry_run: bool = False,
    progress: Progress = lambda _what, _done, _total: None,
) -> RestoreReport:
    """Writes the archive's records into a space, in batches of at most 200.

    Whatever ends it leaves whole batches, and a second time writes the rest.
    """
    return _Restore(space, archive, dry_run, progress).run()


@dataclass(frozen=True, slots=True)
class _Item:
    collection: str
    rkey: str
    value: Value
    cid: CID
    blobs: list[CID]


class _Restore:
    def __init__(self, space: Space, archive: Archive, dry_run: bool, progress: Progress) -> None:
        self.space = space
        self.archive = archive
        self.progress = progress
        self.readdress = Readdress(archive, space.address)
        self.report = RestoreReport(
            str(archive.address.space),
            archive.address.author,
            archive.rev,
            self.readdress.needed,
            dry_run,
            {name: Outcomes() for name in sorted(archive.counts)},
        )
        # Of each conversation that an archived message names: how many of them are new here,
        # and how many were here already.
        self.new: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self._items: list[_Item] = []
        self._bytes = 0
        self._done = 0

    def run(self) -> RestoreReport:
        if not (self.report.dry_run or self.readdress.needed):
            # It is this repo's own past, and its revisions go on from there.
            self.space.repo.clock.mint(floor=self.archive.rev)
        # Messages last: a crash leaves no conversation that only messages name.
        for wanted in (_is_no_message, _is_message):
            for record in self.archive.records(wanted):
                self.put(record)
        self.flush()
        self.report.kept_conversations.sort()
        with self.space.database.read() as connection:
            self.report.mixed_conversations = sorted(
                uri.rpartition("/")[2] for uri in self.new if self.has_others(connection, uri)
            )
        return self.report

    def put(self, record: RepoBlock) -> None:
        collection, value = record.collection, record.value
        cid = record.cid
        if self.readdress.needed:
            value = self.readdress(collection, value)
            cid = record_cid(collection, value)
        blobs = list(dict.fromkeys(blob_refs(value)))
        self._items.append(_Item(collection, record.rkey, value, cid, blobs))
        self._bytes += record.size + sum(map(self.archive.blob_size, blobs))
        if len(self._items) >= MAX_WRITES or self._bytes >= MAX_BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what has been collected, or finds out what that would do."""
        items, self._items, self._bytes = self._items, [], 0
        outcomes: list[Outcome] = []
        blobs: dict[CID, bytes] = {}

        def plan(view: View) -> Sequence[Write]:
            writes: list[Write] = []
            outcomes[:] = self.outcomes(view, items)
            for item, outcome in zip(items, outcomes, strict=True):
                if outcome == "created":
                    writes.append(Create(item.collection, item.rkey, item.value))
                elif outcome == "updated":
                    writes.append(Update(item.collection, item.rkey, item.value))
                else:
                    continue
                if not self.report.dry_run:
                    # The repo takes them after the plan: only now is known which are needed.
                    blobs.update((cid, self.archive.blob(cid)) for cid in item.blobs)
            return writes

        if self.report.dry_run:
            with self.space.repo.snapshot() as view:
                plan(view)
        else:
            self.space.repo.transact(plan, blobs=blobs)
        for item, outcome in zip(items, outcomes, strict=True):
            self.note(item, outcome)
        self._done += len(items)
        self.progress("importing", self._done, len(self.archive))

    def outcomes(self, view: View, items: Sequence[_Item]) -> list[Outcome]:
        """What is to become of each, as the space stands."""
        stored = {
            (collection, rkey): cid
            for collection in {item.collection for item in items}
            for rkey, cid in view.cids(
                collection, [item.rkey for item in items if item.collection == collection]
            ).items()
        }
        return [
            self.outcome(view, item, stored.get((item.collection, item.rkey))) for item in items
        ]

    def outcome(self, view: View, item: _Item, stored: CID | None) -> Outcome:
        if stored is None:
            return "created"
        ours = None if stored == item.cid else view.get(item.collection, item.rkey)
        if ours is None:
            return "unchanged"
        if item.collection == CONVERSATION and unversioned(item.value) == unversioned(ours.value):
            return "unchanged"
        return "updated" if replaces(item.collection, item.value, ours.value) else "kept"

    def note(self, item: _Item, outcome: Outcome) -> None:
        counts = self.report.collections[item.collection]
        setattr(counts, outcome, getattr(counts, outcome) + 1)
        if item.collection == MESSAGE:
            (self.new if outcome == "created" else self.known)[item.value["conversation"]] += 1
        elif item.collection == CONVERSATION and outcome == "kept":
            self.report.kept_conversations.append(item.rkey)

    def has_others(self, connection: Connection, uri: str) -> bool:
        """Whether a conversation has messages here that the archive has not."""
        number = find_conversation_id(connection, uri)
        if number is None:
            return False
        index = schema.message_index.c
        stored: int = connection.execute(
            select(func.count()).where(index.conversation == number)
        ).scalar_one()
        of_archive = self.known[uri] + (0 if self.report.dry_run else self.new[uri])
        return stored > of_archive


def replaces(collection: str, theirs: Value, ours: Value) -> bool:
    """Whether an archived record is to take the place of a different one at the same key."""
    if collection == CONVERSATION:
        return False
    if collection == MESSAGE and theirs["conversation"] != ours["conversation"]:
        return False
    name = "compiledAt" if collection == COMPILED_PROMPT else "updatedAt"
    one, two = _time(theirs.get(name)), _time(ours.get(name))
    if one != two:
        return one > two
    return collection == MESSAGE and is_active(ours) and not is_active(theirs)


def _is_message(collection: str, _rkey: str) -> bool:
    return collection == MESSAGE


def _is_no_message(collection: str, _rkey: str) -> bool:
    return collection != MESSAGE


def _time(value: Any) -> int:
    """Milliseconds since 1970; what has no time is older than everything."""
    time = valid(value)
    return -1 if time is None else to_millis(time)
