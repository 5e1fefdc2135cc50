"""A host, an account on it, and machines that each keep a replica of the account's space.

The host is started once, and every `World` finds it empty and at the same time, so that equal
steps in it have equal results. Each machine reaches the host through a proxy of its own, and has
a clock that is wrong by minutes.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select

from lettaspace.atproto.commit import Commit
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.tid import TidClock
from lettaspace.conversation import times
from lettaspace.conversation.records import default_space
from lettaspace.conversation.space import STORE_FILE, Space
from lettaspace.errors import HostRefused, LettaspaceError, Unreachable
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.limits import Limits
from lettaspace.remote.mirror import Mirror
from lettaspace.remote.replicas import attach
from lettaspace.remote.syncing import Syncer, SyncReport
from lettaspace.remote.xrpc import Client
from lettaspace.server import repos, tables
from lettaspace.server.rates import Rates
from lettaspace.space import schema
from lettaspace.space.database import Database
from tests.remote.faults import Fault, Schedule, calm
from tests.remote.ledger import Ledger, Shown, check_all_is_there
from tests.remote.proxy import TIMEOUT, FaultProxy
from tests.server.hosts import NOW, PASSWORD, Clock, Server, serving

MIRA = "did:plc:mira2222222222222222zzzz"
"""Not of this host's port, which is another each time."""

SPACE = str(default_space(MIRA))

MACHINES = 3
ROUNDS = 10
"""Syncs of each machine after which they must be the same."""


class Bearer:
    """A session's token, which is good for as long as a test takes."""

    def __init__(self, token: str = "") -> None:
        self.token = token

    def fields(self, method: str, url: str, nonce: str | None) -> list[tuple[str, str]]:  # noqa: ARG002
        return [("authorization", f"Bearer {self.token}")]

    def renew(self, used: Sequence[tuple[str, str]], error: str) -> bool:  # noqa: ARG002
        return False


class Setup:
    """What all worlds of a test share: the host, the account, a proxy for each machine."""

    def __init__(self, server: Server, home: Path, machines: int) -> None:
        self.server = server
        self.home = home
        key = SigningKey.generate()
        accounts = server.host.accounts
        self.account = accounts.add("mira.localhost", MIRA, password=PASSWORD, key=key)
        self.key = key.verifying_key
        self.proxies = [FaultProxy(server.host.config.origin) for _ in range(machines)]
        self.auth = Bearer()
        self.clients = [self._client(each) for each in self.proxies]
        # Migrated once, and copied for each machine.
        self.template = home / "template"
        Space.open(self.template).close()
        self.pool = ThreadPoolExecutor(machines)

    def _client(self, proxy: FaultProxy) -> Client:
        return client(proxy.origin, self.auth, self.server.clock)

    def begin(self) -> None:
        """Nothing was ever written, and whoever has a token has a new one."""
        host = self.server.host
        self.server.clock.now = NOW
        with host.database.write() as connection:
            repos.empty(connection, SPACE, MIRA)
            connection.execute(delete(tables.uploads))
            connection.execute(delete(schema.blobs))
        self.auth.token = host.sessions.open(self.account).access

    def close(self) -> None:
        self.pool.shutdown()
        for each in self.clients:
            each.close()
        for proxy in self.proxies:
            proxy.close()


@contextmanager
def setup(home: Path, machines: int = MACHINES) -> Iterator[Setup]:
    with serving(home / "host.db", Clock(), rates=Rates.none()) as server:
        made = Setup(server, home, machines)
        try:
            yield made
        finally:
            made.close()


def client(origin: str, auth: Bearer, clock: Callable[[], float]) -> Client:
    """One that never waits for the time to pass."""
    return Client(origin, auth=auth, clock=clock, sleep=_no_time)


def open_at(home: Path, now: Callable[[], float], clock_id: int) -> Space:
    """The replica in a home, on a machine whose clock tells these seconds since 1970."""
    space = Space.open(home, create=False)
    assert space.repo.author == MIRA
    space.repo.clock = TidClock(lambda: round(now() * 1e6) * 1000, clock_id)
    space.now = lambda: times.text(datetime.fromtimestamp(now(), UTC))  # type: ignore[method-assign]
    return space


def syncer(space: Space, client: Client, key: VerifyingKey, batch: int) -> Syncer:
    """Syncs a replica; at most so many writes are sent at once."""
    host = HostRepo(client, SPACE, MIRA, limits=Limits(writes=batch))
    return Syncer(space, host, lambda _again: key, sleep=_no_time)


def _no_time(_seconds: float) -> None:
    pass


class Machine:
    """A home directory with a replica, a clock that is `skew` seconds ahead, and a way to the
    host."""

    def __init__(self, world: World, number: int, skew: float) -> None:
        self.world = world
        self.number = number
        self.skew = skew
        self.home = world.home / f"machine{number}"
        self.proxy = world.setup.proxies[number]
        self.log: list[tuple[str, Fault]] = []
        """The requests of the last sync, and what became of them."""
        self.proxy.forget()
        shutil.copytree(world.setup.template, self.home)
        with Database.open(self.home / STORE_FILE, create=False) as database:
            attach(database, MIRA, self.proxy.origin, signing_key=self.key.did)
        self.space = self._open()

    @property
    def key(self) -> VerifyingKey:
        return self.world.setup.key

    def now(self) -> float:
        return self.world.clock() + self.skew

    def _open(self) -> Space:
        return open_at(self.home, self.now, next(self.world.clock_ids) % 1024)

    def reopen(self, skew: float | None = None) -> None:
        """The program ends, and begins anew; the clock may have been set meanwhile."""
        self.space.close()
        if skew is not None:
            self.skew = skew
        self.space = self._open()

    def syncer(self) -> Syncer:
        to_host = self.world.setup.clients[self.number]
        return syncer(self.space, to_host, self.key, self.world.batch)

    def sync(self, schedule: Schedule | Mapping[int, Fault] = calm) -> SyncReport | LettaspaceError:
        """What came of a sync. Only what a network can do may make it fail."""
        self.proxy.schedule(schedule)
        try:
            return self.syncer().sync()
        except (Unreachable, HostRefused) as error:
            if schedule is calm:
                raise
            return error
        finally:
            self.log = self.proxy.log
            self.proxy.schedule(calm)

    @contextmanager
    def syncing(self, number: int, fault: Fault) -> Iterator[None]:
        """A sync goes on beside what is done here. It is held up at its request of this number,
        until all of that is done."""
        self.proxy.schedule({number: fault})
        work: Future[SyncReport] = self.world.setup.pool.submit(self.syncer().sync)
        try:
            self.proxy.wait_held(work)
            yield
        finally:
            self.proxy.release()
            work.result(TIMEOUT)
            self.log = self.proxy.log
            self.proxy.schedule(calm)

    def records(self) -> dict[tuple[str, str], str]:
        """The CID of every record."""
        with self.space.database.read() as connection:
            rows = connection.execute(
                select(
                    schema.records.c.collection, schema.records.c.rkey, schema.records.c.cid
                ).where(schema.records.c.repo == self.space.repo.id)
            )
            return {(row.collection, row.rkey): bytes(row.cid).hex() for row in rows}


class World:
    """A host on which the space has nothing yet, and machines with a replica of it. `batch`:
    writes that are sent at once, at most."""

    def __init__(self, setup: Setup, skews: Sequence[float], *, batch: int = 200) -> None:
        self.setup = setup
        self.batch = batch
        self.clock = setup.server.clock
        setup.begin()
        self.home = setup.home / "world"
        shutil.rmtree(self.home, ignore_errors=True)  # of one that failed
        self.clock_ids = itertools.count(1)
        self.ledger = Ledger()
        self.machines = [Machine(self, number, skew) for number, skew in enumerate(skews)]

    def close(self) -> None:
        for machine in self.machines:
            machine.space.close()
            machine.proxy.forget()
        shutil.rmtree(self.home)

    def deliver(self) -> int:
        """What the network kept back arrives at the host; returns how much that was."""
        return sum(machine.proxy.deliver() for machine in self.machines)

    def commit(self) -> Commit:
        """The host's own, verified."""
        commit = HostRepo(self.setup.clients[0], SPACE, MIRA).latest_commit()
        assert commit is not None
        assert commit.is_valid(SPACE, MIRA, self.setup.key)
        return commit

    def settle(self) -> None:
        """Everybody syncs until that changes nothing any more."""
        self.deliver()
        for _ in range(ROUNDS):
            before = self._revs()
            for machine in self.machines:
                machine.sync()
            if self._revs() == before:
                return
        raise AssertionError(f"after {ROUNDS} rounds of syncs there still is something to sync")

    def _revs(self) -> list[str | None]:
        """Of the host, and of each machine: when anything was written last."""
        with self.setup.server.host.database.read() as connection:
            head = repos.head(connection, SPACE, MIRA)
        ours = [machine.space.repo.rev() for machine in self.machines]
        return [None if head is None else head.rev, *ours]

    def check_converged(self) -> Shown:
        """All machines are the same, and nothing that was ever acknowledged is missing."""
        self.settle()
        first, *others = self.machines
        records = first.records()
        for machine in others:
            assert machine.records() == records
        if records:
            digest = self.commit().hash
            for machine in self.machines:
                assert machine.space.repo.set_hash().digest() == digest
        shown = Shown.by(first.space)
        for machine in others:
            assert Shown.by(machine.space) == shown
        for machine in self.machines:
            problems = [*map(str, machine.space.verify()), *held(machine)]
            assert not problems, problems
        check_all_is_there(self.ledger, first.space)
        return shown


def held(machine: Machine) -> list[Any]:
    """What a machine has otherwise than the host, and means to."""
    with machine.space.database.read() as connection:
        return Mirror(connection, machine.space.repo.id).held()
