"""Sessions: refreshed once, kept before they are used, ended once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto.keys import SigningKey
from lettaspace.conversation import records
from lettaspace.errors import Damaged, HostRefused, SignedOut, StoreUnavailable, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.remote.account import Account
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.keeping import InMemory, Keeping
from lettaspace.remote.sessions import Session, Tokens
from lettaspace.server.sessions import ACCESS_SECONDS
from tests.remote.authserver import AuthServer
from tests.remote.oauthhost import oauth_serving
from tests.server.peers import peer, reply

LIST = "com.atproto.space.listSpaces"
ASKED = {"spaceType": records.SPACE_TYPE}
REFRESH = {"oauth": "refresh_token", "password": "com.atproto.server.refreshSession"}

CHILD = """
import sys
from pathlib import Path
from lettaspace.remote.account import Account

account = Account.load(Path(sys.argv[1]))
with account.client() as client:
    client.auth.tokens()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(3):
        client.query("com.atproto.space.listSpaces", {"spaceType": sys.argv[2]})
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthServer]:
    with oauth_serving(tmp_path_factory.mktemp("host") / "host.db") as served:
        yield served


@pytest.fixture
def auth(served: AuthServer) -> AuthServer:
    served.reset()
    return served


@pytest.fixture(params=["oauth", "password"])
def account(request: pytest.FixtureRequest, auth: AuthServer, home: Path) -> Account:
    """An account that is signed in."""
    known = Capabilities("signature", delegates=True, leaks_blobs=False)
    account = Account(home, auth.did, "mira.localhost", auth.origin, request.param, True, known)
    account.save()
    sign_in(auth, account)
    return account


def sign_in(auth: AuthServer, account: Account) -> None:
    """Keeps the tokens of a new session."""
    if account.how == "oauth":
        tokens = auth.grant(SigningKey.generate("p256"))
    else:
        given = auth.host.sessions.open(auth.host.accounts.get(account.did))
        tokens = Tokens(given.access, given.refresh)
    account.keeping.save(tokens.json())


def expire(auth: AuthServer) -> None:
    """Time passes, until no access token is good any more."""
    auth.clock.pass_(ACCESS_SECONDS + 1)


def refreshes(auth: AuthServer, account: Account) -> int:
    """How many refreshes the host saw that it did not refuse for a nonce."""
    return auth.count(REFRESH[account.how])


def tokens(account: Account) -> Tokens:
    kept = account.keeping.load()
    assert kept is not None
    return Tokens.read(kept)


def test_o52_refreshed_once_by_processes_that_share_a_session(
    auth: AuthServer, account: Account
) -> None:
    arguments = [sys.executable, "-c", CHILD, str(account.home), records.SPACE_TYPE]
    children = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        expire(auth)
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        whoami = [sys.executable, "-m", "lettaspace", "--home", str(account.home), "whoami"]
        said = subprocess.run(whoami, capture_output=True, check=True, text=True)
        assert "The host knows this session." in said.stdout
        assert [child.communicate(timeout=60)[0] for child in children] == ["done\n"] * 2
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert refreshes(auth, account) == 1


def test_o52_refreshed_once_by_threads(auth: AuthServer, account: Account) -> None:
    expire(auth)
    failed: list[BaseException] = []
    with account.client() as client:

        def ask() -> None:
            try:
                client.query(LIST, ASKED)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # Five at once on one client may run out of nonces, but never of tokens.
    assert all(isinstance(error, HostRefused) for error in failed)
    assert refreshes(auth, account) == 1


def test_o52_new_tokens_are_kept_before_they_are_used(
    auth: AuthServer, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(auth)
    with account.client() as client:
        old = client.auth.tokens()  # type: ignore[union-attr]

        def full(*_: Any) -> None:
            raise StoreUnavailable("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(Keeping, "save", full)
            with pytest.raises(StoreUnavailable):
                client.query(LIST, ASKED)
        assert client.auth.tokens() == old  # type: ignore[union-attr]
    assert auth.calls[-1] == (REFRESH[account.how], 200)
    assert tokens(account).json() == old.json()


@pytest.mark.parametrize("account", ["oauth"], indirect=True)
def test_o52_a_lost_answer_ends_in_one_sign_in_again(auth: AuthServer, account: Account) -> None:
    """The refresh token was good once, and what it gave is lost."""
    expire(auth)
    auth.lose = 1
    with account.client() as client:
        for _ in range(3):
            with pytest.raises(SignedOut, match="sign in again"):
                client.query(LIST, ASKED)
    asked = [status for name, status in auth.calls if name == "refresh_token"]
    assert asked.count(200) == 1
    assert len(asked) <= 4  # the same once more, each with the nonce it needs
    auth.calls.clear()
    with account.client() as client, pytest.raises(SignedOut, match="has ended"):
        client.query(LIST, ASKED)
    assert auth.calls == []
    assert account.session().state() == "ended"
    sign_in(auth, account)
    assert account.session().state() == "kept"


@pytest.mark.parametrize("account", ["password"], indirect=True)
def test_o52_a_lost_answer_that_the_host_repeats(auth: AuthServer, account: Account) -> None:
    expire(auth)
    auth.lose = 1
    with account.client() as client:
        client.query(LIST, ASKED)
    assert refreshes(auth, account) == 1  # beside the lost one
    assert account.session().state() == "kept"


def test_two_lost_answers_leave_it_to_the_next_attempt(auth: AuthServer, account: Account) -> None:
    expire(auth)
    auth.lose = 2
    before = tokens(account)
    # The second loss of a strict server's is a refusal already.
    expected = SignedOut if account.how == "oauth" else Unreachable
    with account.client() as client, pytest.raises(expected) as caught:
        client.query(LIST, ASKED)
    assert tokens(account).refresh == before.refresh
    if isinstance(caught.value, Unreachable):
        assert not caught.value.sent  # what was asked for was not done
        with account.client() as client:
            client.query(LIST, ASKED)
    auth.lose = 0


def test_a_session_that_the_host_ended(auth: AuthServer, account: Account) -> None:
    account.session().end()
    with account.client() as client:
        client.auth.tokens()  # type: ignore[union-attr]
        with pytest.raises(SignedOut, match="sign in again"):
            client.query(LIST, ASKED)
        auth.calls.clear()
        with pytest.raises(SignedOut):
            client.query(LIST, ASKED)
    assert auth.calls == []


def test_another_process_signed_in_again(auth: AuthServer, account: Account) -> None:
    """A process that has been running for long takes the tokens of the new sign-in."""
    with account.client() as client:
        client.query(LIST, ASKED)
        session = client.auth
        account.session().end()
        sign_in(auth, account)
        client.query(LIST, ASKED)
        assert client.auth is session
    assert refreshes(auth, account) == 0


def test_tokens_that_were_forgotten(auth: AuthServer, account: Account) -> None:
    account.keeping.forget()
    with account.client() as client, pytest.raises(SignedOut, match="no tokens"):
        client.query(LIST, ASKED)
    assert account.session().state() == "missing"
    assert auth.calls == []


def test_a_host_that_cannot_be_reached_ends_nothing(home: Path) -> None:
    with peer(reply()) as gone:
        origin = f"http://localhost:{gone.port}"
    keeping = Keeping(home, "did:web:mira.example")
    keeping.save(Tokens("old", "refresh").json())
    session = _session(keeping, origin)
    with pytest.raises(Unreachable) as caught:
        session.renew(session.fields("GET", origin, None), "ExpiredToken")
    assert not caught.value.sent
    assert session.state() == "kept"
    assert session.tokens().refresh == "refresh"


@pytest.mark.parametrize(
    ("status", "error", "raised", "state"),
    [
        ("400 Bad Request", "ExpiredToken", SignedOut, "ended"),
        ("401 Unauthorized", "InvalidToken", SignedOut, "ended"),
        ("401 Unauthorized", "AccountTakedown", HostRefused, "kept"),
        ("429 Too Many Requests", "RateLimitExceeded", HostRefused, "kept"),
        ("503 Service Unavailable", "NotNow", Unreachable, "kept"),
    ],
)
def test_what_refusals_of_a_refresh_mean(
    home: Path, status: str, error: str, raised: type[Exception], state: str
) -> None:
    body = f'{{"error":"{error}","message":"no: refresh-secret"}}'.encode()
    with peer(reply(body, status, media_type="application/json")) as host:
        origin = f"http://localhost:{host.port}"
        keeping = Keeping(home, "did:web:mira.example")
        keeping.save(Tokens("access-secret", "refresh-secret").json())
        session = _session(keeping, origin)
        with pytest.raises(raised) as caught:
            session.renew(session.fields("GET", origin, None), "ExpiredToken")
    assert "secret" not in str(caught.value)
    assert session.state() == state
    assert len(host.requests) <= 2


def test_answers_for_another_account(home: Path) -> None:
    body = b"""{"accessJwt":"a","refreshJwt":"b","handle":"x.example","did":"did:web:x.example"}"""
    with peer(reply(body, media_type="application/json")) as host:
        origin = f"http://localhost:{host.port}"
        session = _session(InMemory("did:web:mira.example", Tokens("a", "r").json()), origin)
        with pytest.raises(SignedOut, match="another account"):
            session.renew(session.fields("GET", origin, None), "ExpiredToken")


@pytest.mark.parametrize("error", ["InvalidDpopProof", "AccountTakedown", "Forbidden"])
def test_what_another_token_would_not_cure(home: Path, error: str) -> None:
    session = _session(InMemory("did:web:mira.example", Tokens("a", "r").json()), "http://x")
    assert not session.renew(session.fields("GET", "http://x/", None), error)


def test_tokens_are_kept_as_they_were(account: Account) -> None:
    kept = tokens(account)
    assert Tokens.read(kept.json()).json() == kept.json()
    assert kept.access not in repr(kept)
    assert kept.refresh not in repr(kept)
    assert (kept.binding is not None) == (account.how == "oauth")
    assert kept.binding is None or kept.binding.key.to_bytes().hex() not in repr(kept)


@pytest.mark.parametrize(
    "change",
    [
        lambda form: form.pop("access"),
        lambda form: form.update(refresh=3),
        lambda form: form["oauth"].update(key="00"),
        lambda form: form["oauth"].update(key="zz"),
        lambda form: form["oauth"].pop("issuer"),
        lambda form: form.update(oauth=[]) or form.update(access=None),
        lambda form: form.update(oauth="text"),
    ],
)
@pytest.mark.parametrize("account", ["oauth"], indirect=True)
def test_tokens_that_are_damaged(
    account: Account, change: Callable[[dict[str, Any]], object]
) -> None:
    form = tokens(account).json()
    change(form)
    with pytest.raises(Damaged):
        Tokens.read(form)


def _session(keeping: Keeping | InMemory, origin: str) -> Session:
    return Session(keeping, origin, Fetcher(development=True))
