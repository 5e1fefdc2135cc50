"""Who a DID is: what is asked, how often, and what comes of it when others fail."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from ipaddress import ip_address
from typing import Any

import dns.message
import dns.rdatatype
import dns.resolver
import pytest

from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.network import handles
from lettaspace.network.didweb import document
from lettaspace.network.documents import MAX_DOCUMENT
from lettaspace.network.fetching import Busy, Fetched, Fetcher
from lettaspace.network.identity import IdentityError, Resolver
from lettaspace.network.targets import FetchError
from tests.server.peers import peer, reply
from tests.waiting import SECONDS

ADA = "did:web:ada.example"
ADA_URL = "https://ada.example/.well-known/did.json"
PLC = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
ORIGIN = "https://host.example"


def key(number: int) -> VerifyingKey:
    return SigningKey.from_bytes("p256", bytes([number]) * 32).verifying_key


class Web:
    """In the fetcher's place: pages by address, and a list of what was asked for."""

    development = False
    trusted = None
    place = nullcontext

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.asked: list[str] = []

    def get_json(self, url: str, *, limit: int, patience: float) -> Any:
        assert limit == MAX_DOCUMENT
        assert patience <= 10
        self.asked.append(url)
        page = self.pages.get(url, FetchError("answered with status 404", status=404))
        if isinstance(page, Exception):
            raise page
        return page

    def get(self, url: str, **_: Any) -> Fetched:
        self.asked.append(url)
        return self.pages[url]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def web() -> Web:
    web = Web()
    web.pages[ADA_URL] = document(ADA, ORIGIN, key(1))
    return web


@pytest.fixture
def clock() -> Clock:
    return Clock()


def resolver(web: Web, clock: Clock, **options: Any) -> Resolver:
    return Resolver(web, clock=clock, **options)  # type: ignore[arg-type]


def test_a_did_web(web: Web, clock: Clock) -> None:
    found = resolver(web, clock)
    assert found.key(ADA, "#atproto") == key(1)
    assert found.space_host(ADA) == ORIGIN
    assert found.service(ADA, "#atproto_pds") == ORIGIN
    for ask in (lambda: found.key(ADA, "#atproto_space"), lambda: found.service(ADA, "#notify")):
        with pytest.raises(IdentityError, match="no ") as caught:
            ask()
        assert not caught.value.transient
    assert web.asked == [ADA_URL]


def test_a_did_plc(web: Web, clock: Clock) -> None:
    web.pages[f"https://plc.example/{PLC}"] = document(PLC, ORIGIN, key(2))
    found = resolver(web, clock, plc="https://plc.example/")
    assert found.key(PLC, "#atproto") == key(2)


def test_a_did_key_is_its_own_key(web: Web, clock: Clock) -> None:
    found = resolver(web, clock)
    did = key(3).did
    assert found.key(did, "#atproto") == key(3)
    for ask in (
        lambda: found.key(did, "#atproto_space"),
        lambda: found.key(did + "x", "#atproto"),
        lambda: found.space_host(did),
    ):
        with pytest.raises(IdentityError):
            ask()
    assert web.asked == []


@pytest.mark.parametrize(
    "did",
    [
        "",
        "ada.example",
        "did:web:ada.example:path",
        "did:web:ada.example#atproto",
        "did:web:ada.example/",
        "did:plc:short",
        "did:plc:EWVI7NXZYOUN6ZHXRHS64OIZ",
        "did:plc:ewvi7nxzyoun6zhxrhs64oiz/log",
        "did:ion:abc",
        "did:web:" + "a" * 3000,
    ],
)
def test_what_is_never_asked_for(web: Web, clock: Clock, did: str) -> None:
    with pytest.raises(IdentityError) as caught:
        resolver(web, clock).key(did, "#atproto")
    assert not caught.value.transient
    assert web.asked == []


@pytest.mark.parametrize("page", [[], {"id": "did:web:eve.example"}, {"id": ADA, "service": 1}])
def test_a_document_that_is_none(web: Web, clock: Clock, page: Any) -> None:
    web.pages[ADA_URL] = page
    with pytest.raises(IdentityError, match="DID document"):
        resolver(web, clock).document(ADA)


def test_an_account_of_this_host_is_not_asked_for(web: Web, clock: Clock) -> None:
    keys = {ADA: key(4), PLC: key(5)}
    found = resolver(
        web,
        clock,
        local=lambda did: document(did, ORIGIN, keys[did]) if did in keys else None,
    )
    assert found.key(ADA, "#atproto") == key(4)
    assert found.space_host(PLC) == ORIGIN
    keys[ADA] = key(6)
    assert found.key(ADA, "#atproto") == key(6)
    assert web.asked == []


class TestKeeping:
    def test_for_a_while(self, web: Web, clock: Clock) -> None:
        found = resolver(web, clock, ttl=300)
        found.document(ADA)
        web.pages[ADA_URL] = document(ADA, ORIGIN, key(2))
        clock.now += 299
        assert found.key(ADA, "#atproto") == key(1)
        clock.now += 1
        assert found.key(ADA, "#atproto") == key(2)
        assert len(web.asked) == 2

    def test_a_new_key_is_seen_at_once_when_the_old_one_does_not_fit(
        self, web: Web, clock: Clock
    ) -> None:
        found = resolver(web, clock, rest=10)
        found.document(ADA)
        web.pages[ADA_URL] = document(ADA, ORIGIN, key(2))
        clock.now += 10
        assert found.key(ADA, "#atproto", refresh=True) == key(2)

    def test_bad_signatures_do_not_make_it_ask_again_and_again(
        self, web: Web, clock: Clock
    ) -> None:
        found = resolver(web, clock, rest=10, ttl=300)
        for _ in range(100):
            found.key(ADA, "#atproto", refresh=True)
            clock.now += 1
        assert len(web.asked) == 10

    def test_failures_for_a_short_while(self, web: Web, clock: Clock) -> None:
        page = web.pages.pop(ADA_URL)
        found = resolver(web, clock, absent=15)
        for refresh in (False, True, False):
            with pytest.raises(IdentityError, match="404"):
                found.document(ADA, refresh=refresh)
        assert len(web.asked) == 1
        web.pages[ADA_URL] = page
        clock.now += 15
        assert found.key(ADA, "#atproto") == key(1)

    def test_being_busy_is_no_failure_of_the_other_side(self, web: Web, clock: Clock) -> None:
        page = web.pages[ADA_URL]
        web.pages[ADA_URL] = Busy()
        found = resolver(web, clock)
        with pytest.raises(IdentityError) as caught:
            found.document(ADA)
        assert caught.value.transient
        web.pages[ADA_URL] = page
        assert found.key(ADA, "#atproto") == key(1)

    def test_a_refresh_that_fails(self, web: Web, clock: Clock) -> None:
        found = resolver(web, clock, rest=10, absent=15)
        found.document(ADA)
        clock.now += 10
        web.pages[ADA_URL] = FetchError("took too long", transient=True)
        for _ in range(2):
            with pytest.raises(IdentityError, match="too long") as caught:
                found.key(ADA, "#atproto", refresh=True)
            assert caught.value.transient
        assert len(web.asked) == 2
        assert found.key(ADA, "#atproto") == key(1)  # it is not known to be wrong
        clock.now += 15
        del web.pages[ADA_URL]
        with pytest.raises(IdentityError):
            found.key(ADA, "#atproto", refresh=True)
        with pytest.raises(IdentityError, match="404"):
            found.key(ADA, "#atproto")

    def test_not_too_much(self, web: Web, clock: Clock) -> None:
        found = resolver(web, clock, size=2)
        for name in "abc":
            did = f"did:web:{name}.example"
            web.pages[f"https://{name}.example/.well-known/did.json"] = document(
                did, ORIGIN, key(1)
            )
        for name in "aabaca":  # a is always the last but one
            found.document(f"did:web:{name}.example")
        assert len(web.asked) == 3
        for number in range(5):
            with pytest.raises(IdentityError):
                found.document(f"did:web:{number}.absent.example")
        found.document("did:web:a.example")
        assert len(web.asked) == 8
        found.document("did:web:b.example")
        assert len(web.asked) == 9


class TestAtTheSameTime:
    @pytest.mark.parametrize("fails", [False, True])
    def test_one_asks_for_all(self, web: Web, clock: Clock, fails: bool) -> None:
        go, begun = threading.Event(), threading.Event()
        page = web.pages[ADA_URL]

        def slow(url: str, **_: Any) -> Any:
            web.asked.append(url)
            begun.set()
            go.wait(SECONDS)
            if fails:
                raise FetchError("took too long", transient=True)
            return page

        web.get_json = slow  # type: ignore[method-assign]
        found = resolver(web, clock)

        def ask() -> object:
            try:
                return found.key(ADA, "#atproto")
            except IdentityError as error:
                return str(error)

        with ThreadPoolExecutor(8) as pool:
            results = [pool.submit(ask) for _ in range(8)]
            assert begun.wait(SECONDS)
            go.set()
            expected = "took too long" if fails else key(1)
            assert [result.result(30) for result in results] == [expected] * 8
        assert web.asked == [ADA_URL]

    def test_who_waits_counts_as_fetching(self, web: Web, clock: Clock) -> None:
        go, begun = threading.Event(), threading.Event()

        def slow(_: str, **__: Any) -> Any:
            begun.set()
            go.wait(SECONDS)
            return document(ADA, ORIGIN, key(1))

        def busy() -> None:
            raise Busy

        web.get_json = slow  # type: ignore[method-assign]
        web.place = busy  # type: ignore[assignment]
        found = resolver(web, clock)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(found.key, ADA, "#atproto")
            assert begun.wait(SECONDS)
            with pytest.raises(IdentityError, match="at once") as caught:
                found.key(ADA, "#atproto")
            assert caught.value.transient
            go.set()
            assert result.result(30) == key(1)

    def test_what_nobody_foresaw_leaves_nobody_waiting(self, web: Web, clock: Clock) -> None:
        web.pages[ADA_URL] = ZeroDivisionError()
        found = resolver(web, clock)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                found.document(ADA)
        assert len(web.asked) == 2


class TestHandles:
    def fetched(self, body: bytes, status: int = 200) -> Fetched:
        return Fetched("https://ada.example/.well-known/atproto-did", status, {}, body)

    def test_by_dns(self, web: Web, clock: Clock) -> None:
        asked = []

        def texts(name: str, timeout: float) -> list[str]:
            assert timeout > 0
            asked.append(name)
            return ["v=spf1 -all", f"did={PLC}", f"did={PLC}"]

        assert resolver(web, clock, texts=texts).resolve_handle("Ada.Example") == PLC
        assert asked == ["_atproto.ada.example"]
        assert web.asked == []

    @pytest.mark.parametrize(
        "records", [[], ["x"], ["did="], ["did=nobody"], [f"did={PLC}", f"did={ADA}"]]
    )
    def test_else_by_https(self, web: Web, clock: Clock, records: list[str]) -> None:
        url = "https://ada.example/.well-known/atproto-did"
        web.pages[url] = self.fetched(ADA.encode() + b"\n")
        found = resolver(web, clock, texts=lambda *_: records)
        assert found.resolve_handle("ada.example") == ADA
        assert web.asked == [url]

    @pytest.mark.parametrize(
        ("body", "status"), [(b"", 200), (b"<html>", 200), (b"\xff", 200), (ADA.encode(), 404)]
    )
    def test_or_not_at_all(self, web: Web, clock: Clock, body: bytes, status: int) -> None:
        web.pages["https://ada.example/.well-known/atproto-did"] = self.fetched(body, status)
        with pytest.raises(IdentityError, match="no DID"):
            resolver(web, clock, texts=lambda *_: []).resolve_handle("ada.example")

    @pytest.mark.parametrize("handle", ["", "ada", "ada.example/x", "10.0.0.5", ADA])
    def test_what_is_no_handle(self, web: Web, clock: Clock, handle: str) -> None:
        with pytest.raises(IdentityError, match="not a handle"):
            resolver(web, clock, texts=lambda *_: [f"did={PLC}"]).resolve_handle(handle)

    def test_records_are_put_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = f"""id 1
opcode QUERY
rcode NOERROR
flags QR RD RA
;QUESTION
_atproto.ada.example. IN TXT
;ANSWER
_atproto.ada.example. 60 IN TXT "did=did:plc:ewvi7nxz" "{PLC[16:]}"
_atproto.ada.example. 60 IN TXT "other"
"""

        class Server:
            def resolve(self, name: str, kind: int, *, lifetime: float, search: bool) -> Any:
                assert name == "_atproto.ada.example"
                assert not search
                assert lifetime == 2.0
                message = dns.message.from_text(text)
                return dns.resolver.Answer(message.question[0].name, kind, 1, message)

        monkeypatch.setattr(handles, "_resolver", Server)
        assert sorted(handles.texts("_atproto.ada.example", 2.0)) == [f"did={PLC}", "other"]

    def test_name_servers_that_do_not_know(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise dns.resolver.LifetimeTimeout(timeout=1.0, errors=[])

        monkeypatch.setattr(dns.resolver.Resolver, "resolve", fail)
        assert handles.texts("_atproto.ada.example", 1.0) == []


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "169.254.169.254", "10.0.0.5", "::ffff:127.0.0.1", "fd00::1"]
)
def test_o55_a_did_does_not_lead_inside(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def connect(*_: Any) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(socket.socket, "connect", connect)
    found = Resolver(Fetcher(lookup=lambda *_: [ip_address(text)]), texts=lambda *_: [])
    for ask in (
        lambda: found.key("did:web:inner.example", "#atproto"),
        lambda: found.space_host("did:web:inner.example%3A8443"),
        lambda: found.resolve_handle("inner.example"),
    ):
        with pytest.raises(IdentityError, match="no public address"):
            ask()


def test_over_sockets() -> None:
    """All of it, on this machine: a document that is fetched, and one that is too large."""
    pages: dict[str, Any] = {}

    def answer(connection: Any, request: bytes) -> None:
        name = request.partition(b"host: ")[2].partition(b"\r\n")[0].decode()
        body = json.dumps(pages[name]).encode()
        reply(body, media_type="application/did+json")(connection, request)

    with peer(answer) as local:
        for name in ("localhost", "large.localhost"):
            did = f"did:web:{name}%3A{local.port}"
            origin = f"http://localhost:{local.port}"
            pages[f"{name}:{local.port}"] = document(did, origin, key(1))
        found = Resolver(Fetcher(development=True))
        assert found.key(f"did:web:localhost%3A{local.port}", "#atproto") == key(1)
        assert found.space_host(f"did:web:localhost%3A{local.port}") == origin
        pages[f"large.localhost:{local.port}"]["more"] = "x" * MAX_DOCUMENT
        with pytest.raises(IdentityError, match="too large"):
            found.document(did)
        assert len(local.requests) == 2
        with pytest.raises(IdentityError, match="not a domain name"):
            Resolver(Fetcher()).document(f"did:web:localhost%3A{local.port}")
