"""What a host serves beside its methods."""

from __future__ import annotations

import pytest

from lettaspace import __version__
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import StoreUnavailable
from lettaspace.network.documents import PDS, PDS_TYPE, Document
from lettaspace.network.identity import IdentityError
from tests.server.hosts import PASSWORD, Server


def test_the_hosts_own_document(server: Server) -> None:
    answer = server.client.get("/.well-known/did.json")
    assert answer.headers["access-control-allow-origin"] == "*"
    config = server.host.config
    document = Document.read(answer.json(), config.did)
    assert document.key("#atproto") == server.host.key.verifying_key
    assert document.space_host(development=True) == config.origin
    assert document.handles == ()


def test_an_accounts_document(server: Server) -> None:
    account = server.add_account()
    netloc = f"mira.localhost:{server.host.config.origin.rpartition(':')[2]}"
    for name in (netloc, netloc.upper()):
        answer = server.client.get("/.well-known/did.json", headers={"host": name})
        document = Document.read(answer.json(), account.did)
        key = server.host.accounts.signing_key(account.did).verifying_key
        assert document.key("#atproto") == key
        assert document.endpoint(PDS, PDS_TYPE, development=True) == server.host.config.origin
        assert document.handles == ("mira.localhost",)
    # The host itself asks nobody for it.
    assert server.host.identity.key(account.did, "#atproto") == key


def test_an_account_with_the_hosts_own_name(server: Server) -> None:
    did = server.host.config.did
    key = SigningKey.generate()
    server.host.accounts.add("localhost.test", did, password=PASSWORD, key=key)
    document = Document.read(server.client.get("/.well-known/did.json").json(), did)
    assert document.key("#atproto") == key.verifying_key


@pytest.mark.parametrize(
    "name", ["otto.localhost", "localhost", "", "x/y", "a b", "é", "a@localhost"]
)
def test_names_without_a_document(server: Server, name: str) -> None:
    for path in ("/.well-known/did.json", "/.well-known/atproto-did"):
        answer = server.client.get(path, headers={b"host": name.encode()})
        assert answer.status_code in (404, 400)
        assert "did:" not in answer.text


def test_which_did_a_handle_stands_for(server: Server) -> None:
    account = server.add_account()
    key = SigningKey.generate()
    did = "did:plc:" + "a" * 24
    server.host.accounts.add("otto.localhost", did, password=PASSWORD, key=key)
    for name, wanted in (("mira.localhost:80", account.did), ("otto.localhost", did)):
        answer = server.client.get("/.well-known/atproto-did", headers={"host": name})
        assert answer.text == wanted
        assert answer.headers["content-type"].startswith("text/plain")


def test_health(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/_health", "/xrpc/_health"):
        answer = server.client.get(path)
        assert (answer.status_code, answer.json()) == (200, {"version": __version__})

    def gone() -> None:
        raise StoreUnavailable("postgresql://secret")

    monkeypatch.setattr(server.host.database, "read", gone)
    answer = server.client.get("/xrpc/_health")
    assert answer.status_code == 503
    assert "secret" not in answer.text


def test_what_people_and_robots_see(server: Server) -> None:
    assert server.client.get("/").text.startswith("This is a lettaspace host")
    assert server.client.get("/robots.txt").text == "User-agent: *\nDisallow: /\n"
    for path in ("/admin", "/.well-known/other", "/xrpc", "/_health/x"):
        assert server.client.get(path).status_code == 404
    answer = server.client.get("/xrpc/com.example.nothing")
    assert (answer.status_code, answer.json()["error"]) == (501, "MethodNotImplemented")
    assert server.client.post("/").status_code == 405


def test_resolving_a_handle(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    account = server.add_account()
    asked: list[str] = []

    def resolve(handle: str) -> str:
        asked.append(handle)
        if handle == "otto.example.com":
            return "did:web:otto.example.com"
        raise IdentityError("no such name")

    monkeypatch.setattr(server.host.identity, "resolve_handle", resolve)
    path = "/xrpc/com.atproto.identity.resolveHandle"
    for handle, did in (
        ("Mira.localhost", account.did),
        ("otto.example.com", "did:web:otto.example.com"),
    ):
        answer = server.client.get(path, params={"handle": handle})
        assert answer.json() == {"did": did}
    answer = server.client.get(path, params={"handle": "anna.example.com"})
    assert (answer.status_code, answer.json()["error"]) == (400, "HandleNotFound")
    answer = server.client.get(path, params={"handle": "anna"})
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert asked == ["otto.example.com", "anna.example.com"]
