"""A space that is the host's: each reading begins with what is there, each write ends there.

    with Space.open(home) as replica:
        space = online(replica, Syncer(replica, host, keys))

For who always has the host at hand and lets several machines write the same conversation in
turn. The replica under it stays complete: where a write did not get through, it is here and not
there yet, the error says so, and the next sync or write sends it. Everybody else works on the
replica itself and syncs now and then.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from lettaspace.atproto.cid import CID
from lettaspace.conversation.space import Space, validate
from lettaspace.remote.syncing import Syncer
from lettaspace.space.database import Database
from lettaspace.space.repo import Committing, EmbeddedRepo, Transaction
from lettaspace.space.view import View
from lettaspace.space.writes import Write, Written

T = TypeVar("T")


def online(replica: Space, syncer: Syncer) -> Space:
    """The same space, which asks its host. `syncer` is one of the replica.

    Reading and writing raise what `Syncer.sync` does. Closing either of the two closes both.
    """
    database = _HostFirst(replica.database, syncer)
    space = copy.copy(replica)
    space.database = database
    space.repo = _Through(
        database,
        replica.repo.space,
        replica.repo.author,
        validate=validate,
        projections=replica.repo.projections,
        clock=replica.repo.clock,
        create=False,
    )
    return space


class _HostFirst(Database):
    """A store that takes what its host has before anything is read from it."""

    def __init__(self, database: Database, syncer: Syncer) -> None:
        self.engine = database.engine
        self.name = database.name
        self._database = database
        self._syncer = syncer
        self._turn = threading.RLock()
        self._inside = threading.local()

    def pull(self) -> None:
        """Takes what the host has; not within a transaction, which sees what it sees."""
        if not getattr(self._inside, "depth", 0):
            with self._turn, self._within():
                self._syncer.sync(push=False)

    def push(self) -> None:
        """Gives the host what is new here."""
        with self._turn, self._within():
            self._syncer.sync(pull=False)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        self.pull()
        with self._within(), self._database.read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._within(), self._database.write() as connection:
            yield connection

    def run(self, work: Callable[[Connection], T]) -> T:
        with self._within():
            return self._database.run(work)

    def backup(self, target: Path) -> None:
        self._database.backup(target)

    def close(self) -> None:
        self._database.close()

    def _has_table(self, connection: Connection, name: str) -> bool:
        return self._database._has_table(connection, name)

    @contextmanager
    def _within(self) -> Iterator[None]:
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            yield
        finally:
            self._inside.depth -= 1


class _Through(EmbeddedRepo):
    """A repo whose writes are acknowledged when the host has them."""

    database: _HostFirst

    def transact(
        self,
        plan: Callable[[View], Sequence[Write]],
        *,
        blobs: Mapping[CID, bytes] | None = None,
        committing: Committing | None = None,
        together: bool = False,
    ) -> list[Written]:
        self.database.pull()
        written = super().transact(plan, blobs=blobs, committing=committing, together=together)
        self.database.push()
        return written

    def run(self, work: Callable[[Transaction], T]) -> T:
        self.database.pull()
        done = super().run(work)
        self.database.push()
        return done
