"""The embedded repo: one author's records in one space, in a database on this machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sqlalchemy import Connection, bindparam, select, update

from lettaspace.atproto import tid
from lettaspace.atproto.cid import CID
from lettaspace.atproto.tid import TidClock
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.projection import Projection
from lettaspace.space.statement import Statement, insert_new
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Op, Record, Repo, Validate, Write, Written

if TYPE_CHECKING:
    from lettaspace.space.sethash import SetHash

Committing = Callable[[Connection, str, bytes], None]
"""Is told of a batch in its own transaction: the new rev, and the digest of the set hash."""

T = TypeVar("T")

_PAGE = 500
_PAST_ALL = (1 << 31) - 1
"""Above every index of a batch."""

_own = schema.repos.c.id == bindparam("key")
_get_head = Statement(lambda: select(schema.repos.c.rev, schema.repos.c.set_hash).where(_own))
# On PostgreSQL this makes other writers of the repo wait; SQLite has only one writer anyway.
_lock_head = Statement(
    lambda: (
        select(schema.repos.c.rev, schema.repos.c.set_hash)
        .where(_own)
        .with_for_update(key_share=True)
    )
)
_add_repo = insert_new(schema.repos, "space", "author", "set_hash")
_set_head = Statement(
    lambda: (
        update(schema.repos)
        .where(_own)
        .values(rev=bindparam("new_rev"), set_hash=bindparam("new_hash"))
    )
)


class EmbeddedRepo:
    """Implements `writes.Repo` on a `Database`.

    `validate(collection, rkey, value)` raises InvalidRecord for what must not be stored.
    `projections` are kept up to date in the same transaction as the records. With `create`
    false, raises NotFound for a repo that is not in the database yet. Threads may share one.
    """

    def __init__(
        self,
        database: Database,
        space: str,
        author: str,
        *,
        validate: Validate,
        projections: Sequence[Projection] = (),
        clock: TidClock | None = None,
        create: bool = True,
    ) -> None:
        self.database = database
        self.space = space
        self.author = author
        self.projections = tuple(projections)
        self._validate = validate
        self.clock = clock or TidClock()
        self._id = self._find(create=create)

    def _find(self, *, create: bool) -> int:
        key = select(schema.repos.c.id).where(
            schema.repos.c.space == self.space, schema.repos.c.author == self.author
        )
        with self.database.read() as connection:
            found = connection.execute(key).scalar()
        if found is not None:
            return int(found)
        if not create:
            raise NotFound(f"{self.author} has no repo in {self.space}")
        with self.database.write() as connection:
            _add_repo.run(
                connection, space=self.space, author=self.author, set_hash=schema.EMPTY_SET_HASH
            )
            return int(connection.execute(key).scalar_one())

    @property
    def id(self) -> int:
        """The repo's row in this database."""
        return self._id

    @contextmanager
    def snapshot(self) -> Iterator[View]:
        """A consistent view; the writers go on meanwhile."""
        with self.database.read() as connection:
            yield View(connection, self._id)

    def get(self, collection: str, rkey: str) -> Record | None:
        with self.snapshot() as view:
            return view.get(collection, rkey)

    def cids(self, collection: str, rkeys: Sequence[str]) -> dict[str, CID]:
        with self.snapshot() as view:
            return view.cids(collection, rkeys)

    def records(
        self, collection: str, *, after: str | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """Page by page, so that a slow consumer holds no transaction open."""
        left = limit
        while left is None or left > 0:
            with self.snapshot() as view:
                page = list(
                    view.records(
                        collection, after=after, limit=_PAGE if left is None else min(left, _PAGE)
                    )
                )
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].rkey
            left = None if left is None else left - len(page)

    def get_blob(self, cid: CID) -> bytes:
        with self.snapshot() as view:
            return view.get_blob(cid)

    def rev(self) -> str | None:
        """The revision of the newest write, a TID; None when nothing was ever written."""
        with self.database.read() as connection:
            return _head(connection, self._id)[0]

    def set_hash(self) -> "SetHash":
        """The set hash of the newest state."""
        from lettaspace.space.sethash import SetHash

        with self.database.read() as connection:
            return SetHash(_head(connection, self._id)[1])

    def ops(self, since: str | None = None, *, limit: int | None = None) -> Iterator[Op]:
        after: tuple[str, int] = (since or "", _PAST_ALL)
        left = limit
        while left is None or left > 0:
            with self.snapshot() as view:
                page = list(view.ops(after, _PAGE if left is None else min(left, _PAGE)))
            yield from page
            if len(page) < _PAGE:
                return
            after = (page[-1].rev, page[-1].index)
            left = None if left is None else left - len(page)

    def apply_writes(
        self, writes: Sequence[Write], *, blobs: Mapping[CID, bytes] | None = None
    ) -> list[Written]:
        return self.transact(lambda _view: writes, blobs=blobs)

    def transact(
        self,
        plan: Callable[[View], Sequence[Write]],
        *,
        blobs: Mapping[CID, bytes] | None = None,
        committing: Committing | None = None,
        together: bool = False,
    ) -> list[Written]:
        def work(connection: Connection) -> list[Written]:
            head = self._lock(connection)
            writes = plan(View(connection, self._id))
            return self._commit(connection, head, writes, blobs or {}, committing)

        return self.database.run_together(work) if together else self.database.run(work)

    def run(self, work: "Callable[[Transaction], T]") -> T:
        """What `work` returns, called in one write transaction in which it may apply any number
        of batches; all of them land, or none. It may be called again, as a plan may."""

        def all_of_it(connection: Connection) -> T:
            self._lock(connection)
            return work(Transaction(self, connection))

        return self.database.run(all_of_it)

    def _lock(self, connection: Connection) -> tuple[str | None, bytes]:
        """The newest revision and set hash; other writers of this repo wait from now on."""
        head = _lock_head.one(connection, key=self._id)
        if head is None:
            raise NotFound(f"{self.author} has no repo in {self.space} any more")
        rev, state = head
        return rev, state

    def _commit(
        self,
        connection: Connection,
        head: tuple[str | None, bytes],
        writes: Sequence[Write],
        blobs: Mapping[CID, bytes],
        committing: Committing | None = None,
    ) -> list[Written]:
        # Only what writes needs numpy, which takes longer to import than most reads to run.
        from lettaspace.space.batch import Batch
        from lettaspace.space.sethash import SetHash

        if not writes:
            return []
        rev, state = head
        batch = Batch(connection, self._id, SetHash(state), self._validate)
        written = batch.run(writes, blobs, self.clock)
        new_rev = self._next_rev(rev)
        batch.store(new_rev)
        for projection in self.projections:
            changes = [c for c in batch.changes if c.collection in projection.collections]
            if changes:
                projection.apply(connection, changes)
        _set_head.run(connection, key=self._id, new_rev=new_rev, new_hash=batch.set_hash.state)
        if committing is not None:
            committing(connection, new_rev, batch.set_hash.digest())
        return written

    def _next_rev(self, rev: str | None) -> str:
        new = self.clock.mint(floor=rev)
        if rev is not None and new <= rev:
            # Once the machine's clock was far ahead. A revision must rise all the same.
            micros, clock_id = tid.decode(rev)
            new = tid.encode(micros + 1, clock_id)
        return new


class ReadOnlyRepo(EmbeddedRepo):
    """A repo that somebody else writes, and that is only read here: writing raises
    InvalidInput."""

    def transact(self, *_args: Any, **_named: Any) -> NoReturn:
        self._refuse()

    def run(self, work: "Callable[[Transaction], Any]") -> NoReturn:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidInput(f"the records of {self.author} are only read here")


class Transaction:
    """A write transaction on a repo: what is stored, and batches applied to it."""

    def __init__(self, repo: EmbeddedRepo, connection: Connection) -> None:
        self.connection = connection
        self.view = View(connection, repo.id)
        self._repo = repo

    def apply(
        self, writes: Sequence[Write], *, blobs: Mapping[CID, bytes] | None = None
    ) -> list[Written]:
        """Like `EmbeddedRepo.apply_writes`, a revision of its own; any number of writes, in
        batches. What it raises ends the transaction."""
        written: list[Written] = []
        for start in range(0, len(writes), MAX_WRITES):
            head = _head(self.connection, self._repo.id)
            some = writes[start : start + MAX_WRITES]
            written += self._repo._commit(self.connection, head, some, {} if start else blobs or {})
        return written


if TYPE_CHECKING:

    def _is_a_repo(repo: EmbeddedRepo) -> Repo:
        return repo  # what the layers above are promised, held by the type checker


def _head(connection: Connection, repo: int) -> tuple[str | None, bytes]:
    rev, set_hash = _get_head.only(connection, key=repo)
    return rev, set_hash
