"""Backups of a host's database: one file with everything, taken while the host goes on.

Of a SQLite file it is such a file, of a database on PostgreSQL what `pg_dump` writes in its
custom format; each is restored into a database of its own kind that has nothing in it yet.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import func, select

from lettaspace.errors import InvalidInput, NotFound, StoreUnavailable
from lettaspace.server import tables
from lettaspace.space.database import Database
from lettaspace.space.url import PostgresURL, read_target


def save(target: Path | str, file: Path) -> int:
    """Writes a backup of the host at `target` and returns its number of accounts.

    The file is for its owner alone, and there whole or not at all. Raises InvalidInput if there
    is one already, StoreUnavailable.
    """
    where = read_target(target)
    with Database.open(target, create=False) as database, _new(file) as unfinished:
        number = _accounts(database)
        if isinstance(where, PostgresURL):
            arguments = ("--format=custom", "--no-owner", "--no-privileges", f"--file={unfinished}")
            _run("pg_dump", where, *arguments)
        else:
            database.backup(unfinished)
    return number


def restore(file: Path, target: Path | str) -> int:
    """Makes the host at `target` out of a backup, migrating it where it is of an older version,
    and returns its number of accounts.

    Raises NotFound, InvalidInput for what is no backup of that kind of database or if there is
    something at the target, StoreUnavailable.
    """
    if not file.is_file():
        raise NotFound(f"no file {file}")
    where = read_target(target)
    if isinstance(where, PostgresURL):
        _require_empty(where)
        arguments = ("--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges")
        _run("pg_restore", where, *arguments, str(file))
    else:
        with suppress(OSError):  # told of when the file cannot be made
            where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _new(where) as unfinished:
            _copy(file, unfinished)
    with Database.open(target, create=False) as database:
        tables.prepare(database)
        return _accounts(database)


def _accounts(database: Database) -> int:
    with database.read() as connection:
        if not tables.is_host(connection):
            raise StoreUnavailable(f"{database.name} is no host's database")
        return connection.execute(select(func.count()).select_from(tables.accounts)).scalar_one()


@contextmanager
def _new(file: Path) -> Iterator[Path]:
    """Another name, for a file that gets its own when it is whole."""
    if os.path.lexists(file):
        raise InvalidInput(f"{file} is there already")
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        # Before anybody writes to it, so that it is nobody else's to read.
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        yield unfinished
        with unfinished.open("rb") as whole:
            os.fsync(whole.fileno())
        unfinished.rename(file)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error.strerror or error}") from None
    finally:
        for side in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                unfinished.with_name(unfinished.name + side).unlink()


def _copy(file: Path, copy: Path) -> None:
    """Copies a SQLite file page by page, looking at each."""
    try:
        # Nobody writes to a backup; so it can be read where no side file can be made.
        uri = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
        with (
            closing(sqlite3.connect(uri, uri=True)) as source,
            closing(sqlite3.connect(copy)) as made,
        ):
            source.backup(made)
            (found,) = made.execute("PRAGMA quick_check(1)").fetchone()
            name = "SELECT count(*) FROM sqlite_master WHERE name = ?"
            (is_host,) = made.execute(name, (tables.VERSION_TABLE,)).fetchone()
    except sqlite3.Error:
        raise InvalidInput(f"{file} is no backup of a SQLite file, or it is damaged") from None
    if found != "ok" or not is_host:
        raise InvalidInput(f"{file} is no host's database, or it is damaged")


def _require_empty(url: PostgresURL) -> None:
    import psycopg

    query = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
    try:
        with psycopg.connect(url.text) as connection:
            row = connection.execute(query).fetchone()
    except psycopg.Error:
        raise StoreUnavailable("cannot connect to that database") from None
    if row is None or row[0]:
        raise InvalidInput("the database to restore into has tables already")


def _run(program: str, url: PostgresURL, *arguments: str) -> None:
    """Runs a program of PostgreSQL. The password is handed over where no list of processes
    shows it. Of what the program says only the first line is kept: others may hold content."""
    from psycopg import conninfo

    if shutil.which(program) is None:
        raise StoreUnavailable(f"there is no {program} here: install PostgreSQL's client programs")
    words = conninfo.conninfo_to_dict(url.text)
    environment = dict(os.environ)
    if password := words.pop("password", None):
        environment["PGPASSWORD"] = str(password)
    where = f"--dbname={conninfo.make_conninfo('', **words)}"
    done = subprocess.run(  # noqa: S603 - the program is one of two, without a shell
        [program, where, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines()
        raise StoreUnavailable(said[0] if said else f"{program} failed")
