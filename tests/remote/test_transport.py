"""A client of hosts that others name goes nowhere inside.

Connections to public addresses are let go to a peer on this machine, which is all that is bent.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
import trustme

from lettaspace.errors import HostRefused, Unreachable
from lettaspace.remote.transport import Checked
from lettaspace.remote.xrpc import Client
from tests.remote.auths import Bearer
from tests.server.peers import Peer, peer, reply
from tests.waiting import SECONDS

PUBLIC = "93.184.215.14"
OTHER = "93.184.215.15"
LIST = "com.atproto.space.listRecords"
REPO = {
    "space": "at://did:web:mira.example/space/org.example.room/self",
    "repo": "did:web:mira.example",
}
OK = reply(json.dumps({"records": []}).encode(), media_type="application/json")


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


@cache
def _trust() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _authority().configure_trust(context)
    return context


def tls(*names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _authority().issue_cert(*names).configure_cert(context)
    return context


class Net:
    """A public network with one peer. It notes where connections went and what was looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connected: list[str] = []
        self.looked_up: list[str] = []
        self.names: dict[str, list[list[str]]] = {}
        """What each look-up of a name gives, one after the other, the last one for ever."""
        self.refusing: set[str] = set()
        self.peer: Peer | None = None
        self.slept: list[float] = []
        connect = socket.socket.connect

        def instead(sock: socket.socket, place: tuple[str, int]) -> None:
            self.connected.append(place[0])
            if self.peer is None or place[0] in self.refusing:
                raise ConnectionRefusedError
            sock.settimeout(30)
            connect(sock, ("127.0.0.1", self.peer.port))

        monkeypatch.setattr(socket.socket, "connect", instead)

    def lookup(self, name: str, timeout: float) -> list[IPv4Address | IPv6Address]:
        assert timeout > 0
        self.looked_up.append(name)
        answers = self.names.get(name, [[]])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(text) for text in found]

    @contextmanager
    def client(self, origin: str, *, development: bool = False, **options: Any) -> Iterator[Client]:
        transport = Checked(development=development, trust=_trust(), lookup=self.lookup)
        options |= {"auth": Bearer("secret"), "sleep": self.slept.append}
        with Client(origin, transport=transport, **options) as client:
            yield client


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    return Net(monkeypatch)


def ask(client: Client) -> object:
    return client.query(LIST, REPO)


def test_a_public_host(net: Net) -> None:
    net.names["ada.example"] = [[PUBLIC]]
    with peer(OK, tls("ada.example")) as net.peer, net.client("https://ada.example") as client:
        assert ask(client) == {"records": []}
    (request,) = net.peer.requests
    assert b"\r\nHost: ada.example\r\n" in request
    assert (net.connected, net.looked_up) == ([PUBLIC], ["ada.example"])


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "10.0.0.5", "::ffff:127.0.0.1", "::1", "fd12:3456::1"],
)
def test_o55_a_host_inside(net: Net, address: str) -> None:
    for found in ([address], [PUBLIC, address]):
        net.names["ada.example"] = [found]
        with net.client("https://ada.example") as client:
            with pytest.raises(Unreachable, match="host has no public address") as error:
                ask(client)
            assert not error.value.sent
    assert net.connected == []
    assert net.slept == [], "it is not tried again"


@pytest.mark.parametrize(
    "origin",
    [
        "https://127.0.0.1",
        "https://[::1]",
        "https://localhost",
        "https://169.254.169.254",
        "http://ada.example",
        "https://ada.example:22",
        "https://93.184.215.14",
        "https://ada",
    ],
)
def test_o55_an_address_that_is_refused_by_its_form(net: Net, origin: str) -> None:
    net.names["ada.example"] = [[PUBLIC]]
    with net.client(origin) as client, pytest.raises(Unreachable) as error:
        ask(client)
    assert not error.value.sent
    assert (net.connected, net.looked_up) == ([], [])


def test_o55_a_name_that_means_something_else_the_second_time(net: Net) -> None:
    """What was checked is connected to: there is no look-up between. The next connection has a
    look-up and a check of its own."""
    net.names["ada.example"] = [[PUBLIC], ["127.0.0.1"]]
    closing = reply(
        b'{"records":[]}', headers="connection: close\r\n", media_type="application/json"
    )
    with peer(closing, tls("ada.example")) as net.peer, net.client("https://ada.example") as client:
        ask(client)
        assert net.looked_up == ["ada.example"]
        with pytest.raises(Unreachable, match="no public address"):
            ask(client)
    assert net.connected == [PUBLIC]


@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary", "308 Permanent"])
def test_o55_a_redirect_leads_nowhere(net: Net, status: str) -> None:
    net.names["ada.example"] = [[PUBLIC]]
    for target in ("http://127.0.0.1/", "http://169.254.169.254/", "https://other.example/"):
        answer = reply(status=status, headers=f"location: {target}\r\n")
        with peer(answer, tls("ada.example")) as net.peer, net.client("https://ada.example") as it:
            with pytest.raises(HostRefused):
                ask(it)
            assert len(net.peer.requests) == 1
    assert set(net.connected) == {PUBLIC}
    assert set(net.looked_up) == {"ada.example"}


def test_o55_a_document_without_end(net: Net) -> None:
    """Fifty megabytes where an error is to be read; no more than a piece of it is."""
    sent = 0

    def answer(connection: socket.socket, _: bytes) -> None:
        nonlocal sent
        head = b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\n"
        connection.sendall(head + b"content-length: 50000000\r\n\r\n")
        while sent < 50_000_000:
            connection.sendall(b" " * 100_000)
            sent += 100_000

    net.names["ada.example"] = [[PUBLIC]]
    with (
        peer(answer, tls("ada.example")) as net.peer,
        net.client("https://ada.example") as client,
        pytest.raises(HostRefused, match="status 400"),
    ):
        ask(client)
    assert sent < 50_000_000


def test_no_proxy_is_between(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    net.names["ada.example"] = [[PUBLIC]]
    with peer(OK, tls("ada.example")) as net.peer, net.client("https://ada.example") as client:
        ask(client)
    assert net.connected == [PUBLIC]


def test_a_certificate_for_another_name(net: Net) -> None:
    net.names["ada.example"] = [[PUBLIC]]
    with (
        peer(OK, tls("other.example")) as net.peer,
        net.client("https://ada.example") as client,
        pytest.raises(Unreachable, match="certificate is not valid") as error,
    ):
        ask(client)
    assert not error.value.sent
    assert net.peer.requests == []


def test_an_address_that_takes_no_connection(net: Net) -> None:
    net.names["ada.example"] = [[OTHER, PUBLIC]]
    net.refusing = {OTHER}
    with peer(OK, tls("ada.example")) as net.peer, net.client("https://ada.example") as client:
        ask(client)
    assert net.connected == [OTHER, PUBLIC]


def _no_time(name: str, timeout: float) -> list[IPv4Address | IPv6Address]:
    raise TimeoutError


def _nothing(name: str, timeout: float) -> list[IPv4Address | IPv6Address]:
    return []


@pytest.mark.parametrize(
    ("lookup", "words"), [(_no_time, "took too long"), (_nothing, "cannot be reached")]
)
def test_a_name_without_an_address(lookup: Callable[..., list], words: str) -> None:
    slept: list[float] = []
    with (
        Client("https://ada.example", transport=Checked(lookup=lookup), sleep=slept.append) as it,
        pytest.raises(Unreachable, match=words) as error,
    ):
        ask(it)
    assert not error.value.sent


@pytest.mark.parametrize("host", ["localhost", "mira.localhost", "127.0.0.1"])
def test_this_machine_in_development(host: str) -> None:
    with peer(OK) as local:
        origin = f"http://{host}:{local.port}"
        with Client(origin, transport=Checked(development=True)) as client:
            assert ask(client) == {"records": []}


def test_o55_inside_is_refused_in_development_too(net: Net) -> None:
    net.names["ada.example"] = [["10.0.0.5"]]
    for origin, words in (
        ("https://ada.example", "no public address"),
        ("http://ada.example", "not https"),
    ):
        client = net.client(origin, development=True)
        with client as it, pytest.raises(Unreachable, match=words):
            ask(it)
    assert net.connected == []


def test_a_large_body_is_sent_and_read(net: Net) -> None:
    """Over the same connection as what was before it."""
    body = json.dumps({"results": [], "more": "x" * 3_000_000}).encode()
    big = reply(body, media_type="application/json")
    net.names["ada.example"] = [[PUBLIC]]
    with peer(big, tls("ada.example")) as net.peer, net.client("https://ada.example") as client:
        sent = {**REPO, "writes": [], "more": "y" * 3_000_000}
        answer = client.procedure("com.atproto.space.applyWrites", sent)
        assert len(answer["more"]) == 3_000_000
        assert len(net.peer.requests[0]) > 3_000_000


def test_who_waits_is_broken_off_from_another_thread(net: Net) -> None:
    net.names["ada.example"] = [[PUBLIC]]
    asked, over = threading.Event(), threading.Event()

    def never(_connection: socket.socket, _: bytes) -> None:
        asked.set()
        over.wait(SECONDS)

    with (
        ThreadPoolExecutor(1) as pool,
        peer(never, tls("ada.example")) as net.peer,
        net.client("https://ada.example", tries=1, timeout=2 * SECONDS) as client,
    ):
        waiting = pool.submit(client.wait, LIST, REPO, 50)
        assert asked.wait(SECONDS)
        client.interrupt()
        with pytest.raises(Unreachable):
            waiting.result(SECONDS)
        with pytest.raises(Unreachable):  # nor does anybody wait afterwards
            client.wait(LIST, REPO, 50)
        over.set()
    assert b"\r\nprefer: wait=50\r\n" in net.peer.requests[0].lower()
