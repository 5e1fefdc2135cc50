"""`lettaspace login`, `logout`, `whoami`."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from lettaspace.remote.account import Account
from tests.cli.conftest import Cli
from tests.remote.authserver import AuthServer
from tests.remote.oauthhost import browse, oauth_serving
from tests.server.hosts import PASSWORD
from tests.server.peers import peer, reply


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthServer]:
    with oauth_serving(tmp_path_factory.mktemp("host") / "host.db") as served:
        yield served


@pytest.fixture
def auth(served: AuthServer, monkeypatch: pytest.MonkeyPatch) -> AuthServer:
    """A host, and somebody who agrees in whatever browser is opened."""
    served.reset()
    monkeypatch.setattr(webbrowser, "open", browse)
    return served


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What is read from standard input."""
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))


def test_in_the_browser(cli: Cli, auth: AuthServer, home: Path) -> None:
    done = cli("login", auth.origin)
    assert done.code == 0
    assert done.err.startswith(f"Open this address to sign in:\n  {auth.origin}/oauth/authorize?")
    assert done.out.splitlines() == [
        f"Signed in to {auth.origin} as mira.localhost.",
        "It speaks spaces as they are now, with HTTP message signatures.",
        "Whether it gives blobs to anybody shows once it has some. lettaspace seals every blob.",
        f"The tokens are kept in {home}/session.json, which nobody else may read.",
    ]
    said = cli("whoami")
    assert said.code == 0
    assert said.out.splitlines()[:3] == [
        f"mira.localhost, {auth.did}",
        f"signed in to {auth.origin} by OAuth",
        "The host knows this session.",
    ]
    assert not (home / "space.db").exists()


def test_with_a_password(cli: Cli, auth: AuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, PASSWORD + "\n")
    done = cli("login", auth.origin, "--password-stdin", "--user", "mira.localhost", "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.json == {
        "did": auth.did,
        "handle": "mira.localhost",
        "host": auth.origin,
        "auth": "password",
        "session": "good",
        "tokens": "file",
        "capabilities": {
            "generation": "signature",
            "delegates": True,
            "leaksBlobs": None,
            "limits": {"writes": 200, "body": 1_000_000, "blob": 5_242_880},
        },
    }
    assert cli("whoami", "--json").json == done.json
    assert "with a password" in cli("whoami").out


def test_with_an_app_password(cli: Cli, auth: AuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    account = auth.host.accounts.get(auth.did)
    give(monkeypatch, auth.host.accounts.add_app_password(account, "laptop"))
    done = cli("login", auth.did, "--app-password", "--password-stdin")
    assert done.code == 0
    assert "App passwords never get one" in done.out


def test_a_password_is_asked_for(
    cli: Cli, auth: AuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, "")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked: list[str] = []

    def prompt(text: str, *, hide_input: bool = False, err: bool) -> str:
        asked.append(text)
        return PASSWORD if hide_input else "mira.localhost"

    monkeypatch.setattr("click.prompt", prompt)
    assert cli("login", auth.origin, "--app-password").code == 0
    assert asked == ["Handle or DID", "Password"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--app-password",),
        ("--app-password", "--user", "mira.localhost"),
        ("--password-stdin",),
        ("--password", PASSWORD),
        ("--app-password", PASSWORD),
    ],
)
def test_command_lines_that_are_wrong(
    cli: Cli, auth: AuthServer, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    give(monkeypatch, PASSWORD)
    refused = cli("login", auth.origin, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert auth.calls == []


def test_no_browser(cli: Cli, auth: AuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is for whoever reads it, here a test."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("click.echo", lambda text, **_: browse(text.split()[-1]))
    assert cli("login", auth.origin, "--no-browser").code == 0
    assert opened == []


def test_what_goes_wrong_is_one_line(
    cli: Cli, auth: AuthServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth.deny = True
    denied = cli("login", auth.origin, "--json")
    assert (denied.code, denied.json["error"]) == (1, "HostRefused")
    auth.offered = False
    without = cli("login", auth.origin)
    assert (without.code, without.out) == (1, "")
    assert without.err == (
        f"lettaspace: error: {auth.origin} offers no OAuth: sign in with --app-password\n"
    )
    give(monkeypatch, "wrong-secret-text")
    wrong = cli("login", auth.origin, "--password-stdin", "--user", "mira.localhost")
    assert wrong.code == 1
    assert "secret" not in wrong.err
    assert wrong.err.count("\n") == 1
    assert not (home / "account.json").exists()


def test_a_host_that_does_not_speak_spaces(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, PASSWORD)
    did = "did:web:127.0.0.1%3A{port}"
    known: list[str] = []

    def answer(connection: object, request: bytes) -> None:
        origin = known[0]
        name = did.format(port=origin.rpartition(":")[2])
        if b"did.json" in request:
            body = (
                f'{{"id":"{name}","service":[{{"id":"#atproto_pds",'
                f'"type":"AtprotoPersonalDataServer","serviceEndpoint":"{origin}"}}]}}'
            )
        elif b"createSession" in request:
            body = f'{{"accessJwt":"a","refreshJwt":"b","handle":"x.example","did":"{name}"}}'
        else:
            missing = b'{"error":"MethodNotImplemented","message":"Method Not Implemented"}'
            reply(missing, "501 Not Implemented", media_type="application/json")(
                connection,
                request,  # type: ignore[arg-type]
            )
            return
        reply(body.encode(), media_type="application/json")(
            connection,
            request,  # type: ignore[arg-type]
        )

    with peer(answer) as host:
        known.append(f"http://localhost:{host.port}")
        done = cli("login", known[0], "--password-stdin", "--user", "x.example")
        assert any(b"deleteSession" in request for request in host.requests)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"lettaspace: error: {known[0]} does not speak spaces: it has no "
        "com.atproto.space.listSpaces (MethodNotImplemented)\n"
    )
    assert not (home / "account.json").exists()
    assert not (home / "session.json").exists()


def test_signing_out(cli: Cli, auth: AuthServer, home: Path) -> None:
    cli("login", auth.origin)
    (home / "space.db").write_bytes(b"the space")
    done = cli("logout")
    assert done.code == 0
    assert done.out == f"mira.localhost is signed out. The space at {home} stays.\n"
    assert auth.count("/oauth/revoke") == 1
    assert {each.name for each in home.iterdir()} == {"space.db", "session.lock"}
    nobody = cli("whoami", "--json")
    assert (nobody.code, nobody.json["error"]) == (1, "SignedOut")
    assert cli("logout").code == 1


def test_signing_out_of_a_host_that_is_gone(cli: Cli, auth: AuthServer, home: Path) -> None:
    cli("login", auth.origin)
    account = Account.load(home)
    assert account is not None
    with peer(reply()) as gone:
        origin = f"http://localhost:{gone.port}"
    form = account.keeping.load()
    assert form is not None
    form["oauth"]["issuer"] = origin
    account.keeping.save(form)
    done = cli("logout", "--json")
    assert done.code == 0
    assert done.json == {"did": auth.did, "host": auth.origin, "ended": False}
    assert Account.load(home) is None


def test_sessions_that_are_no_more(cli: Cli, auth: AuthServer, home: Path) -> None:
    cli("login", auth.origin)
    account = Account.load(home)
    assert account is not None
    account.session().end()
    assert cli("whoami", "--offline", "--json").json["session"] == "kept"
    ended = cli("whoami")
    assert ended.code == 1
    assert "The host has ended this session: sign in again." in ended.out
    auth.calls.clear()
    assert cli("whoami", "--json").json["session"] == "ended"
    assert auth.calls == []
    account.keeping.forget()
    missing = cli("whoami", "--json")
    assert (missing.code, missing.json["session"]) == (1, "missing")
    assert cli("logout").code == 0


def test_a_host_that_cannot_be_reached(cli: Cli, auth: AuthServer, home: Path) -> None:
    cli("login", auth.origin)
    account = Account.load(home)
    assert account is not None
    with peer(reply()) as gone:
        port = gone.port
    path = home / "account.json"
    path.write_text(path.read_text().replace(auth.origin, f"http://localhost:{port}"))
    away = cli("whoami", "--json")
    assert (away.code, away.json["session"]) == (0, "unreachable")
