"""A space of the home's own key moved under an account, once.

Keys, seqs and payloads stay; what records refer to, and so their CIDs, become the account's. All
of it is one transaction: whatever ends it leaves the space as it was, and it can be done again.
docs/adopting.md tells what a user sees.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, select, update

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_did
from lettaspace.conversation import overview
from lettaspace.conversation.index import conversation_id
from lettaspace.conversation.readdress import Readdress, unversioned
from lettaspace.conversation.records import CONVERSATION, MESSAGE, Address, default_space
from lettaspace.conversation.space import Space, validate
from lettaspace.errors import Conflict, Damaged, InvalidInput, InvalidRecord, StoreUnavailable
from lettaspace.remote import replicas
from lettaspace.space import schema
from lettaspace.space.repo import EmbeddedRepo, Transaction
from lettaspace.space.statement import Statement
from lettaspace.space.verify import Progress
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Delete, Record, Value

BACKUP: Final = "space-before-adopting.db"
"""The copy of the store, beside it."""

_NAMED = 3
"""So many of the records that differ are named."""

_records = schema.records.c
_names = schema.message_conversations.c

_is_named = (
    select(schema.message_index.c.record)
    .where(schema.message_index.c.conversation == _names.id)
    .exists()
)

_stored = Statement(
    lambda: select(_records.cid, _records.value).where(_records.id == bindparam("key"))
)


@dataclass(slots=True)
class Adoption:
    """What adopting did, or would do."""

    old: str
    """The space's URI before."""
    new: str
    """Its URI under the account."""
    dry_run: bool
    already: bool = False
    """The account writes here already, and nothing was left to adopt."""
    records: dict[str, int] = field(default_factory=dict[str, int])
    """How many of each collection."""
    known: int = 0
    """So many of them were in the account's repo already, just the same."""
    backup: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "old": self.old,
            "new": self.new,
            "dryRun": self.dry_run,
            "already": self.already,
            "records": self.records,
            "known": self.known,
            "backup": None if self.backup is None else str(self.backup),
        }


def adopt(
    space: Space,
    did: str,
    host: str,
    *,
    dry_run: bool = False,
    backup: bool = True,
    progress: Progress = lambda _what, _done, _total: None,
) -> Adoption:
    """Moves all that the home's own key has written into the repo of an account on a host.

    What the account's repo has here already stays. Before anything is written the store is
    copied to `BACKUP`, unless there is nothing in it. Afterwards this `Space`, and every other
    that is open on the home, has to be opened anew: it raises NotFound.

    Raises Conflict where the home is another account's, or the account's repo is here and what
    it has differs; Damaged for a space that is not as it should be. Nothing has changed then.
    """
    if not is_did(did):
        raise InvalidInput(f"not a DID: {did}")
    return _Adopting(space, did, host, dry_run, progress).run(backup=backup)


class _Adopting:
    def __init__(
        self, space: Space, did: str, host: str, dry_run: bool, progress: Progress
    ) -> None:
        own = space.identity.did
        self.space = space
        self.host = host
        self.old = Address(default_space(own), own)
        is_open = space.address.author == did
        self.new = space.address if is_open else Address(default_space(did), did)
        self.progress = progress
        self.result = Adoption(str(self.old.space), str(self.new.space), dry_run)

    def run(self, *, backup: bool) -> Adoption:
        with self.space.database.read() as connection:
            if self.is_done(connection):
                self.result.already = True
                return self.result
            is_empty = self.total(connection) == 0
            if self.result.dry_run:
                self.move(connection, None)
                return self.result
        if backup and not is_empty:
            self.result.backup = _backup(self.space)
        self.repo(self.new, create=True).run(self.write)
        return self.result

    def is_done(self, connection: Connection) -> bool:
        own = replicas.refuse_others(connection, self.new.author, str(self.new.space))
        return own is not None and self.repo_of(connection, self.old) is None

    def write(self, tx: Transaction) -> None:
        # Somebody else may have done it just now.
        if self.is_done(tx.connection):
            self.result.already = True
            return
        self.move(tx.connection, tx)
        old = self.repo_of(tx.connection, self.old)
        if old is not None:
            self.carry_over(tx.connection, old, tx.view.repo)
        replicas.put(tx.connection, str(self.new.space), self.new.author, self.host, own=True)
        replicas.drop_empty_repos(tx.connection)

    def move(self, connection: Connection, tx: Transaction | None) -> None:
        """Goes through the old records in the order they came; without a transaction it only
        finds out."""
        old, new = (self.repo_of(connection, each) for each in (self.old, self.new))
        self.result.records, self.result.known = {}, 0
        if old is None:
            return
        source = _Stored(connection, old, self.old)
        readdress = Readdress(source, self.new)
        merging = _Merging(View(connection, new), self.new) if new is not None else None
        # Takes records out of the old repo, and out of all that is derived of them.
        removing = tx and Transaction(self.repo(self.old, create=False), connection)
        total, done = self.total(connection), 0
        counts: Counter[str] = Counter()
        for chunk in source.chunks():
            moved = [
                Record(each.collection, each.rkey, each.cid, readdress(each.collection, each.value))
                for each in chunk
            ]
            fresh = moved if merging is None else merging.fresh(moved)
            if tx and removing:
                # Gone first: where both name somebody else's conversation, it had each twice.
                removing.apply([Delete(each.collection, each.rkey) for each in chunk])
                tx.apply([Create(each.collection, each.rkey, each.value) for each in fresh])
            counts.update(each.collection for each in chunk)
            self.result.known += len(moved) - len(fresh)
            done += len(chunk)
            self.progress("adopting", done, total)
        if merging is not None:
            merging.check()
        self.result.records = dict(sorted(counts.items()))

    def carry_over(self, connection: Connection, old: int, new: int) -> None:
        """What is no record: which files were brought in, and the keys of appends."""
        for table in (schema.sources, schema.synced):
            connection.execute(
                update(table).prefix_with("OR IGNORE").where(table.c.repo == old).values(repo=new)
            )
        prefix = self.old.prefix
        query = select(_names.id, _names.uri).where(_names.uri.startswith(prefix, autoescape=True))
        for number, uri in connection.execute(query).all():
            keys = schema.append_keys.c.conversation == number
            there = conversation_id(connection, self.new.prefix + uri.removeprefix(prefix))
            connection.execute(
                update(schema.append_keys)
                .prefix_with("OR IGNORE")
                .where(keys)
                .values(conversation=there)
            )
            connection.execute(delete(schema.append_keys).where(keys))
            connection.execute(
                delete(schema.message_conversations).where(_names.id == number, ~_is_named)
            )

    def total(self, connection: Connection) -> int:
        query = select(func.count()).where(_records.repo == self.repo_of(connection, self.old))
        return int(connection.execute(query).scalar_one())

    def repo(self, address: Address, *, create: bool) -> EmbeddedRepo:
        return EmbeddedRepo(
            self.space.database,
            str(address.space),
            address.author,
            validate=_no_validation,
            projections=self.space.repo.projections,
            create=create,
        )

    def repo_of(self, connection: Connection, address: Address) -> int | None:
        return replicas.repo_of(connection, str(address.space), address.author)


class _Stored:
    """The records of a repo, in the order in which they came."""

    def __init__(self, connection: Connection, repo: int, address: Address) -> None:
        self.address = address
        self._connection = connection
        query = select(_records.id, _records.collection, _records.rkey)
        rows = connection.execute(query.where(_records.repo == repo).order_by(_records.id))
        self._places = [(row.id, row.collection, row.rkey) for row in rows]

    def records(self, wanted: Callable[[str, str], bool]) -> Iterator[Record]:
        return (self._read(*place) for place in self._places if wanted(*place[1:]))

    def chunks(self) -> Iterator[list[Record]]:
        for start in range(0, len(self._places), MAX_WRITES):
            yield [self._read(*place) for place in self._places[start : start + MAX_WRITES]]

    def _read(self, number: int, collection: str, rkey: str) -> Record:
        cid, data = _stored.only(self._connection, key=number)
        try:
            value = cbor.decode(data)
            validate(collection, rkey, value)
        except (InvalidInput, InvalidRecord) as error:
            raise Damaged(
                f"{collection}/{rkey}: {error}; `lettaspace verify` names all that is damaged"
            ) from None
        return Record(collection, rkey, CID.from_bytes(cid), value)


class _Merging:
    """What is in the account's repo here already, beside what is to come."""

    def __init__(self, view: View, address: Address) -> None:
        self._view = view
        self._before = {
            uri: count.messages
            for uri, count in overview.counts(view.connection).items()
            if uri.startswith(address.prefix)
        }
        self._new: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        self._differing: list[str] = []

    def fresh(self, records: Sequence[Record]) -> list[Record]:
        """Those that are not there; notes those that are there otherwise."""
        stored = {
            (collection, rkey): cid
            for collection in {each.collection for each in records}
            for rkey, cid in self._view.cids(
                collection, [each.rkey for each in records if each.collection == collection]
            ).items()
        }
        found = []
        for each in records:
            cid = stored.get((each.collection, each.rkey))
            if cid is None:
                found.append(each)
            elif cid != CID.for_cbor(cbor.encode(each.value)) and not self._is_same(each):
                self._differing.append(f"{each.collection}/{each.rkey}")
            if each.collection == MESSAGE:
                (self._new if cid is None else self._known)[each.value["conversation"]] += 1
        return found

    def check(self) -> None:
        """Raises Conflict unless all of it goes together."""
        mixed = [uri for uri in self._new if self._before.get(uri, 0) > self._known[uri]]
        problems = []
        if self._differing:
            named = ", ".join(self._differing[:_NAMED])
            problems.append(f"{len(self._differing)} records differ ({named})")
        if mixed:
            named = ", ".join(overview.last(uri) for uri in mixed[:_NAMED])
            problems.append(f"{len(mixed)} conversations went on in both ({named})")
        if problems:
            raise Conflict(
                f"the account's records are here already, and {' and '.join(problems)}: nothing "
                "was changed. Archive this space (`lettaspace export --space FILE.car`), and "
                "import that in another home of the account"
            )

    def _is_same(self, record: Record) -> bool:
        if record.collection != CONVERSATION:
            return False
        ours = self._view.get(CONVERSATION, record.rkey)
        return ours is not None and unversioned(ours.value) == unversioned(record.value)


def _backup(space: Space) -> Path:
    path = space.home / BACKUP
    aside = path.with_name(f".{BACKUP}")
    try:
        aside.unlink(missing_ok=True)
        space.database.backup(aside)
        aside.replace(path)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _no_validation(_collection: str, _rkey: str, _value: Value) -> None:
    """They were checked when they were read."""
