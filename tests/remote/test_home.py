"""A host on a box at home: signing in where the user typed its address, and syncing with it.

The network is bent in two places: what the box's names are looked up as, and where connections
to its address go.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn

from lettaspace.atproto.keys import SigningKey
from lettaspace.conversation.leaves import BLOB_BYTES, make_leaf
from lettaspace.conversation.records import SPACE_TYPE, default_space
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.network import fetching
from lettaspace.network.fetching import Fetcher
from lettaspace.network.targets import FetchError
from lettaspace.remote import transport, xrpc
from lettaspace.remote.account import ACCOUNT_FILE, Account
from lettaspace.remote.exchanging import exchange
from lettaspace.remote.keeping import read_private, write_private
from lettaspace.remote.linking import Link
from lettaspace.remote.replicas import attach_empty
from lettaspace.remote.signin import find, with_password
from lettaspace.remote.xrpc import Client
from lettaspace.server.app import application
from lettaspace.server.config import Config
from lettaspace.server.host import Host
from lettaspace.space.writes import Create
from lettaspace.viewer.server import bind
from tests.server.hosts import PASSWORD

BOX = "https://box.lan"
AT = "192.168.1.5"
MIRA = "did:web:mira.box.lan"


@dataclass
class Box:
    """The host, and what leads to it."""

    host: Host
    names: dict[str, str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, int, Path]]:
    home = tmp_path_factory.mktemp("box")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(home / "ca.pem")
    authority.issue_cert("box.lan", "*.box.lan").private_key_and_cert_chain_pem.write_to_path(
        home / "box.pem"
    )
    bound = bind(port=0)
    with Host.open(Config(BOX, home / "host.db"), checking=True) as host:
        host.accounts.add("mira.box.lan", MIRA, password=PASSWORD, key=SigningKey.generate())
        settings = uvicorn.Config(
            application(host), log_config=None, ws="none", ssl_certfile=str(home / "box.pem")
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound.socket]})
        thread.start()
        yield host, bound.port, home / "ca.pem"
        server.should_exit = True
        thread.join()
        bound.socket.close()


@pytest.fixture
def box(served: tuple[Host, int, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    host, port, authority = served
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    names = dict.fromkeys(("box.lan", "mira.box.lan"), AT)
    lookup, connect = socket.getaddrinfo, socket.socket.connect

    def instead(name: Any, service: Any, *more: Any, **options: Any) -> Any:
        if name in names or name == "localhost":
            return lookup(names.get(name, "127.0.0.1"), service, *more, **options)
        raise socket.gaierror

    def to_box(sock: socket.socket, place: tuple[str, int]) -> None:
        connect(sock, ("127.0.0.1", port) if place == (AT, 443) else place)

    monkeypatch.setattr(socket, "getaddrinfo", instead)
    monkeypatch.setattr(socket.socket, "connect", to_box)
    with _authorities():
        yield Box(host, names)


@contextmanager
def _authorities() -> Iterator[None]:
    """What is trusted is read anew."""
    kept = (xrpc._trusted, transport._trusted, fetching._public_authorities)
    for each in kept:
        each.cache_clear()
    yield
    for each in kept:
        each.cache_clear()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_where_its_address_was_typed_one_signs_in_and_syncs(box: Box, home: Path) -> None:
    place = find(BOX + "/")
    assert (place.host, place.loopback, place.trusted) == (BOX, False, True)
    with_password(home, place, "mira.box.lan", PASSWORD)
    assert read_private(home / ACCOUNT_FILE)["trusted"] == BOX
    account = Account.load(home)
    assert account is not None
    assert (account.did, account.handle, account.trusted) == (MIRA, "mira.box.lan", True)
    with Space.open(home) as space:
        attach_empty(space.database, account.did, account.host)
    with Space.open(home) as space, Link(space, account) as link:
        space.repo.apply_writes([Create("org.example.note", "one", {"text": "at home"})])
        assert link.syncer().sync().pushed == 1
    # Others of its accounts are found there.
    assert account.resolver().key(MIRA, "#atproto", refresh=True)


def test_what_others_of_the_household_write_is_read(box: Box, home: Path) -> None:
    yuki, key = "did:web:yuki.box.lan", SigningKey.generate()
    box.names["yuki.box.lan"] = AT
    box.host.accounts.add("yuki.box.lan", yuki, password=PASSWORD, key=key)
    account = with_password(home, find(BOX), MIRA, PASSWORD)
    space = str(default_space(MIRA))
    with Client(BOX, auth=account.session()) as own:
        policy = {"$type": "com.atproto.simplespace.defs#memberListPolicy"}
        access = {"$type": "com.atproto.simplespace.defs#open"}
        settings = {"spaceType": SPACE_TYPE, "skey": "self", "appAccess": access}
        own.procedure(
            "com.atproto.simplespace.createSpace",
            {**settings, "readPolicy": policy, "writePolicy": policy},
        )
        right = {"space": space, "did": yuki, "read": True, "write": True}
        own.procedure("com.atproto.simplespace.putMember", right)
    box.host.repos.write(
        space,
        yuki,
        lambda _: [Create("org.example.note", "one", {})],
        partial(_told, box, space, yuki),
    )
    with Space.open(home) as opened:
        attach_empty(opened.database, account.did, account.host)
    with Space.open(home) as opened, Link(opened, account) as link:
        assert exchange(link, members=True).members.synced[yuki].created == 1


def _told(box: Box, space: str, did: str, connection: Any, rev: str, digest: bytes) -> None:
    box.host.written(connection, space, did, rev, digest)


def test_o55_a_name_that_was_not_typed_as_an_address_does_not_lead_there(
    box: Box, home: Path
) -> None:
    for who in ("mira.box.lan", MIRA):
        with pytest.raises(NotFound, match="type its address"):
            find(who)
    with pytest.raises(FetchError, match="no public address"):
        Fetcher().get(BOX)
    box.names["box.lan"] = "169.254.169.254"
    assert not find(BOX).trusted


def test_without_encryption_nobody_signs_in(box: Box) -> None:
    for url in ("http://box.lan", f"http://{AT}:2583", "http://box", "HTTP://[fd12::1]:80"):
        with pytest.raises(InvalidInput, match="give the host a certificate"):
            find(url)


def test_an_address_in_numbers_and_a_single_name(box: Box) -> None:
    box.names |= {"nas": AT, AT: AT}
    for url in ("https://nas:444", f"https://{AT}"):
        place = find(url)
        assert (place.host, place.trusted) == (url, True)
    for url in ("https://1.1.1.1", "https://169.254.169.254", "https://elsewhere"):
        with pytest.raises(InvalidInput, match="not a domain name"):
            find(url)


def test_what_is_kept_is_of_the_accounts_own_host(box: Box, home: Path) -> None:
    with_password(home, find(BOX), MIRA, PASSWORD)
    kept = read_private(home / ACCOUNT_FILE)
    write_private(home / ACCOUNT_FILE, {**kept, "trusted": "https://other.lan"})
    with pytest.raises(Damaged):
        Account.load(home)
    del kept["trusted"]  # as it was kept before
    write_private(home / ACCOUNT_FILE, kept)
    account = Account.load(home)
    assert account is not None
    assert not account.trusted


def test_whether_a_host_leaks_blobs_is_learnt_when_it_has_some(box: Box, home: Path) -> None:
    account = with_password(home, find(BOX), MIRA, PASSWORD)
    account = account.learnt(replace(account.capabilities, leaks_blobs=None))
    leaf, blobs = make_leaf(BLOB_BYTES, b"a picture" * 9000, "application/octet-stream")
    with Space.open(home) as space:
        attach_empty(space.database, account.did, account.host)
    with Space.open(home) as space, Link(space, account) as link:
        exchange(link)
        assert Account.load(home) == account
        space.repo.apply_writes([Create("org.example.note", "leaf", {"a": leaf})], blobs=blobs)
        exchange(link)
        found = Account.load(home)
        assert found is not None
        assert found.capabilities.leaks_blobs is False
        # Whoever has signed out meanwhile stays so.
        found.sign_out()
        found.learnt(replace(found.capabilities, leaks_blobs=True))
        assert Account.load(home) is None
