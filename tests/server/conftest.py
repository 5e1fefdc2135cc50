from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from lettaspace.server import passwords, tables
from lettaspace.server.accounts import Accounts
from lettaspace.space.database import Database
from tests.postgres import Postgres
from tests.server.hosts import Clock, Server, serving


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dear on purpose is not worth the time of every test."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", cheap)
    passwords._nobodys.cache_clear()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host's database that holds nothing yet, for copies to be made of."""
    path = tmp_path_factory.mktemp("empty") / "host.db"
    _prepare(str(path))
    return path


@pytest.fixture(scope="session")
def empty_database(postgres: Postgres, postgres_store: str) -> str:
    """The name of the same on PostgreSQL."""
    postgres.execute(f"CREATE DATABASE empty_host TEMPLATE {postgres_store}")
    _prepare(postgres.url("empty_host"))
    return "empty_host"


def _prepare(target: str) -> None:
    with Database.open(target) as database:
        tables.prepare(database)


@pytest.fixture
def empty_url(postgres: Postgres, empty_database: str) -> Iterator[str]:
    with postgres.database(like=empty_database) as name:
        yield postgres.url(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a host's database of each kind is: what `Database.open` takes, as text."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("empty_url"))
    return shutil.copy(request.getfixturevalue("empty_file"), str(tmp_path / "host.db"))


@pytest.fixture
def database(target: str) -> Iterator[Database]:
    """A database with the host's tables."""
    with Database.open(target) as opened:
        tables.prepare(opened)
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(database: Database, clock: Clock) -> Accounts:
    return Accounts(database, clock)


@pytest.fixture
def server(target: str, clock: Clock) -> Iterator[Server]:
    """A host on loopback that is being served."""
    with serving(target, clock) as running:
        yield running
