"""The baselines of writes: a driver inserting bytes, durably."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Cost, timed
from lettaspace.atproto.tid import TidClock


class Bare:
    """A table of two columns in a database of its own, with the pragmas of `space.database`."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA cache_size = -16000")
        self._connection.execute("CREATE TABLE records (rkey TEXT PRIMARY KEY, value BLOB)")
        self._clock = TidClock()

    def close(self) -> None:
        self._connection.close()

    def insert(self, values: Sequence[bytes]) -> Cost:
        rows = [(self._clock.mint(), value) for value in values]
        return timed(lambda: self._insert(rows))

    def insert_at_once(self, values: Sequence[bytes]) -> Cost:
        """The same in one transaction."""
        rows = [(self._clock.mint(), value) for value in values]
        return timed(lambda: self._insert_at_once(rows))

    def _insert(self, rows: Sequence[tuple[str, bytes]]) -> None:
        execute = self._connection.execute
        for row in rows:
            # A transaction of its own: the connection commits by itself.
            execute("INSERT INTO records VALUES (?, ?)", row)

    def _insert_at_once(self, rows: Sequence[tuple[str, bytes]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO records VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")


class PostgresBare:
    """The same on a PostgreSQL server, in a table of its own."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)
        # Not a temporary table: those are not written durably.
        self._connection.execute("CREATE TABLE bare (rkey text PRIMARY KEY, value bytea)")
        self._clock = TidClock()

    def close(self) -> None:
        self._connection.execute("DROP TABLE bare")
        self._connection.close()

    def insert(self, values: Sequence[bytes]) -> Cost:
        rows = [(self._clock.mint(), value) for value in values]
        return timed(lambda: [self._connection.execute(_INSERT, row) for row in rows])

    def insert_at_once(self, values: Sequence[bytes]) -> Cost:
        """The same in one transaction."""
        rows = [(self._clock.mint(), value) for value in values]
        return timed(lambda: self._insert_at_once(rows))

    def _insert_at_once(self, rows: Sequence[tuple[str, bytes]]) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(_INSERT, rows)


_INSERT = "INSERT INTO bare VALUES (%s, %s)"
