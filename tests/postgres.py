"""A PostgreSQL server of the tests' own: a Unix socket in a private directory, fsync on.

Where the tests run as root it runs as the user `postgres`, for it refuses to run as root.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from lettaspace.space.database import Database

START_SECONDS = 60.0

_numbers = count()


class Postgres:
    """One cluster, which can be stopped, killed and started again."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self.binaries = binaries
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        # So that it ends with the tests, however those end.
        self._as = ["setpriv", "--pdeathsig=INT"] if shutil.which("setpriv") else []
        if os.geteuid() == 0:
            user = _unprivileged()
            shutil.chown(directory, user.pw_uid, user.pw_gid)
            self._as += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._run(
            "initdb", "-D", self._data, "-U", "owner", "-A", "trust", "-E", "UTF8",
            # An order of texts that is not the one of their bytes, to be seen where it is used.
            "--locale-provider=icu", "--icu-locale=en", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        hba = directory / "data" / "pg_hba.conf"
        hba.write_text("local all guarded scram-sha-256\nlocal all all trust\n")

    @property
    def _data(self) -> str:
        return str(self.directory / "data")

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._as, str(self.binaries / "postgres"), "-D", self._data,
                    "-k", str(self.directory), "-c", "listen_addresses=",
                    "-c", "max_connections=60", "-c", "shared_buffers=32MB",
                    "-c", "deadlock_timeout=200ms",
                ],
                cwd=self.directory, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.directory / "log").read_text()[-2000:]) from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: fast; SIGQUIT: immediate, without anything being written first."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=START_SECONDS)
            self._process = None

    def kill(self) -> None:
        """SIGKILL to every process of the server at once."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.stop(signal.SIGKILL)

    def url(self, database: str, user: str = "owner") -> str:
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def database(self, like: str = "template1") -> Iterator[str]:
        """The name of a new database, a copy of another one."""
        name = f"test{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {like}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, command: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, str(self.binaries / command), *arguments],
            cwd=self.directory,
            check=True,
            capture_output=True,
        )


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _binaries() -> Path | None:
    """Where `initdb` and `postgres` are: Debian keeps them out of the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((each.parent for each in versions), key=lambda p: int(p.parent.name), default=None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running server."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no initdb: install Debian's package postgresql")
    # Not in pytest's own directory: nobody but its owner may enter that.
    directory = Path(tempfile.mkdtemp(prefix="lettaspace-pg-"))
    try:
        server = Postgres(binaries, directory)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres_store(postgres: Postgres) -> str:
    """The name of a database that holds an empty store, for copies to be made of."""
    postgres.execute("CREATE DATABASE store")
    Database.open(postgres.url("store")).close()
    return "store"


@pytest.fixture
def postgres_url(postgres: Postgres, postgres_store: str) -> Iterator[str]:
    """The URL of an empty store of the test's own."""
    with postgres.database(like=postgres_store) as name:
        yield postgres.url(name)
