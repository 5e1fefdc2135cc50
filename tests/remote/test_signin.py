"""Signing in, from what the user types to what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.errors import (
    Conflict,
    HostRefused,
    InvalidInput,
    LettaspaceError,
    NotFound,
    SignedOut,
    StoreUnavailable,
    Unreachable,
)
from lettaspace.network.documents import Document
from lettaspace.network.fetching import Fetcher
from lettaspace.network.identity import IdentityError
from lettaspace.remote import signin
from lettaspace.remote.account import Account
from lettaspace.remote.keeping import Keeping
from lettaspace.remote.signin import Place, find, with_oauth, with_password
from tests.remote.august import august
from tests.remote.authserver import AuthServer
from tests.remote.oauthhost import browse, oauth_serving
from tests.server.hosts import PASSWORD
from tests.server.peers import peer, reply

MIRA, HANDLE, HOST = "did:plc:" + "a" * 24, "mira.example.com", "https://host.example.com"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthServer]:
    with oauth_serving(tmp_path_factory.mktemp("host") / "host.db") as served:
        yield served


@pytest.fixture
def auth(served: AuthServer) -> AuthServer:
    served.reset()
    return served


class Names:
    """A resolver that knows a few names."""

    def __init__(self, handles: dict[str, str], documents: dict[str, Any]) -> None:
        self.handles = handles
        self.documents = documents
        self.development: list[bool] = []

    def __call__(self, fetcher: Fetcher) -> Names:
        self.development.append(fetcher.development)
        return self

    def resolve_handle(self, handle: str) -> str:
        if handle == "slow.example.com":
            raise IdentityError("took too long", transient=True)
        try:
            return self.handles[handle]
        except KeyError:
            raise IdentityError("handle names no DID") from None

    def document(self, did: str) -> Document:
        return Document.read(self.documents[did], did)


def document(did: str, handle: str | None = HANDLE, host: str = HOST) -> dict[str, Any]:
    pds = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": host}
    return {"id": did, "alsoKnownAs": [f"at://{handle}"] if handle else [], "service": [pds]}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names({HANDLE: MIRA, "otto.example.com": MIRA}, {MIRA: document(MIRA)})
    monkeypatch.setattr(signin, "Resolver", names)
    return names


@pytest.mark.parametrize("who", [HANDLE, "@" + HANDLE, "Mira.Example.com", MIRA])
def test_who_leads_to_a_host(names: Names, who: str) -> None:
    assert find(who) == Place(HOST, False, MIRA, HANDLE)
    assert names.development == [False]


def test_a_did_whose_handle_leads_elsewhere_has_none(names: Names) -> None:
    names.handles[HANDLE] = "did:plc:" + "b" * 24
    assert find(MIRA).handle is None
    names.documents[MIRA] = document(MIRA, None)
    assert find(MIRA).handle is None


@pytest.mark.parametrize(
    ("who", "raised", "reason"),
    [
        ("otto.example.com", NotFound, "does not name it"),
        ("nobody.example.com", NotFound, "names no DID"),
        ("slow.example.com", Unreachable, "took too long"),
        ("mira", InvalidInput, "neither a handle nor a DID"),
        ("", InvalidInput, "neither"),
        ("https://", InvalidInput, "not an address"),
        ("https://host.example.com/path", InvalidInput, "no path"),
        ("http://host.example.com", InvalidInput, "not https"),
        ("http://10.0.0.1:2583", InvalidInput, "not https"),
        ("https://user:secret@host.example.com", InvalidInput, "not an address"),
        ("ftp://host.example.com", InvalidInput, "not an address"),
    ],
)
def test_who_leads_nowhere(
    names: Names, who: str, raised: type[LettaspaceError], reason: str
) -> None:
    with pytest.raises(raised, match=reason):
        find(who)


def test_a_document_without_a_host(names: Names) -> None:
    names.documents[MIRA]["service"] = []
    with pytest.raises(NotFound, match="no service #atproto_pds"):
        find(HANDLE)


def test_only_who_types_it_gets_to_this_machine(names: Names) -> None:
    names.documents[MIRA] = document(MIRA, host="http://localhost:2583")
    with pytest.raises(NotFound, match="not https"):
        find(HANDLE)
    local = "did:web:mira.localhost%3A2583"
    names.documents[local] = document(local, "mira.localhost", "http://localhost:2583")
    assert find(local) == Place("http://localhost:2583", True, local, "mira.localhost")
    for url in ("http://localhost:2583", "http://localhost:2583/", "http://LOCALHOST:2583"):
        assert find(url) == Place("http://localhost:2583", True)
    assert find("http://127.0.0.1:2583") == Place("http://127.0.0.1:2583", True)
    assert find("https://host.example.com") == Place(HOST, False)
    assert names.development == [False, True]


def by_oauth(home: Path, place: Place) -> Account:
    return with_oauth(home, place, browse)


def by_password(home: Path, place: Place) -> Account:
    return with_password(home, place, "mira.localhost", PASSWORD)


WAYS = pytest.mark.parametrize("way", [by_oauth, by_password])
Way = Callable[[Path, Place], Account]


@WAYS
@pytest.mark.parametrize("by_did", [False, True])
def test_signing_in(auth: AuthServer, home: Path, way: Way, by_did: bool) -> None:
    account = way(home, find(auth.did if by_did else auth.origin))
    assert Account.load(home) == account
    assert (account.did, account.handle) == (auth.did, "mira.localhost")
    assert (account.host, account.loopback) == (auth.origin, True)
    assert account.how == way.__name__.removeprefix("by_")
    assert sorted(each.name for each in home.iterdir()) == [
        "account.json", "session.json", "session.lock",
    ]  # fmt: skip
    kept = account.keeping.load()
    assert kept is not None
    public = (home / "account.json").read_text()
    assert kept["access"] not in public
    assert kept["refresh"] not in public


@pytest.mark.parametrize("app", [False, True])
def test_signing_in_to_a_host_of_august(home: Path, tmp_path: Path, app: bool) -> None:
    with august(tmp_path / "august.db") as old:
        mira = old.add_account()
        password = mira.add_app_password() if app else mira.password
        account = with_password(home, find(mira.did), mira.handle, password)
        assert account.capabilities.generation == "dpop"
        assert account.capabilities.delegates is not app
        assert account.sign_out() is None
    assert nothing_kept(home)


def nothing_kept(home: Path) -> bool:
    return not home.exists() or {each.name for each in home.iterdir()} <= {"session.lock"}


@WAYS
def test_somebody_else_signs_in(auth: AuthServer, home: Path, way: Way) -> None:
    place = Place(auth.origin, True, "did:web:otto.localhost", "otto.localhost")
    with pytest.raises(SignedOut, match="somebody else"):
        way(home, place)
    assert nothing_kept(home)
    assert ended(auth, way)


def test_the_server_says_somebody_else(auth: AuthServer, home: Path) -> None:
    auth.sub = "did:web:otto.localhost"
    with pytest.raises(SignedOut, match="somebody else"):
        by_oauth(home, find(auth.did))
    assert nothing_kept(home)
    assert ended(auth, by_oauth)


@WAYS
def test_an_account_of_another_host(
    auth: AuthServer, home: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host says whose account it is, and that account's document says otherwise."""
    elsewhere = document(auth.did, "mira.localhost", "http://localhost:1")
    monkeypatch.setattr(signin, "Resolver", Names({}, {auth.did: elsewhere}))
    with pytest.raises(NotFound, match="its document names http://localhost:1"):
        way(home, find(auth.origin))
    assert nothing_kept(home)
    assert ended(auth, way)


@WAYS
def test_a_home_that_cannot_be_written(
    auth: AuthServer, home: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StoreUnavailable("no space left")

    monkeypatch.setattr(Keeping, "save", full)
    with pytest.raises(StoreUnavailable):
        way(home, find(auth.origin))
    assert nothing_kept(home)
    assert ended(auth, way)


def ended(auth: AuthServer, way: Way) -> bool:
    """Whether the session that was opened is ended."""
    if way is by_oauth:
        return auth.count("/oauth/revoke") == 1
    return auth.count("com.atproto.server.deleteSession") == 1


@WAYS
def test_signing_in_again(auth: AuthServer, home: Path, way: Way) -> None:
    first = way(home, find(auth.origin))
    before = first.keeping.load()
    assert way(home, find(auth.origin)) == first
    assert first.keeping.load() != before
    assert ended(auth, way)  # the session that nobody uses any more


def test_two_accounts_at_one_home(auth: AuthServer, home: Path) -> None:
    account = by_password(home, find(auth.origin))
    auth.calls.clear()
    other = Place(auth.origin, True, "did:web:otto.localhost", "otto.localhost")
    for way in (by_oauth, by_password):
        with pytest.raises(Conflict, match="is signed in here"):
            way(home, other)
    assert auth.calls == []
    assert Account.load(home) == account


def test_a_damaged_account_can_sign_in_again(auth: AuthServer, home: Path) -> None:
    account = by_password(home, find(auth.origin))
    (home / "account.json").write_text("{}")
    assert by_password(home, find(auth.origin)) == account


def test_a_wrong_password(auth: AuthServer, home: Path) -> None:
    with pytest.raises(HostRefused, match="does not know this name and password") as caught:
        with_password(home, find(auth.origin), "mira.localhost", "a-wrong-secret")
    assert "secret" not in str(caught.value)
    assert nothing_kept(home)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b'{"error":"AuthFactorTokenRequired","message":"x"}', "401 Unauthorized", "app password"),
        (b'{"error":"AccountTakedown","message":"x"}', "401 Unauthorized", "AccountTakedown"),
        (b'{"accessJwt":"a","refreshJwt":"b","handle":"x.example","did":"did:web:x.example",'
         b'"active":false,"status":"deactivated"}', "200 OK", "is deactivated"),
    ],
)  # fmt: skip
def test_accounts_that_may_not(home: Path, body: bytes, status: str, reason: str) -> None:
    with peer(reply(body, status, media_type="application/json")) as host:
        place = Place(f"http://localhost:{host.port}", True)
        with pytest.raises(HostRefused, match=reason):
            with_password(home, place, "x.example", "secret")
    assert nothing_kept(home)


@pytest.mark.parametrize("status", ["404 Not Found", "501 Not Implemented"])
def test_a_host_without_oauth(home: Path, status: str) -> None:
    with peer(reply(b"nothing here", status)) as host:
        place = Place(f"http://localhost:{host.port}", True)
        with pytest.raises(NotFound, match="offers no OAuth: sign in with --app-password"):
            with_oauth(home, place, browse)
