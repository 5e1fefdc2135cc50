"""A store on a PostgreSQL server, for a host with many repos.

Readers see one snapshot (REPEATABLE READ, read only). Writers run at once (READ COMMITTED) and
lock the row of the repo they write to. `synchronous_commit` is on whatever the server or the
user has set, and a server without `fsync` is refused: what is acknowledged must survive a crash.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lettaspace.errors import InvalidInput, StoreUnavailable
from lettaspace.space import schema
from lettaspace.space.database import LOCK_SECONDS, Database
from lettaspace.space.url import PostgresURL

try:
    import psycopg
    from psycopg import conninfo
except ImportError:
    raise StoreUnavailable("PostgreSQL needs its driver: install lettaspace[postgres]") from None

T = TypeVar("T")

STATEMENT_SECONDS = 120.0
"""How long one statement may take."""

IDLE_SECONDS = 600.0
"""How long a transaction may be open with nothing asked; then the server ends it, so that a
client that hangs does not keep a repo locked."""

CONNECT_SECONDS = 10
"""How long making a connection may take, unless the URL says otherwise."""

ATTEMPTS = 8
"""How often a transaction is tried that the server breaks off for the sake of another one."""

# What it warns of comes as an error too; without a handler Python would print it.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_MIGRATION_LOCK = 0x6C657474617370  # any number that nobody else takes


class PostgresDatabase(Database):
    """Opened by `Database.open`."""

    def __init__(self, url: PostgresURL, connections: int) -> None:
        self._parameters, self.name = _parameters(url)
        self.engine: Engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_pre_ping=True,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=LOCK_SECONDS,
            hide_parameters=True,
        )
        self._reading = self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._writing = self.engine.execution_options(isolation_level="READ COMMITTED")
        self._local = threading.local()

    @classmethod
    def open_url(cls, url: PostgresURL, *, create: bool, connections: int) -> "PostgresDatabase":
        """Connects, and makes or migrates the tables when needed. The database itself must be
        there already, and in UTF-8."""
        database = cls(url, connections)
        try:
            database._migrate(create=create)
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._clear_errors(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        if getattr(self._local, "writes", False):
            raise RuntimeError("a write transaction inside another one")
        self._local.writes = True
        try:
            with self._clear_errors(), self._writing.connect() as connection:
                transaction = connection.begin()
                try:
                    yield connection
                except BaseException:
                    _roll_back(connection)
                    raise
                try:
                    transaction.commit()
                except DBAPIError as error:
                    _roll_back(connection)
                    if _is_lost(error.orig):
                        raise StoreUnavailable(
                            f"{self.name}: the connection was lost at the end of a write; "
                            "it is not known whether it is stored"
                        ) from error
                    raise
        finally:
            self._local.writes = False

    def run(self, work: Callable[[Connection], T]) -> T:
        for _ in range(ATTEMPTS - 1):
            try:
                return super().run(work)
            except _BrokenOff:
                time.sleep(random.uniform(0.001, 0.05))  # noqa: S311 - so that they part
        return super().run(work)

    def backup(self, target: Path) -> None:  # noqa: ARG002
        raise StoreUnavailable(f"{self.name} is not a file; back it up with pg_dump")

    @contextmanager
    def _migrating(self) -> Iterator[Connection]:
        with self.write() as connection:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            if not self._has_table(connection, "alembic_version"):
                for table in schema.EVERYWHERE:
                    if self._has_table(connection, table.name):
                        raise StoreUnavailable(
                            f"{self.name} has a table {table.name} that is not lettaspace's"
                        )
            yield connection

    def _has_table(self, connection: Connection, name: str) -> bool:
        # Not to_regclass: that may still say what was so before another process migrated.
        found = connection.exec_driver_sql(
            "SELECT 1 FROM pg_class WHERE relname = %s AND pg_table_is_visible(oid)", (name,)
        )
        return found.first() is not None

    def _connect(self) -> "psycopg.Connection[Any]":
        try:
            connection = psycopg.connect(**self._parameters, autocommit=True)
        except psycopg.OperationalError as error:
            # There is no SQLSTATE yet; a server that speaks no English gets the general answer.
            said = str(error)
            reason = next((text for key, text in _REFUSALS.items() if key in said), None)
            raise StoreUnavailable(
                f"{self.name}: {reason or 'it cannot be reached, or refuses the connection'}"
            ) from error
        try:
            self._prepare(connection)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: "psycopg.Connection[Any]") -> None:
        row = connection.execute(
            _SETTINGS,
            {
                "lock": f"{LOCK_SECONDS:.3f}s",
                "statement": f"{STATEMENT_SECONDS:.3f}s",
                "idle": f"{IDLE_SECONDS:.3f}s",
            },
        ).fetchone()
        encoding, fsync = (row or ("", ""))[:2]
        if encoding != "UTF8":
            raise StoreUnavailable(f"{self.name} has the encoding {encoding}; it must be UTF8")
        if fsync != "on":
            raise StoreUnavailable(
                f"{self.name} runs with fsync off, and would lose what it acknowledged"
            )

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turns what can go wrong with the server itself into one clear error, in words of our
        own: those of libpq may hold parts of the URL."""
        try:
            yield
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"{self.name}: all connections were in use for {LOCK_SECONDS:.0f} seconds"
            ) from error
        except (DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            state = getattr(cause, "sqlstate", None) or ""
            if state in _BROKEN_OFF:
                raise _BrokenOff(f"{self.name}: other writers were in the way") from error
            if isinstance(cause, psycopg.DataError) and not state:
                raise InvalidInput("a text holds a character that cannot be stored") from error
            reason = next((text for key, text in _REASONS.items() if state.startswith(key)), None)
            if reason is None and _is_lost(cause):
                reason = "the connection was lost"
            if reason is None:
                raise
            raise StoreUnavailable(f"{self.name}: {reason}") from error


class _BrokenOff(StoreUnavailable):
    """Nothing of the transaction is stored, and it can be tried again."""


_SETTINGS = """
SELECT current_setting('server_encoding'), current_setting('fsync'),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
    set_config('bytea_output', 'hex', false),
    set_config('lock_timeout', %(lock)s, false),
    set_config('statement_timeout', %(statement)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle)s, false)
"""

_BROKEN_OFF = ("40001", "40P01")  # serialization failure, deadlock

_REFUSALS = {
    "authentication failed": "it refuses the user or the password",
    "no password supplied": "it asks for a password",
    "no pg_hba.conf entry": "it lets this user in from nowhere, or not from here",
    'role "': "it has no such user",
    'database "': "there is no such database, or this user may not use it",
    "starting up": "it is starting",
    "shutting down": "it is stopping",
    "connection slots": "it has no connection left",
    "too many connections": "it has no connection left",
}
"""By what the server says when it refuses a connection."""

_REASONS = {
    "25006": "it is read-only",
    "25P03": "the connection was lost",
    "42501": "the user may not do that",
    "53100": "the disk is full",
    "53": "it has run out of memory or another resource",
    "55P03": f"another writer was in the way for {LOCK_SECONDS:.0f} seconds",
    "57014": f"a statement took more than {STATEMENT_SECONDS:.0f} seconds",
    "58": "reading or writing its disk failed",
    "XX001": "its data is damaged",
    "XX002": "an index of it is damaged",
}
"""By the beginning of SQLSTATE."""


def _parameters(url: PostgresURL) -> tuple[dict[str, Any], str]:
    """What libpq is to be told, and what to call the database in messages."""
    given = _parsed(url.text)
    host, port = str(given.get("host", "")), str(given.get("port", ""))
    place = "" if host.startswith("/") else f"{host}:{port}" if host and port else host
    parameters = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "lettaspace",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        **given,
        "client_encoding": "UTF8",
    }
    return parameters, f"postgresql://{place}/{given.get('dbname', '')}"


def _parsed(url: str) -> dict[str, Any]:
    """The URL's parts as libpq finds them. A part of a password that was not encoded, and so
    would be taken for something else, must not get into messages; so what looks like one is
    refused."""
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        given = None
    if given is not None and "\0" not in url and "@" not in path:
        host, port = str(given.get("host", "")), str(given.get("port", ""))
        if _PORTS.fullmatch(port) and (host.startswith("/") or _HOSTS.fullmatch(host)):
            return given
    raise InvalidInput(
        "the URL of the PostgreSQL database cannot be read; it is "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, where a user and a password have %XX "
        "for all that is no letter or digit"
    )


_PORTS = re.compile(r"[0-9,]*")
_HOSTS = re.compile(r"[A-Za-z0-9.:,_%-]*")


def _is_lost(error: BaseException | None) -> bool:
    """The connection broke."""
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))
    )


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except DBAPIError:
        connection.invalidate()  # the server has forgotten the transaction with the connection
