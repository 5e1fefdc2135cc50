from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from lettaspace.server import passwords, tables
from lettaspace.server.accounts import Accounts
from lettaspace.space.database import Database
from tests.server.hosts import Clock, Server, serving


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dear on purpose is not worth the time of every test."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", cheap)
    passwords._nobodys.cache_clear()


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a host's database of each kind is: what `Database.open` takes, as text."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "host.db")


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
