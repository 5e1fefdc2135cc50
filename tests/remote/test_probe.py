"""What is found out of a host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from lettaspace.atproto.keys import SigningKey
from lettaspace.conversation import records
from lettaspace.conversation.leaves import BLOB_BYTES, make_leaf
from lettaspace.errors import Damaged, HostRefused, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.keeping import InMemory
from lettaspace.remote.limits import Limits
from lettaspace.remote.probe import probe, spaces
from lettaspace.remote.sessions import Session, Tokens
from lettaspace.remote.xrpc import Client
from lettaspace.server import tables
from lettaspace.server.host import Host
from lettaspace.space import schema
from lettaspace.space.writes import Create, Delete
from tests.remote.august import August, august
from tests.remote.auths import Bearer
from tests.remote.authserver import AuthServer
from tests.remote.oauthhost import oauth_serving
from tests.server.peers import peer, reply

GOOD = Capabilities("signature", delegates=True, leaks_blobs=False)


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


@pytest.fixture
def old(tmp_path: Path) -> Iterator[August]:
    with august(tmp_path / "august.db") as old:
        yield old


def opened(auth: AuthServer, tokens: Tokens, fetcher: Fetcher) -> Client:
    session = Session(InMemory(auth.did, tokens.json()), auth.origin, fetcher)
    return Client(auth.origin, auth=session)


def refer(client: Client, did: str) -> None:
    """A record of the account's own that needs a blob."""
    leaf, blobs = make_leaf(BLOB_BYTES, b"a picture" * 9000, "application/octet-stream")
    ((cid, blob),) = blobs.items()
    repo = HostRepo(client, str(records.default_space(did)), did)
    repo.upload_blob(blob, cid)
    repo.apply([Create("org.example.note", "one", {"picture": leaf})])


def test_a_host_as_they_are_now(auth: AuthServer, fetcher: Fetcher) -> None:
    with opened(auth, auth.grant(SigningKey.generate("p256")), fetcher) as client:
        before = left(auth.host)
        assert probe(client, auth.did, fetcher) == replace(GOOD, leaks_blobs=None)
        assert left(auth.host) == before
        assert spaces(client) == []
    with signed_in(auth.host, auth.did) as client:
        refer(client, auth.did)
        assert probe(client, auth.did, fetcher) == GOOD
        HostRepo(client, str(records.default_space(auth.did)), auth.did).apply(
            [Delete("org.example.note", "one")]
        )
    (sentence,) = GOOD.words()
    assert "HTTP message signatures" in sentence


def left(host: Host) -> list[int]:
    """How many repos, spaces and uploads there are."""
    with host.database.read() as connection:
        return [
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (schema.repos, tables.spaces, tables.uploads, schema.blobs)
        ]


@contextmanager
def signed_in(host: Host, did: str) -> Iterator[Client]:
    account = host.accounts.get(did)
    with Client(host.config.origin, auth=Bearer(host.sessions.open(account).access)) as client:
        yield client


def test_an_app_password(auth: AuthServer, fetcher: Fetcher) -> None:
    account = auth.host.accounts.get(auth.did)
    given = auth.host.sessions.open(account, "laptop")
    with opened(auth, Tokens(given.access, given.refresh), fetcher) as client:
        found = probe(client, auth.did, fetcher)
    assert found == replace(GOOD, delegates=False, leaks_blobs=None)
    assert "cannot read other members' repos" in found.words()[1]


@pytest.mark.parametrize("app", [False, True])
def test_a_host_of_august(old: August, fetcher: Fetcher, app: bool) -> None:
    account = old.add_account()
    password = account.add_app_password() if app else account.password
    body = {"identifier": account.handle, "password": password}
    with Client(old.origin) as client:
        answer = client.procedure("com.atproto.server.createSession", body)
        client.auth = Bearer(answer["accessJwt"])
        known = probe(client, account.did, fetcher)
        assert known == Capabilities("dpop", delegates=not app, leaks_blobs=None)
        assert "shows once it has some" in known.words()[-1]
        refer(client, account.did)
        found = probe(client, account.did, fetcher)
    assert found == Capabilities("dpop", delegates=not app, leaks_blobs=True)
    text = " ".join(found.words())
    assert "August 2026" in text
    assert "ciphertext" in text


def test_a_grant_without_spaces(auth: AuthServer, fetcher: Fetcher) -> None:
    key = SigningKey.generate("p256")
    tokens = auth.grant(key, "atproto blob:*/*")
    with opened(auth, tokens, fetcher) as client, pytest.raises(HostRefused) as caught:
        probe(client, auth.did, fetcher)
    assert "does not let this session at spaces (ScopeMissingError)" in str(caught.value)


def test_a_grant_that_is_smaller_than_asked_for(auth: AuthServer, fetcher: Fetcher) -> None:
    tokens = auth.grant(
        SigningKey.generate("p256"), f"atproto space:{records.SPACE_TYPE}?action=read_self"
    )
    with opened(auth, tokens, fetcher) as client:
        found = probe(client, auth.did, fetcher)
    assert (found.delegates, found.leaks_blobs) == (False, None)
    assert len(found.words()) == 3


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("501 Not Implemented", b'{"error":"MethodNotImplemented","message":"what?"}'),
        ("400 Bad Request", b'{"error":"InvalidRequest","message":"what?"}'),
        ("404 Not Found", b'{"error":"XRPCNotSupported","message":"what?"}'),
        ("404 Not Found", b"<html>"),
    ],
)
def test_a_host_that_does_not_speak_spaces(status: str, body: bytes) -> None:
    kind = "application/json" if body.startswith(b"{") else "text/html"
    with peer(reply(body, status, media_type=kind)) as host:
        with Client(f"http://localhost:{host.port}") as client, pytest.raises(HostRefused) as no:
            spaces(client)
        assert len(host.requests) == 2
    assert "does not speak spaces: it has no com.atproto.space.listSpaces" in str(no.value)
    assert "\n" not in str(no.value)


def test_a_host_that_is_no_host() -> None:
    with (
        peer(reply(b"<html>welcome</html>", media_type="text/html")) as host,
        Client(f"http://localhost:{host.port}", sleep=lambda _: None) as client,
        pytest.raises(Unreachable),
    ):
        spaces(client)


@pytest.mark.parametrize(
    "capabilities",
    [GOOD, Capabilities("dpop", False, True), Capabilities(None, True, None, Limits(body=9))],
)
def test_kept_as_they_were(capabilities: Capabilities) -> None:
    assert Capabilities.read(capabilities.json()) == capabilities


@pytest.mark.parametrize(
    "change",
    [
        {"generation": "telepathy"},
        {"delegates": None},
        {"delegates": 1},
        {"leaksBlobs": "no"},
        {"limits": {"writes": "many"}},
        {"limits": {"wishes": 3}},
        {"limits": 3},
    ],
)
def test_what_was_kept_may_be_damaged(change: dict[str, Any]) -> None:
    with pytest.raises(Damaged):
        Capabilities.read(GOOD.json() | change)
    with pytest.raises(Damaged):
        Capabilities.read(None)
