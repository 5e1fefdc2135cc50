"""The OAuth flow, against a server that is stricter than any."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx
import pytest

from lettaspace.atproto.lexicon import Lexicons
from lettaspace.atproto.scopes import Grant as Scopes
from lettaspace.atproto.uri import SpaceRef
from lettaspace.conversation import records
from lettaspace.errors import HostRefused, NotFound, SignedOut, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.remote import oauth
from lettaspace.remote.discovery import discover, server_at
from lettaspace.remote.oauth import COLLECTIONS, Grant, renew, revoke, signing_in, wanted_scope
from tests.remote.authserver import AuthServer
from tests.remote.oauthhost import browse, browser, oauth_serving, redirected
from tests.server.peers import peer, reply


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthServer]:
    with oauth_serving(tmp_path_factory.mktemp("host") / "host.db") as served:
        yield served


@pytest.fixture
def auth(served: AuthServer) -> AuthServer:
    served.reset()
    return served


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher(development=True)


def sign_in(
    auth: AuthServer, fetcher: Fetcher, browse: Callable[[str], Any] = browse, seconds: float = 30
) -> Grant:
    with signing_in(discover(auth.origin, fetcher), fetcher, hint="mira.localhost") as attempt:
        browse(attempt.url)
        return attempt.finish(seconds)


def changed(url: str, **changes: str | None) -> str:
    """An address with other parameters; None leaves one out."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    return urlunsplit(parts._replace(query=urlencode({k: v for k, v in query.items() if v})))


def test_what_is_asked_for() -> None:
    mira, otto = "did:web:mira.example", "did:web:otto.example"
    scopes = Scopes.parse(wanted_scope())
    grant = Scopes(tuple(scope.resolve(mira) for scope in scopes.scopes))
    own, others = records.default_space(mira), records.default_space(otto)
    for collection in COLLECTIONS:
        for action in ("create", "update", "delete"):
            grant.require(own, action, collection)  # type: ignore[arg-type]
    for space in (own, others, SpaceRef(otto, records.SPACE_TYPE, "team")):
        grant.require(space, "read")
    grant.require_management(own, "create")
    allowed = [
        *(scope.allows(others, "create", records.MESSAGE) for scope in grant.scopes),
        *(scope.manages(own, "delete") for scope in grant.scopes),
        *(
            scope.allows(SpaceRef(mira, "org.example.room", "self"), "read")
            for scope in grant.scopes
        ),
    ]
    assert not any(allowed)
    assert "blob:*/*" in wanted_scope().split(" ")


def test_the_collections_are_those_that_the_type_declares() -> None:
    declared = Lexicons.load().definition(records.SPACE_TYPE)
    assert declared is not None
    assert set(COLLECTIONS) == set(declared["collections"])


def test_signing_in(auth: AuthServer, fetcher: Fetcher) -> None:
    pages: list[httpx.Response] = []
    grant = sign_in(auth, fetcher, lambda url: pages.append(browse(url)))
    assert grant.did == auth.did
    assert grant.binding.issuer == auth.origin
    assert grant.binding.scope == wanted_scope()
    assert grant.access not in repr(grant)
    assert grant.refresh not in repr(grant)
    # One nonce had to be got first; then each answer gave the next.
    assert [call for call in auth.calls if call[0].startswith(("/oauth", "auth"))] == [
        ("/oauth/par", 400), ("/oauth/par", 201), ("/oauth/authorize", 302),
        ("authorization_code", 200),
    ]  # fmt: skip
    (page,) = pages
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["cache-control"] == "no-store"
    assert "<script" not in page.text


def test_only_the_answer_of_this_sign_in_is_taken(auth: AuthServer, fetcher: Fetcher) -> None:
    refused: list[int] = []

    def meddle(url: str) -> None:
        answer = redirected(url)
        port = urlsplit(answer).port
        for other in (
            changed(answer, state="x" * 43),
            changed(answer, state=None),
            answer + "&state=another",
            answer + "&iss=https%3A%2F%2Fother.example",
            answer.replace("/callback", "/"),
            f"http://127.0.0.1:{port}/favicon.ico",
            answer.replace("127.0.0.1", "localhost"),
            answer + "&more=" + "x" * 10_000,
        ):
            refused.append(browser().get(other).status_code)
        refused.append(browser().post(answer).status_code)
        refused.append(browser().get(answer, headers={"host": "attacker.example"}).status_code)
        assert browser().get(answer).status_code == 200
        refused.append(browser().get(answer).status_code)

    assert sign_in(auth, fetcher, meddle).did == auth.did
    assert all(400 <= status < 600 for status in refused)
    assert len(refused) == 11


def test_the_address_is_listened_to_only_meanwhile(auth: AuthServer, fetcher: Fetcher) -> None:
    answers: list[str] = []

    def look(url: str) -> None:
        answers.append(redirected(url))
        browser().get(answers[0])

    sign_in(auth, fetcher, look)
    port = urlsplit(answers[0]).port
    assert port is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_connection_that_says_nothing_holds_nobody_up(auth: AuthServer, fetcher: Fetcher) -> None:
    silent: list[socket.socket] = []

    def browse_slowly(url: str) -> None:
        answer = redirected(url)
        silent.append(socket.create_connection(("127.0.0.1", urlsplit(answer).port or 0)))
        browser().get(answer)

    assert sign_in(auth, fetcher, browse_slowly).did == auth.did
    silent[0].close()


@pytest.mark.parametrize("iss", ["", "https://other.example"])
def test_another_issuer(auth: AuthServer, fetcher: Fetcher, iss: str) -> None:
    auth.iss = iss
    with pytest.raises(SignedOut, match="not the answer of"):
        sign_in(auth, fetcher)
    assert auth.count("authorization_code") == 0


def test_somebody_says_no(auth: AuthServer, fetcher: Fetcher) -> None:
    auth.deny = True
    with pytest.raises(HostRefused, match="not allowed") as caught:
        sign_in(auth, fetcher)
    assert caught.value.error == "access_denied"


def test_nobody_comes_back(auth: AuthServer, fetcher: Fetcher) -> None:
    with pytest.raises(SignedOut, match="in time"):
        sign_in(auth, fetcher, lambda _: None, seconds=0)


def test_a_code_that_is_too_old(auth: AuthServer, fetcher: Fetcher) -> None:
    def dawdle(url: str) -> None:
        browse(url)
        auth.clock.pass_(61)

    with pytest.raises(SignedOut, match="sign in again"):
        sign_in(auth, fetcher, dawdle)


def test_a_code_of_another_sign_in(auth: AuthServer, fetcher: Fetcher) -> None:
    """One that was used, or that somebody else was given: PKCE and the key see to that."""
    codes: list[str] = []

    def note(url: str) -> None:
        answer = redirected(url)
        codes.append(parse_qs(urlsplit(answer).query)["code"][0])
        browser().get(answer)

    def replay(url: str) -> None:
        browser().get(changed(redirected(url), code=codes[0]))

    first = sign_in(auth, fetcher, note)
    with pytest.raises(SignedOut, match="sign in again"):
        sign_in(auth, fetcher, replay)
    with pytest.raises(SignedOut):  # the server ends what the code was good for
        renew(first.did, first.refresh, first.binding, fetcher)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sub": "mira"}, "whose tokens"),
        ({"scope": "blob:*/*"}, "atproto"),
        ({"leaves_out": ("sub",)}, "whose tokens"),
        ({"leaves_out": ("scope",)}, "atproto"),
        ({"leaves_out": ("refresh_token",)}, "no refresh token"),
    ],
)
def test_tokens_that_are_no_use(
    auth: AuthServer, fetcher: Fetcher, wrong: dict[str, Any], reason: str
) -> None:
    for name, value in wrong.items():
        setattr(auth, name, value)
    with pytest.raises(SignedOut, match=reason):
        sign_in(auth, fetcher)


@pytest.mark.parametrize("missing", ["request_uri", "access_token"])
def test_answers_that_lack_something(auth: AuthServer, fetcher: Fetcher, missing: str) -> None:
    auth.leaves_out = (missing,)
    with pytest.raises(Unreachable, match="an answer that is none"):
        sign_in(auth, fetcher)


@pytest.mark.parametrize("more", ["&code_verifier=x", "&error=%00", "&redirect_uri=x"])
def test_an_answer_with_more_than_there_should_be(
    auth: AuthServer, fetcher: Fetcher, more: str
) -> None:
    with pytest.raises((SignedOut, HostRefused)):
        sign_in(auth, fetcher, lambda url: browser().get(redirected(url) + more))
    assert auth.count("authorization_code") == 0


def test_an_answer_that_is_none(auth: AuthServer, fetcher: Fetcher) -> None:
    auth.lose = 1
    with pytest.raises(Unreachable) as caught:
        sign_in(auth, fetcher)
    assert caught.value.sent


def test_nonces_without_end(auth: AuthServer, fetcher: Fetcher) -> None:
    auth.endless = True
    with pytest.raises(HostRefused, match="nonce"):
        sign_in(auth, fetcher)
    assert auth.count("/oauth/par", 400) <= 3


def test_renewing(auth: AuthServer, fetcher: Fetcher) -> None:
    first = sign_in(auth, fetcher)
    second = renew(first.did, first.refresh, first.binding, fetcher)
    assert {second.access, second.refresh}.isdisjoint((first.access, first.refresh))
    third = renew(second.did, second.refresh, second.binding, fetcher)
    auth.leaves_out = ("scope",)
    third = renew(third.did, third.refresh, third.binding, fetcher)
    assert third.binding == first.binding
    with pytest.raises(SignedOut, match="sign in again") as caught:
        renew(first.did, first.refresh, first.binding, fetcher)
    assert first.refresh not in str(caught.value)
    auth.sub = "did:web:otto.localhost"
    with pytest.raises(SignedOut, match="another account"):
        renew(third.did, third.refresh, third.binding, fetcher)


def test_renewing_with_another_key(auth: AuthServer, fetcher: Fetcher) -> None:
    first, second = sign_in(auth, fetcher), sign_in(auth, fetcher)
    with pytest.raises(HostRefused, match="clock") as caught:
        renew(first.did, first.refresh, second.binding, fetcher)
    assert caught.value.error == "invalid_dpop_proof"


def test_a_refresh_token_is_not_sent_before_the_server_is_known(fetcher: Fetcher) -> None:
    with peer(lambda connection, _: connection.close()) as server:
        binding = oauth.Binding(
            f"http://localhost:{server.port}", "http://localhost", oauth.SigningKey.generate("p256")
        )
        with pytest.raises(Unreachable) as caught:
            renew("did:web:mira.example", "secret", binding, fetcher)
    assert not caught.value.sent
    assert b"secret" not in b"".join(server.requests)


def test_signing_out(auth: AuthServer, fetcher: Fetcher) -> None:
    grant = sign_in(auth, fetcher)
    revoke(grant.refresh, grant.binding, fetcher)
    with pytest.raises(SignedOut):
        renew(grant.did, grant.refresh, grant.binding, fetcher)
    auth.metadata = {"revocation_endpoint": "https://inside.localhost/revoke"}
    revoke_elsewhere = Fetcher()  # as for a host that is not on this machine
    with pytest.raises(HostRefused, match="https"):
        revoke(grant.refresh, grant.binding, revoke_elsewhere)


def test_a_host_without_oauth(auth: AuthServer, fetcher: Fetcher) -> None:
    auth.offered = False
    with pytest.raises(NotFound, match="--app-password"):
        discover(auth.origin, fetcher)


@pytest.mark.parametrize(
    "document",
    [
        {"resource": "http://localhost:1"},
        {"authorization_servers": []},
        {"authorization_servers": ["http://localhost:1", "http://localhost:2"]},
        {"authorization_servers": [None]},
        {"authorization_servers": ["http://localhost:1/path"]},
        {"authorization_servers": ["http://10.0.0.1"]},
        {"authorization_servers": ["file:///etc/passwd"]},
        {"authorization_servers": "http://localhost:1"},
    ],
)
def test_a_host_that_names_no_server_of_use(
    auth: AuthServer, fetcher: Fetcher, document: dict[str, Any]
) -> None:
    auth.resource = document
    with pytest.raises(HostRefused, match="OAuth cannot be used"):
        discover(auth.origin, fetcher)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "http://localhost:1"},
        {"token_endpoint": "http://example.com/token"},
        {"token_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"pushed_authorization_request_endpoint": "http://169.254.169.254/par"},
        {"require_pushed_authorization_requests": False},
        {"authorization_response_iss_parameter_supported": "true"},
        {"client_id_metadata_document_supported": False},
        {"code_challenge_methods_supported": ["plain"]},
        {"dpop_signing_alg_values_supported": ["RS256"]},
        {"scopes_supported": ["openid"]},
    ],
)
def test_a_server_that_is_not_of_the_profile(
    auth: AuthServer, fetcher: Fetcher, metadata: dict[str, Any]
) -> None:
    auth.metadata = metadata
    with pytest.raises(HostRefused, match="OAuth cannot be used"):
        server_at(auth.origin, fetcher)


def test_what_is_on_this_machine_is_for_hosts_on_this_machine(auth: AuthServer) -> None:
    with pytest.raises(HostRefused, match="https"):
        server_at(auth.origin, Fetcher())


def test_redirects_are_not_followed(auth: AuthServer, fetcher: Fetcher) -> None:
    headers = f"location: {auth.origin}/oauth/par\r\n"
    with peer(reply(status="307 Temporary Redirect", headers=headers)) as elsewhere:
        auth.metadata = {
            "pushed_authorization_request_endpoint": f"http://localhost:{elsewhere.port}/par"
        }
        with pytest.raises(Unreachable, match="307"):
            sign_in(auth, fetcher)
    assert ("/oauth/par", 201) not in auth.calls


def test_two_sign_ins_at_once(auth: AuthServer, fetcher: Fetcher) -> None:
    found: list[Grant] = []
    threads = [
        threading.Thread(target=lambda: found.append(sign_in(auth, fetcher))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({grant.access for grant in found}) == 2
