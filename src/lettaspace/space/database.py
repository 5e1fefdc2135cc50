"""A store: opened, migrated, and read or written in transactions.

One interface on two databases. `sqlite.SQLiteDatabase` is a file for whoever works on this
machine; `postgres.PostgresDatabase` a server for a host with many repos. Both acknowledge a
transaction only when it survives a crash of the process and of the machine, and both can be
used by many threads and processes at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, select

from lettaspace.errors import StoreUnavailable
from lettaspace.space import schema
from lettaspace.space.url import PostgresURL, read_target

T = TypeVar("T")

LOCK_SECONDS = 30.0
"""How long a writer waits for another one."""

CONNECTIONS = 16
"""Connections to a server that one `Database` holds at most."""


class Database(ABC):
    """An open store. Use `Database.open`; close it when done, or use it in `with`."""

    engine: Engine
    name: str
    """What messages call it: a path, or a URL without user and password."""

    @staticmethod
    def open(
        target: Path | str, *, create: bool = True, connections: int = CONNECTIONS
    ) -> "Database":
        """Opens what a path or URL names (see `url.read_target`), creating the file and making
        or migrating the tables when needed. With `create` false there must be a store already.

        `connections` are the transactions that may be open at once on PostgreSQL; whoever
        comes later waits, at most `LOCK_SECONDS`.

        Raises StoreUnavailable when it cannot be opened, is no store, or was written by a
        newer version of lettaspace; InvalidInput for a URL that is none.
        """
        where = read_target(target)
        if isinstance(where, PostgresURL):
            from lettaspace.space.postgres import PostgresDatabase

            return PostgresDatabase.open_url(where, create=create, connections=connections)
        from lettaspace.space.sqlite import SQLiteDatabase

        return SQLiteDatabase.open_file(where, create=create)

    @abstractmethod
    def read(self) -> AbstractContextManager[Connection]:
        """A read transaction: everything inside sees one snapshot. It waits for no writer."""

    @abstractmethod
    def write(self) -> AbstractContextManager[Connection]:
        """A write transaction, one a thread at a time.

        On SQLite it is the only one on the file. On PostgreSQL any number run at once, each
        statement sees what was committed before it, and whoever writes to a repo locks its row
        first: `EmbeddedRepo.transact` does, and writers of other repos go on meanwhile.
        """

    def run(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, called in a write transaction that is then committed. Where the
        database broke the transaction off for the sake of another one, `work` is called again,
        a few times, in a new one."""
        with self.write() as connection:
            return work(connection)

    def run_together(self, work: Callable[[Connection], T]) -> T:
        """`run`, where many threads write small things: on SQLite they share transactions, and
        so wait for the disk once. `work` may be called in another thread, which must not matter
        to it, and it fails or succeeds alone."""
        return self.run(work)

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Copies the store to a file while others use it."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def authors(self) -> list[str]:
        """Whose repos are in this store."""
        with self.read() as connection:
            return list(connection.execute(select(schema.repos.c.author).distinct()).scalars())

    def require_sqlite(self, what: str) -> None:
        """Raises StoreUnavailable unless this is a SQLite file, which `what` needs."""
        if self.engine.dialect.name != "sqlite":
            raise StoreUnavailable(f"{what} needs a SQLite file, and {self.name} is none")

    def _migrate(self, *, create: bool) -> None:
        with self.read() as connection:
            current = self._revision(connection)
        if current == schema.REVISION:
            return
        if current is None and not create:
            raise StoreUnavailable(f"no store at {self.name}")
        # Alembic takes a third of a second to import; only a new or old store pays it.
        from lettaspace.space.migrations import upgrade

        with self._migrating() as connection:
            upgrade(connection, self._revision(connection), self.name)

    @contextmanager
    def _migrating(self) -> Iterator[Connection]:
        """A write transaction that no other process migrates in at the same time."""
        with self.write() as connection:
            yield connection

    @abstractmethod
    def _has_table(self, connection: Connection, name: str) -> bool: ...

    def _revision(self, connection: Connection) -> str | None:
        if not self._has_table(connection, "alembic_version"):
            return None
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return None if revision is None else str(revision)
