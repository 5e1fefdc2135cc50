from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.server.blackbox.client import MEMBERS, SIMPLE, TYPE, Host, Party, good
from tests.server.hosted import PASSWORD, hosted
from tests.waiting import SECONDS

PREFIX = "LETTASPACE_BLACKBOX_"


@dataclass(frozen=True)
class Hosts:
    """The host that is checked, and two accounts, the second one wherever it is."""

    host: Host
    owner: Party
    member: Party


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "hosts" in metafunc.fixturenames:
        ours = ["sqlite", "postgresql"]
        given = [PREFIX + "URL"] if PREFIX + "URL" in os.environ else ours
        metafunc.parametrize("hosts", given, indirect=True, scope="session")


@pytest.fixture(scope="session")
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        if request.param.startswith(PREFIX):
            yield _given(client)
        else:
            yield from _ours(request, client)


def _given(client: httpx.Client) -> Hosts:
    url = os.environ[PREFIX + "URL"].rstrip("/")
    host = Host(url, client)
    other = Host(os.environ.get(PREFIX + "MEMBER_URL", url).rstrip("/"), client)
    owner, member = (os.environ[PREFIX + name].split(maxsplit=1) for name in ("OWNER", "MEMBER"))
    return Hosts(host, Party(host, *owner), Party(other, *member))


def _ours(request: pytest.FixtureRequest, client: httpx.Client) -> Iterator[Hosts]:
    directory = request.getfixturevalue("tmp_path_factory").mktemp("blackbox")
    database = None
    if request.param == "postgresql":
        database = request.getfixturevalue("_postgres_database")
    with hosted(directory / "a", database) as a, hosted(directory / "b") as b:
        a.add_account("alice.localhost")
        b.add_account("bob.localhost")
        a.start()
        b.start()
        ours, theirs = Host(a.origin, client), Host(b.origin, client)
        alice = Party(ours, "alice.localhost", PASSWORD)
        yield Hosts(ours, alice, Party(theirs, "bob.localhost", PASSWORD))


@pytest.fixture(scope="session")
def _postgres_database(request: pytest.FixtureRequest) -> Iterator[str]:
    server = request.getfixturevalue("postgres")
    with server.database(like=request.getfixturevalue("postgres_store")) as name:
        yield server.url(name)


@pytest.fixture
def new_space(hosts: Hosts) -> Iterator[Callable[..., str]]:
    """Makes spaces of the owner, which are deleted in the end."""
    made: list[str] = []

    def make(**settings: object) -> str:
        uri = good(hosts.owner.create_space(**settings))["uri"]
        assert uri.startswith(f"at://{hosts.owner.did}/space/{TYPE}/")
        made.append(uri)
        return str(uri)

    yield make
    for uri in made:
        good(hosts.owner.post(SIMPLE + "deleteSpace", space=uri))


@pytest.fixture
def space(new_space: Callable[..., str]) -> str:
    """A space of the owner for members."""
    return new_space(read=MEMBERS, write=MEMBERS)


@pytest.fixture
def owner(hosts: Hosts) -> Party:
    return hosts.owner


@pytest.fixture
def member(hosts: Hosts) -> Party:
    """Another account; a member of nothing yet."""
    return hosts.member


@pytest.fixture
def host(hosts: Hosts) -> Host:
    """The host that is checked: the owner's."""
    return hosts.host
