"""A store in a SQLite file.

In WAL mode with `synchronous=FULL`: what a transaction acknowledged survives a crash of the
process and of the machine. Several processes may use one file at once; a writer waits for
the write lock up to `LOCK_SECONDS`, readers never wait and see one snapshot.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from lettaspace.errors import StoreUnavailable
from lettaspace.space.database import LOCK_SECONDS, Database
from lettaspace.space.together import Job, Together

T = TypeVar("T")

_READERS = 4
"""Connections for reading that are kept open."""


class SQLiteDatabase(Database):
    """Opened by `Database.open`."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine = engine
        self.path = path
        self.name = str(path)
        self._writing = threading.RLock()
        self._writer: Connection | None = None
        self._writes_in: int | None = None
        self._together = Together(self._commit)
        self._readers: list[Connection] = []
        self._closed = False

    @classmethod
    def open_file(cls, path: Path, *, create: bool) -> "SQLiteDatabase":
        """Opens the file, creating (mode 0600) and migrating it when needed."""
        if not create and not path.exists():
            raise StoreUnavailable(f"no store at {path}")
        _make_private(path)
        _refuse_foreign(path)
        engine = create_engine(
            f"sqlite:///{path}",
            connect_args={"timeout": LOCK_SECONDS, "check_same_thread": False},
            # What is kept open is kept here; what is closed is to be closed.
            poolclass=NullPool,
        )
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
        database = cls(engine, path)
        try:
            # A file that is there may be empty, and becomes a store all the same.
            database._migrate(create=True)
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        with self._writing:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._closed = True
        self._close_readers()
        self.engine.dispose()

    def _close_readers(self) -> None:
        with suppress(IndexError):  # others take from there, too
            while True:
                self._readers.pop().close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        # As for writing, connections stay open: a few, for whoever reads next.
        with _clear_errors(self.path):
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self.engine.connect()
            raw = cast(sqlite3.Connection, connection.connection.driver_connection)
            try:
                raw.execute("BEGIN")
                yield connection
            finally:
                # Also ends statements that were not read to their end, with their snapshot.
                raw.rollback()
                if connection.in_transaction():
                    connection.rollback()
                if len(self._readers) >= _READERS:
                    connection.close()
                else:
                    self._readers.append(connection)
                if self._closed:  # perhaps just now, in another thread
                    self._close_readers()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        # Threads take turns on one connection that stays open: taking one from the pool and
        # giving it back costs as much as all else that a small write does.
        with self._writing, _clear_errors(self.path):
            if self._writer is None:
                self._writer = self.engine.connect()
                self._writer.exec_driver_sql("PRAGMA busy_timeout = 0")
                self._writer.rollback()
            connection = self._writer
            raw = cast(sqlite3.Connection, connection.connection.driver_connection)
            if raw.in_transaction:
                raise RuntimeError("a write transaction inside another one")
            _begin_writing(raw)
            self._writes_in = threading.get_ident()
            try:
                yield connection
                raw.commit()
            except BaseException:
                raw.rollback()
                raise
            finally:
                self._writes_in = None
                # What SQLAlchemy has run itself it takes for a transaction of its own.
                if connection.in_transaction():
                    connection.rollback()

    def run_together(self, work: Callable[[Connection], T]) -> T:
        if self._writes_in == threading.get_ident():
            raise RuntimeError("a write transaction inside another one")
        return self._together.run(work)

    def _commit(self, jobs: Sequence[Job]) -> None:
        with self.write() as connection:
            if len(jobs) == 1:
                jobs[0].result = jobs[0].work(connection)
                return
            raw = cast(sqlite3.Connection, connection.connection.driver_connection)
            for job in jobs:
                raw.execute("SAVEPOINT job")
                try:
                    with _clear_errors(self.path):
                        job.result = job.work(connection)
                except Exception as error:
                    job.error = error
                    raw.execute("ROLLBACK TO job")
                raw.execute("RELEASE job")

    def backup(self, target: Path) -> None:
        """Copies the store, including what is not checkpointed yet, while others use it."""
        _make_private(target)
        with _clear_errors(self.path), self.engine.connect() as connection:
            source = cast(sqlite3.Connection, connection.connection.driver_connection)
            copy = sqlite3.connect(target)
            try:
                source.backup(copy)
            finally:
                copy.close()

    def _has_table(self, connection: Connection, name: str) -> bool:
        found = connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
        )
        return found.first() is not None


def _make_private(path: Path) -> None:
    """Creates the file and its directory for their owner alone; SQLite gives its side files
    the mode of the main file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"cannot open {path}: {error.strerror or error}") from error


def _refuse_foreign(path: Path) -> None:
    """SQLite would overwrite a file that is too short to be told from an empty one."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreUnavailable(f"cannot open {path}: {error.strerror or error}") from error
    if start and start != _MAGIC:
        raise StoreUnavailable(f"cannot use {path}: {_REASONS['SQLITE_NOTADB']}")


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    try:
        _set_pragmas(connection)
    except BaseException:
        connection.close()  # the pool does not know it yet
        raise


def _set_pragmas(connection: sqlite3.Connection) -> None:
    # SQLAlchemy decides when a transaction begins (see _begin), not the driver.
    connection.isolation_level = None
    # Two processes that switch a fresh file to WAL at once get "locked" at once, in spite of
    # the timeout: SQLite cannot wait for that lock without a deadlock. So we do.
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = FULL")
    # Pages that change with every write are copied into the file once in 32 MB, not in 4.
    connection.execute("PRAGMA wal_autocheckpoint = 8000")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -16000")


def _begin(connection: Connection) -> None:
    # SQLAlchemy's own beginning: for reading, or inside the transaction that `write` began.
    raw = cast(sqlite3.Connection, connection.connection.driver_connection)
    if not raw.in_transaction:
        raw.execute("BEGIN")


def _begin_writing(raw: sqlite3.Connection) -> None:
    """Takes the write lock, waiting for it up to `LOCK_SECONDS`.

    IMMEDIATE: a writer that first reads must not find at its first write that another one
    came between. We wait ourselves, because SQLite's own waiting grows to a tenth of a second
    a time: whoever came last would win for ever over one who has waited long.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0005, 0.004))  # noqa: S311 - so that none is always late
        else:
            return


_MAGIC = b"SQLite format 3\0"

_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_RECOVERY")

_REASONS = {
    "SQLITE_NOTADB": "it is not a lettaspace store",
    "SQLITE_CORRUPT": "the database file is damaged",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_IOERR": "reading or writing the disk failed",
}


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Turns what can go wrong with the file itself into one clear error."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        name = getattr(cause, "sqlite_errorname", None) or ""
        if name in _BUSY:
            reason = f"another process held its write lock for {LOCK_SECONDS:.0f} seconds"
        else:
            found = next((text for key, text in _REASONS.items() if name.startswith(key)), None)
            if found is None:
                raise
            reason = found
        raise StoreUnavailable(f"cannot use {path}: {reason}") from error
