"""The implementations that the contract's tests run against.

An implementation is a way to open a space: a function of a name. Opening a name again gives
another handle on the same space, as a second process has it. To add one, add what makes its
opener to `IMPLEMENTATIONS`; the tests ask nothing else of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from lettaspace.conversation.message import Message
from lettaspace.conversation.space import STORE_FILE, Space
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.replicas import attach
from lettaspace.remote.syncing import Syncer
from lettaspace.remote.through import online
from lettaspace.remote.xrpc import Client
from lettaspace.server.accounts import Account
from lettaspace.server.rates import Rates
from lettaspace.space.database import Database
from tests.conformance.kit import Talk
from tests.remote.world import Bearer
from tests.server.hosts import Server, serving

Opener = Callable[[str], AbstractContextManager[Space]]
MakeSpace = Callable[..., Space]

_numbers = itertools.count(1)


def embedded(root: Path, _request: pytest.FixtureRequest) -> Opener:
    """A store on this machine."""
    return lambda name: Space.open(root / name)


def remote(root: Path, request: pytest.FixtureRequest) -> Opener:
    """A host, over XRPC: whatever is read was asked of it, whatever is written is there. A name
    is an account; its handles are of one machine."""
    server: Server = request.getfixturevalue("host")
    accounts: dict[str, Account] = {}

    @contextmanager
    def opened(name: str) -> Iterator[Space]:
        if name not in accounts:
            accounts[name] = server.add_account(f"user{next(_numbers)}")
            with Database.open(root / name / STORE_FILE) as database:
                attach(database, accounts[name].did, server.host.config.origin)
        with _replica(server, accounts[name], root / name) as (replica, syncer):
            yield online(replica, syncer)
            check_host(server, accounts[name], replica, root / f"{name}-elsewhere")

    return opened


@contextmanager
def _replica(server: Server, account: Account, home: Path) -> Iterator[tuple[Space, Syncer]]:
    key = server.host.accounts.signing_key(account.did).verifying_key
    auth = Bearer(server.host.sessions.open(account).access)
    with (
        Space.open(home) as replica,
        Client(server.host.config.origin, auth=auth, clock=server.clock) as client,
    ):
        host = HostRepo(client, replica.repo.space, account.did)
        yield replica, Syncer(replica, host, lambda _again: key)


def check_host(server: Server, account: Account, space: Space, home: Path) -> None:
    """The host alone gives another machine the same windows and transcripts."""
    if home.exists():
        return
    with Database.open(home / STORE_FILE) as database:
        attach(database, account.did, server.host.config.origin)
    with _replica(server, account, home) as (other, syncer):
        syncer.sync()
        assert other.repo.set_hash().digest() == space.repo.set_hash().digest()
        for each in space.conversations():
            assert _seen(other.active(each.uri)) == _seen(space.active(each.uri))
            assert _seen(other.transcript(each.uri)) == _seen(space.transcript(each.uri))
        assert list(other.verify()) == list(space.verify())


def _seen(messages: Iterable[Message]) -> list[tuple[str, object]]:
    return [(message.rkey, message.payload()) for message in messages]


IMPLEMENTATIONS: dict[str, Callable[[Path, pytest.FixtureRequest], Opener]] = {
    "embedded": embedded,
    "remote": remote,
}


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A host without limits on how much an account may write."""
    path = tmp_path_factory.mktemp("host") / "host.db"
    with serving(path, rates=Rates.none()) as server:
        yield server


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def make_space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSpace]:
    """Opens the space of a name."""
    opener = IMPLEMENTATIONS[request.param](tmp_path, request)
    with ExitStack() as stack:
        yield lambda name="home": stack.enter_context(opener(name))


@pytest.fixture
def space(make_space: MakeSpace) -> Space:
    return make_space()


@pytest.fixture
def talk(space: Space) -> Talk:
    return Talk.new(space)
