"""The same as `test_convergence`, at a host of the August 2026 alpha, with an app password."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete

from lettaspace.atproto.keys import SigningKey
from lettaspace.conversation.space import Space
from lettaspace.remote.xrpc import Client
from lettaspace.server import repos
from lettaspace.space import schema
from tests.remote.august import August, august
from tests.remote.augustauth import Account
from tests.remote.proxy import FaultProxy
from tests.remote.test_convergence import Convergence, Three, run
from tests.remote.world import MIRA, SPACE, Bearer, Setup
from tests.server.hosts import NOW, PASSWORD, Clock


class AugustSetup(Setup):
    """What all worlds share, with that host in the place of ours."""

    def __init__(self, host: August, clock: Clock, home: Path, machines: int) -> None:
        self.august = host
        ours: Any = SimpleNamespace(
            host=SimpleNamespace(
                config=SimpleNamespace(origin=host.origin), database=host.repos.database
            ),
            clock=clock,
        )
        self.server = ours
        self.home = home
        key = SigningKey.generate()
        self.there = host.doors.add(Account(MIRA, "mira.localhost", PASSWORD, key))
        self.key = key.verifying_key
        self.proxies = [FaultProxy(host.origin) for _ in range(machines)]
        self.auth = Bearer()
        self.clients = [self._client(each) for each in self.proxies]
        self.template = home / "template"
        Space.open(self.template).close()
        self.pool = ThreadPoolExecutor(machines)

    def begin(self) -> None:
        self.server.clock.now = NOW
        there = self.august.repos
        with there.database.write() as connection:
            repos.empty(connection, SPACE, MIRA)
            connection.execute(delete(schema.blobs))
        there._uploads.clear()
        login = {"identifier": MIRA, "password": self.there.add_app_password()}
        with Client(self.august.origin, clock=self.server.clock) as client:
            session = client.procedure("com.atproto.server.createSession", login)
        self.auth.token = session["accessJwt"]


@contextmanager
def setup(home: Path, machines: int) -> Iterator[AugustSetup]:
    clock = Clock()
    with august(home / "august.db", clock) as host:
        made = AugustSetup(host, clock, home, machines)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with setup(tmp_path_factory.mktemp("convergence"), 3) as made:
        yield made


@pytest.mark.parametrize(("kind", "examples"), [(Convergence, 10), (Three, 6)])
def test_everybody_ends_with_everything(where: Setup, kind: type[Convergence], examples: int):
    run(where, kind, examples)
