"""Fetching what others name: whatever they name, it leads nowhere inside and ends in time.

Peers are real sockets. Where the rules of production are tested, only the last step is bent:
a connection to a public address arrives at a peer on this machine.
"""

from __future__ import annotations

import gzip
import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.network import addresses
from lettaspace.network.addresses import is_loopback, is_public
from lettaspace.network.fetching import Busy, Fetcher
from lettaspace.network.targets import FetchError, parse
from tests.server.peers import Peer, peer, reply
from tests.waiting import SECONDS, until

PUBLIC = ip_address("93.184.215.14")
OTHER = ip_address("93.184.215.15")
SIXTH = ip_address("2606:2800:21f:cb07:6820:80da:af6b:8b2c")

INSIDE = [
    "127.0.0.1",
    "169.254.169.254",
    "10.0.0.5",
    "::ffff:127.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "0.0.0.0",
    "192.0.0.8",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "::ffff:10.0.0.5",
    "64:ff9b::10.0.0.5",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2002:5db8:d70e::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "100::1",
    "5f00::1",
]


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


@cache
def _trust() -> ssl.SSLContext:
    """Trusts that authority alone, where production trusts the public ones."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _authority().configure_trust(context)
    return context


class Net:
    """A public network: one TLS peer answers for every public address. It writes down where
    connections went, and lets none of another kind through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connected: list[str] = []
        self.looked_up: list[str] = []
        self.names: dict[str, list[str]] = {}
        self.peer: Peer | None = None
        self.refusing: set[str] = set()
        connect = socket.socket.connect

        def instead(sock: socket.socket, place: tuple[str, int]) -> None:
            self.connected.append(place[0])
            if self.peer is None or place[0] in self.refusing:
                raise ConnectionRefusedError
            connect(sock, ("127.0.0.1", self.peer.port))

        monkeypatch.setattr(socket.socket, "connect", instead)

    def lookup(self, name: str, timeout: float) -> list[IPv4Address | IPv6Address]:
        assert timeout > 0
        self.looked_up.append(name)
        return [ip_address(text) for text in self.names.get(name, [str(PUBLIC)])]

    def fetcher(self, **options: object) -> Fetcher:
        return Fetcher(trust=_trust(), **{"lookup": self.lookup} | options)

    def tls(self, *names: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _authority().issue_cert(*names).configure_cert(context)
        return context


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    return Net(monkeypatch)


@pytest.fixture
def serve(net: Net) -> Iterator[Callable[..., Peer]]:
    """Starts the peer that answers for the public network."""
    opened: list[Peer] = []

    def start(answer, *names: str) -> Peer:
        net.peer = Peer(answer, net.tls(*(names or ("host.example", "other.example"))))
        opened.append(net.peer)
        return net.peer

    yield start
    for each in opened:
        each.close()


def test_a_get_says_who_asks_and_nothing_else(
    net: Net, serve: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    peer = serve(reply(b"hello", headers="set-cookie: a=b\r\nX-Twice: 1\r\nx-twice: 2\r\n"))
    fetcher = net.fetcher()
    fetched = fetcher.get("https://HOST.example/a?b=%20c", headers={"authorization": "Bearer t"})
    assert (fetched.status, fetched.body, fetched.media_type) == (200, b"hello", "text/plain")
    assert fetched.url == "https://host.example/a?b=%20c"
    assert fetched.headers["x-twice"] == "1, 2"
    fetcher.get("https://host.example:8443")
    first, second = peer.requests
    line, *headers = first.decode().split("\r\n")
    assert line == "GET /a?b=%20c HTTP/1.1"
    named = dict(header.lower().split(": ") for header in headers if header)
    assert named.pop("user-agent").startswith("lettaspace/")
    assert named == {
        "host": "host.example",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
        "authorization": "bearer t",
    }
    assert second.startswith(b"GET / HTTP/1.1\r\n")
    assert b"\r\nhost: host.example:8443\r\n" in second
    assert b"cookie" not in second.lower()
    assert b"authorization" not in second.lower()


def test_a_post_sends_its_body(net: Net, serve: Callable[..., Peer]) -> None:
    peer = serve(reply(b"{}", status="202 Accepted", media_type="Application/JSON; charset=utf-8"))
    body = b'{"text": "%s"}' % (b"x" * 300_000)
    fetched = net.fetcher().post("https://host.example/xrpc/a.b.c", body)
    assert (fetched.status, fetched.media_type) == (202, "application/json")
    head, _, sent = peer.requests[0].partition(b"\r\n\r\n")
    assert sent == body
    assert head.startswith(b"POST /xrpc/a.b.c HTTP/1.1\r\n")
    assert b"\r\ncontent-type: application/json\r\n" in head + b"\r\n"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host.example",
        "http://host.example/",
        "ftp://host.example/",
        "file:///etc/passwd",
        "https:///path",
        "https://user@host.example/",
        "https://user:secret@host.example/",
        "https://host.example@10.0.0.5/",
        "https://host.example\\@10.0.0.5/",
        "https://host.example/a\\b",
        "https://host.example/a b",
        "https://host.example/\r\nx: y",
        "https://host.example/\n",
        "https://host.example/é",
        "https://hóst.example/",
        "https://host.example/#part",
        "https://host.example:0/",
        "https://host.example:22/",
        "https://host.example:80/",
        "https://host.example:65536/",
        "https://host.example:/",
        "https://host.example:٤٤٣/",
        "https://%68ost.example/",
        "https://host.example./",
        "https://host..example/",
        "https://-host.example/",
        "https://host/",
        "https://localhost/",
        "http://localhost:2583/",
        "https://127.0.0.1/",
        "https://93.184.215.14/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.0.0.0x1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[fe80::1%25eth0]/",
        "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/",
        "https://host.example/" + "a" * 2048,
    ],
)
def test_o55_addresses_refused_by_their_form(net: Net, url: str) -> None:
    with pytest.raises(FetchError) as caught:
        net.fetcher().get(url)
    assert not caught.value.transient
    assert net.connected == net.looked_up == []


@pytest.mark.parametrize("text", INSIDE)
def test_o55_a_name_for_an_inner_address_is_refused(net: Net, text: str) -> None:
    net.names = {"host.example": [text], "mixed.example": [str(PUBLIC), text]}
    for name in net.names:
        with pytest.raises(FetchError, match=r"^host has no public address$"):
            net.fetcher().get(f"https://{name}/.well-known/did.json")
    assert net.connected == []


def test_an_unknown_name_reads_like_an_inner_one(net: Net) -> None:
    net.names = {"host.example": [], "inner.example": ["10.0.0.5"]}
    messages = []
    for name in net.names:
        with pytest.raises(FetchError) as caught:
            net.fetcher().get(f"https://{name}/")
        messages.append((str(caught.value), caught.value.transient))
    assert messages == [("host has no public address", True), ("host has no public address", False)]


@pytest.mark.parametrize(
    "location",
    [
        "https://inner.example/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "//10.0.0.5/",
        "http://host.example/",
        "https://[::ffff:127.0.0.1]/",
        "https://[",
        "https://user:pass@other.example/",
        "https://other.example:22/",
        "file:///etc/passwd",
    ],
)
def test_o55_a_redirect_is_checked_like_the_first_address(
    net: Net, serve: Callable[..., Peer], location: str
) -> None:
    peer = serve(reply(status="302 Found", headers=f"location: {location}\r\n"))
    net.names = {"inner.example": ["10.0.0.5"]}
    with pytest.raises(FetchError):
        net.fetcher().get("https://host.example/", redirects=5)
    assert net.connected == [str(PUBLIC)]
    assert len(peer.requests) == 1


def test_o55_the_address_that_was_checked_is_the_one_connected_to(
    net: Net, serve: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name leads inside at its second look-up; there is none."""
    answers = iter([str(PUBLIC), "127.0.0.1", "10.0.0.5"])
    asked = []

    def getaddrinfo(name: str, *rest: object, **options: object) -> list[tuple]:
        asked.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    serve(reply(b"hello"))
    fetcher = net.fetcher(lookup=addresses.lookup)
    assert fetcher.get("https://host.example/").body == b"hello"
    assert (asked, net.connected) == (["host.example"], [str(PUBLIC)])
    with pytest.raises(FetchError, match="no public address"):
        fetcher.get("https://host.example/")
    assert net.connected == [str(PUBLIC)]


def test_o55_each_hop_has_its_own_look_up(net: Net, serve: Callable[..., Peer]) -> None:
    serve(reply(status="307 Temporary Redirect", headers="location: /again\r\n"))
    answers = iter([[PUBLIC], [ip_address("127.0.0.1")]])
    fetcher = net.fetcher(lookup=lambda *_: next(answers))
    with pytest.raises(FetchError, match="no public address"):
        fetcher.get("https://host.example/", redirects=3)
    assert net.connected == [str(PUBLIC)]


def test_o55_no_credential_follows_a_redirect(net: Net, serve: Callable[..., Peer]) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        moved = reply(
            status="308 Permanent Redirect", headers="location: https://other.example\r\n"
        )
        (reply(b"there") if b"host: other.example" in request else moved)(connection, request)

    peer = serve(answer)
    fetched = net.fetcher().get(
        "https://host.example/", headers={"Authorization": "Bearer secret"}, redirects=1
    )
    assert (fetched.body, fetched.url) == (b"there", "https://other.example/")
    assert [b"secret" in request for request in peer.requests] == [True, False]
    posted = net.fetcher().post(
        "https://host.example/", b"{}", headers={"authorization": "Bearer secret"}
    )
    assert posted.status == 308
    assert len(peer.requests) == 3


def test_redirects_end(net: Net, serve: Callable[..., Peer]) -> None:
    peer = serve(reply(status="301 Moved", headers="location: /loop#part\r\n"))
    fetcher = net.fetcher()
    assert fetcher.get("https://host.example/loop").status == 301
    assert len(peer.requests) == 1
    with pytest.raises(FetchError, match="redirected too often"):
        fetcher.get("https://host.example/loop", redirects=3)
    assert len(peer.requests) == 5


def test_a_redirect_to_nowhere_is_an_answer(net: Net, serve: Callable[..., Peer]) -> None:
    serve(reply(b"gone", status="302 Found"))
    assert net.fetcher().get("https://host.example/", redirects=2).body == b"gone"


def test_the_next_address_is_tried(net: Net, serve: Callable[..., Peer]) -> None:
    serve(reply(b"hello"))
    net.names = {"host.example": [str(SIXTH), str(PUBLIC), str(OTHER)]}
    net.refusing = {str(SIXTH), str(PUBLIC)}
    assert net.fetcher().get("https://host.example/").body == b"hello"
    assert net.connected == [str(SIXTH), str(PUBLIC), str(OTHER)]
    net.refusing.add(str(OTHER))
    with pytest.raises(FetchError, match=r"^connection failed$") as caught:
        net.fetcher().get("https://host.example/")
    assert caught.value.transient


class TestEncryption:
    def test_is_for_the_name(self, net: Net) -> None:
        names = []
        context = net.tls("host.example")
        context.sni_callback = lambda _, name, __: names.append(name)
        with peer(reply(b"hello"), context) as net.peer:
            assert net.fetcher().get("https://host.example/").body == b"hello"
        assert names == ["host.example"]

    def test_another_name_is_refused(self, net: Net, serve: Callable[..., Peer]) -> None:
        asked = serve(reply(b"hello"), "elsewhere.example", str(PUBLIC))
        with pytest.raises(FetchError, match=r"^certificate is not valid$"):
            net.fetcher().get("https://host.example/")
        assert asked.requests in ([], [b""])

    def test_an_unknown_authority_is_refused(self, net: Net, serve: Callable[..., Peer]) -> None:
        asked = serve(reply(b"hello"), "host.example")
        with pytest.raises(FetchError, match=r"^certificate is not valid$"):
            Fetcher(lookup=net.lookup).get("https://host.example/")
        assert asked.requests in ([], [b""])

    def test_a_host_without_any_is_refused(self, net: Net) -> None:
        with peer(reply(b"hello")) as net.peer, pytest.raises(FetchError, match="failed"):
            net.fetcher().get("https://host.example/")


class TestSize:
    def test_o55_a_document_of_50_megabytes(self, net: Net, serve: Callable[..., Peer]) -> None:
        sent = []
        done = threading.Event()

        def answer(connection: socket.socket, _: bytes) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                for _ in range(50):
                    connection.sendall(b"x" * 1_000_000)
                    sent.append(1)
            finally:
                done.set()

        serve(answer)
        with pytest.raises(FetchError, match=r"^answer is too large$") as caught:
            net.fetcher().get("https://host.example/")
        assert not caught.value.transient
        assert done.wait(SECONDS)
        assert len(sent) < 50

    def test_the_limit_is_exact(self, net: Net, serve: Callable[..., Peer]) -> None:
        serve(reply(b"x" * 1000))
        assert len(net.fetcher().get("https://host.example/", limit=1000).body) == 1000
        with pytest.raises(FetchError, match="too large"):
            net.fetcher().get("https://host.example/", limit=999)

    @pytest.mark.parametrize(
        "start",
        [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b""],
        ids=["headers", "chunk sizes", "interim answers"],
    )
    def test_what_is_no_body_has_a_limit_too(
        self, net: Net, serve: Callable[..., Peer], start: bytes
    ) -> None:
        line = b"HTTP/1.1 103 Early Hints\r\n\r\n"
        if start:
            line = b"1;" + b"x" * 90 + b"\r\nx\r\n" if b"chunked" in start else b"a: b\r\n"

        def answer(connection: socket.socket, _: bytes) -> None:
            connection.sendall(start)
            while True:
                connection.sendall(line * 500)

        serve(answer)
        with pytest.raises(FetchError, match=r"too large|not HTTP"):
            net.fetcher().get("https://host.example/", patience=SECONDS)

    def test_what_is_compressed_is_not_unpacked(self, net: Net, serve: Callable[..., Peer]) -> None:
        serve(reply(gzip.compress(b"0" * 1_000_000), headers="content-encoding: gzip\r\n"))
        with pytest.raises(FetchError, match="compressed"):
            net.fetcher().get("https://host.example/")


class TestTime:
    """Each of these peers would go on for much longer."""

    @pytest.mark.parametrize(
        ("start", "drop"),
        [
            (b"", b""),
            (b"", b"H"),
            (b"HTTP/1.1 200 OK\r\na: ", b"b"),
            (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        ],
        ids=["silent", "status", "header", "body"],
    )
    def test_drop_by_drop(
        self, net: Net, serve: Callable[..., Peer], start: bytes, drop: bytes
    ) -> None:
        gone = threading.Event()

        def answer(connection: socket.socket, _: bytes) -> None:
            try:
                connection.sendall(start)
                while not gone.wait(0.01):
                    connection.sendall(drop)
            finally:
                gone.set()

        serve(answer)
        with pytest.raises(FetchError, match=r"^took too long$") as caught:
            net.fetcher().get("https://host.example/", patience=0.3)
        assert caught.value.transient
        gone.set()

    def test_a_handshake_that_does_not_come(self, net: Net) -> None:
        hold = threading.Event()
        with peer(lambda *_: hold.wait(SECONDS)) as net.peer:
            with pytest.raises(FetchError, match="took too long"):
                net.fetcher().get("https://host.example/", patience=0.2)
            hold.set()

    def test_a_body_that_nobody_takes(self, net: Net) -> None:
        hold = threading.Event()

        class Deaf(Peer):
            def _serve(self, connection: socket.socket) -> None:
                with net.tls("host.example").wrap_socket(connection, server_side=True):
                    hold.wait(SECONDS)

        net.peer = deaf = Deaf(reply())
        with pytest.raises(FetchError, match="took too long"):
            net.fetcher().post("https://host.example/", b"x" * 30_000_000, patience=0.5)
        hold.set()
        deaf.close()

    def test_all_hops_share_it(self, net: Net, serve: Callable[..., Peer]) -> None:
        serve(reply(status="302 Found", headers="location: /\r\n"))
        with pytest.raises(FetchError, match="took too long"):
            net.fetcher().get("https://host.example/", redirects=10**4, patience=0.3)

    def test_a_look_up(self, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
        hold = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hold.wait(SECONDS) and [])
        with pytest.raises(FetchError, match="took too long"):
            net.fetcher(lookup=addresses.lookup, patience=0.05).get("https://host.example/")
        hold.set()


class TestHowManyAtOnce:
    @pytest.fixture
    def held(self, serve: Callable[..., Peer]) -> Iterator[tuple[Peer, threading.Event]]:
        """A peer that answers when it may."""
        go = threading.Event()

        def answer(connection: socket.socket, request: bytes) -> None:
            go.wait(SECONDS)
            reply(b"hello")(connection, request)

        yield serve(answer), go
        go.set()

    def test_at_one_host(self, net: Net, held: tuple[Peer, threading.Event]) -> None:
        asked, go = held
        fetcher = net.fetcher(at_once=1, patience=SECONDS)
        results: list[bytes] = []
        first = threading.Thread(
            target=lambda: results.append(fetcher.get("https://host.example/").body)
        )
        first.start()
        until(lambda: asked.requests)
        with pytest.raises(FetchError, match="took too long"):
            fetcher.get("https://host.example/", patience=0.05)
        assert len(asked.requests) == 1
        second = threading.Thread(
            target=lambda: results.append(fetcher.get("https://other.example/").body)
        )
        second.start()
        until(lambda: len(asked.requests) == 2)
        third = threading.Thread(
            target=lambda: results.append(fetcher.get("https://host.example/").body)
        )
        third.start()
        go.set()
        for thread in (first, second, third):
            thread.join(SECONDS)
        assert results == [b"hello"] * 3

    def test_in_all(self, net: Net, held: tuple[Peer, threading.Event]) -> None:
        asked, go = held
        fetcher = net.fetcher(total=1, patience=SECONDS)
        results: list[bytes] = []
        thread = threading.Thread(
            target=lambda: results.append(fetcher.get("https://host.example/").body)
        )
        thread.start()
        until(lambda: asked.requests)
        for _ in range(2):
            with pytest.raises(Busy) as caught:
                fetcher.get("https://other.example/")
            assert caught.value.transient
        go.set()
        thread.join(SECONDS)
        assert results == [b"hello"]
        with fetcher.place(), pytest.raises(Busy):
            fetcher.get("https://other.example/")
        assert fetcher.get("https://other.example/").body == b"hello"


class TestJson:
    @pytest.mark.parametrize("media_type", ["application/json", "application/did+ld+json; a=b"])
    def test_is_read(self, net: Net, serve: Callable[..., Peer], media_type: str) -> None:
        serve(reply(b'{"a": [1]}', media_type=media_type))
        assert net.fetcher().get_json("https://host.example/") == {"a": [1]}

    @pytest.mark.parametrize(
        ("body", "media_type", "reason"),
        [
            (b"{}", "text/html", "does not claim"),
            (b"{}", "application/jsonx", "does not claim"),
            (b"<p>", "application/json", "is not JSON"),
            (b"\xff{}", "application/json", "is not JSON"),
            (b"[" * 50_000, "application/json", "is not JSON"),
            (b"1" * 50_000, "application/json", "is not JSON"),
            (b"", "application/json", "is not JSON"),
        ],
    )
    def test_is_refused(
        self, net: Net, serve: Callable[..., Peer], body: bytes, media_type: str, reason: str
    ) -> None:
        serve(reply(body, media_type=media_type))
        with pytest.raises(FetchError, match=reason) as caught:
            net.fetcher().get_json("https://host.example/")
        assert not caught.value.transient

    @pytest.mark.parametrize(("status", "transient"), [(404, False), (503, True), (302, False)])
    def test_other_statuses(
        self, net: Net, serve: Callable[..., Peer], status: int, transient: bool
    ) -> None:
        serve(reply(b"{}", status=f"{status} X", media_type="application/json"))
        with pytest.raises(FetchError) as caught:
            net.fetcher().get_json("https://host.example/")
        assert (caught.value.status, caught.value.transient) == (status, transient)


@pytest.mark.parametrize(
    "answer", [b"", b"\x00\x01\x02\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"]
)
def test_what_is_not_http(net: Net, serve: Callable[..., Peer], answer: bytes) -> None:
    serve(lambda connection, _: connection.sendall(answer))
    with pytest.raises(FetchError, match="not HTTP") as caught:
        net.fetcher().get("https://host.example/")
    assert caught.value.transient


class TestDevelopment:
    @pytest.mark.parametrize("host", ["localhost", "ada.localhost", "127.0.0.1", "LOCALHOST"])
    def test_o55_loopback_only_behind_the_switch(self, host: str) -> None:
        with peer(reply(b"hello")) as local:
            url = f"http://{host}:{local.port}/"
            assert Fetcher(development=True).get(url).body == b"hello"
            with pytest.raises(FetchError):
                Fetcher().get(url)
            assert len(local.requests) == 1

    def test_a_name_for_loopback(self) -> None:
        with peer(reply(b"hello")) as local:
            loopback = [ip_address("127.0.0.1")]
            fetcher = Fetcher(development=True, lookup=lambda *_: loopback)
            with pytest.raises(FetchError, match="connection failed"):  # the peer has no TLS
                fetcher.get(f"https://host.example:{local.port}/")
            with pytest.raises(FetchError, match="no public address"):
                Fetcher(lookup=lambda *_: loopback).get("https://host.example/")

    @pytest.mark.parametrize("text", [text for text in INSIDE if not is_loopback(ip_address(text))])
    def test_o55_nothing_else_inside(self, net: Net, text: str) -> None:
        net.names = {"host.example": [text]}
        host = f"[{text}]" if ":" in text else text
        for url in (f"http://{host}/", f"https://{host}/", "https://host.example/"):
            with pytest.raises(FetchError):
                net.fetcher(development=True).get(url)
        assert net.connected == []

    @pytest.mark.parametrize(
        "url",
        [
            "http://host.example/",
            "https://host.example:22/",
            "http://localhost:0/",
            "http://..localhost/",
        ],
    )
    def test_the_other_rules_stay(self, net: Net, url: str) -> None:
        with pytest.raises(FetchError):
            net.fetcher(development=True).get(url)
        assert net.connected == []

    def test_a_redirect_may_not_lead_there_outside_of_it(
        self, net: Net, serve: Callable[..., Peer]
    ) -> None:
        serve(reply(status="302 Found", headers="location: http://localhost:8080/\r\n"))
        with pytest.raises(FetchError, match="not https"):
            net.fetcher().get("https://host.example/", redirects=1)


def _forms(address: IPv4Address) -> list[str]:
    """The ways in which C libraries and browsers read an IPv4 address."""
    number = int(address)
    a, b, c, d = address.packed
    mapped = IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
    return [
        str(address),
        str(number),
        hex(number),
        f"0{number:o}",
        f"{a}.{number & 0xFFFFFF}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a:#x}.{b}.{(c << 8) + d}",
        f"{address}.",
        f"[{mapped}]",
        f"[{mapped.exploded}]",
        f"[::ffff:{address}]",
        f"[::{address}]",
        f"[64:ff9b::{address}]",
    ]


_v4 = st.ip_addresses(v=4) | st.sampled_from(
    [ip_address(text) for text in INSIDE if ":" not in text]
)
_v6 = st.ip_addresses(v=6) | st.sampled_from([ip_address(text) for text in INSIDE if ":" in text])


class TestAddresses:
    @given(_v4, st.sampled_from(["https", "http"]), st.sampled_from(["", ":443", ":8080"]))
    def test_o55_no_literal_is_ever_fetched(
        self, address: IPv4Address, scheme: str, port: str
    ) -> None:
        for form in _forms(address):
            with pytest.raises(FetchError):
                parse(f"{scheme}://{form}{port}/")

    @given(_v4 | _v6)
    def test_o55_in_development_no_literal_but_loopback(
        self, address: IPv4Address | IPv6Address
    ) -> None:
        forms = _forms(address) if address.version == 4 else [f"[{address}]"]
        for form in forms:
            try:
                target = parse(f"http://{form}/", development=True)
            except FetchError:
                continue
            assert is_loopback(ip_address(target.host.strip("[]")))

    @given(_v4 | _v6)
    def test_public_is_never_more_than_what_the_registries_say(
        self, address: IPv4Address | IPv6Address
    ) -> None:
        plain = addresses.meant(address)
        if is_public(address):
            assert plain.is_global
            assert not plain.is_multicast
            assert not plain.is_private
            assert not plain.is_link_local
            assert not plain.is_reserved

    @given(st.lists(_v4 | _v6, max_size=4))
    def test_o55_one_inner_address_spoils_all(self, found: list[IPv4Address | IPv6Address]) -> None:
        fetcher = Fetcher(trust=_trust(), lookup=lambda *_: found)
        target = parse("https://host.example/")
        if found and all(map(is_public, found)):
            assert fetcher._addresses(target, math.inf) == found
        else:
            with pytest.raises(FetchError):
                fetcher._addresses(target, math.inf)

    @pytest.mark.parametrize(
        "text",
        ["1.1.1.1", "93.184.215.14", "172.32.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255",
         "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::1.1.1.1"],
    )  # fmt: skip
    def test_public_ones(self, text: str) -> None:
        assert is_public(ip_address(text))

    @pytest.mark.parametrize("text", INSIDE)
    def test_inner_ones(self, text: str) -> None:
        assert not is_public(ip_address(text))

    def test_a_name_that_there_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")

        monkeypatch.setattr(socket, "getaddrinfo", fail)
        assert addresses.lookup("host.example", 5) == []
