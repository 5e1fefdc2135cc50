"""Sessions over a real server, on both databases."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import jwt
import pytest
from sqlalchemy import select

from lettaspace.atproto.keys import SigningKey
from lettaspace.server import tables
from lettaspace.server.sessions import (
    ACCESS_SECONDS,
    GRACE_SECONDS,
    REFRESH_SECONDS,
    Session,
    Sessions,
)
from tests.server.hosts import PASSWORD, Server
from tests.waiting import SECONDS

REFRESHING = """
import sys, time
from lettaspace.server.sessions import Sessions
from lettaspace.space.database import Database
target, did, now, token = sys.argv[1:]
with Database.open(target) as database:
    session, tokens = Sessions(database, did, lambda: float(now)).refresh(token)
    print(tokens.access, tokens.refresh)
"""


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def test_signing_in_by_handle_or_did(server: Server) -> None:
    account = server.add_account()
    for name in ("mira.localhost", "MIRA.localhost", "@mira.localhost", account.did):
        made = server.sign_in(name)
        assert made["did"] == account.did
        assert made["handle"] == "mira.localhost"
        assert made["active"] is True
        assert "status" not in made
        assert made["didDoc"]["id"] == account.did
        told = server.get("getSession", made["accessJwt"])
        assert told.status_code == 200
        assert told.json() == {name: made[name] for name in ("handle", "did", "active", "didDoc")}


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("mira.localhost", PASSWORD + "!"),
        ("mira.localhost", ""),
        ("mira.localhost", "x" * 10_000),
        ("otto.localhost", PASSWORD),
        ("did:web:otto.example", PASSWORD),
        ("", PASSWORD),
        ("mira@localhost", PASSWORD),
        ("\0", "\0"),
        ("mira.localhost", "abcd-efgh-abcd-efgh"),
    ],
)
def test_what_does_not_sign_in_is_always_the_same(server: Server, name: str, password: str) -> None:
    server.add_account()
    answer = server.post("createSession", {"identifier": name, "password": password})
    assert error(answer) == (401, "AuthenticationRequired")
    assert answer.json()["message"] == "wrong name or password"


def test_tokens_say_what_they_are(server: Server) -> None:
    account = server.add_account()
    made = server.sign_in()
    access, refresh = (
        jwt.decode_complete(made[name], options={"verify_signature": False})
        for name in ("accessJwt", "refreshJwt")
    )
    assert access["header"] == {"alg": "HS256", "typ": "at+jwt"}
    assert refresh["header"] == {"alg": "HS256", "typ": "refresh+jwt"}
    for token, seconds in ((access, ACCESS_SECONDS), (refresh, REFRESH_SECONDS)):
        claims = token["payload"]
        assert claims["sub"] == account.did
        assert claims["aud"] == server.host.config.did
        assert claims["exp"] - claims["iat"] == seconds
    assert access["payload"]["scope"] == "com.atproto.access"


def test_tokens_of_the_wrong_kind_or_from_elsewhere(server: Server) -> None:
    server.add_account()
    made = server.sign_in()
    access, refresh = made["accessJwt"], made["refreshJwt"]
    claims = jwt.decode(access, options={"verify_signature": False})
    forged = [
        jwt.encode(claims, b"k" * 32, "HS256", headers={"typ": "at+jwt"}),
        jwt.encode(claims, None, "none", headers={"typ": "at+jwt"}),
        access[:-4] + "AAAA",
        access + ".x",
        "x" * 5000,
        "é",
        "",
        refresh,
    ]
    for token in forged:
        headers = {"authorization": f"Bearer {token}".strip().encode()}
        answer = server.client.get("/xrpc/com.atproto.server.getSession", headers=headers)
        assert error(answer) == (400, "InvalidToken"), token[:20]
    for method in ("refreshSession", "deleteSession"):
        assert error(server.post(method, token=access)) == (400, "InvalidToken")
        assert error(server.post(method)) == (401, "AuthMissing")
    twice = [("authorization", f"Bearer {access}")] * 2
    answer = server.client.get("/xrpc/com.atproto.server.getSession", headers=twice)
    assert error(answer) == (400, "InvalidToken")
    answer = server.client.get(
        "/xrpc/com.atproto.server.getSession", headers={"authorization": f"DPoP {access}"}
    )
    assert error(answer) == (400, "InvalidToken")


def test_another_hosts_secret_or_name_opens_nothing(server: Server) -> None:
    account = server.add_account()
    elsewhere = Sessions(server.host.database, "did:web:other.example", server.clock)
    token = elsewhere.open(account).access
    assert error(server.get("getSession", token)) == (400, "InvalidToken")


def test_access_ends_and_refreshing_brings_it_back(server: Server) -> None:
    server.add_account()
    made = server.sign_in()
    server.clock.pass_(ACCESS_SECONDS - 1)
    assert server.get("getSession", made["accessJwt"]).status_code == 200
    server.clock.pass_(1)
    assert error(server.get("getSession", made["accessJwt"])) == (400, "ExpiredToken")
    answer = server.post("refreshSession", token=made["refreshJwt"])
    assert answer.status_code == 200
    fresh = answer.json()
    assert fresh["handle"] == "mira.localhost"
    assert server.get("getSession", fresh["accessJwt"]).status_code == 200
    server.clock.pass_(REFRESH_SECONDS)
    assert error(server.post("refreshSession", token=fresh["refreshJwt"])) == (400, "ExpiredToken")


def test_o52_a_lost_answer_is_asked_for_again(server: Server) -> None:
    server.add_account()
    made = server.sign_in()
    first = server.post("refreshSession", token=made["refreshJwt"]).json()
    assert first["refreshJwt"] != made["refreshJwt"]
    server.clock.pass_(GRACE_SECONDS)
    again = server.post("refreshSession", token=made["refreshJwt"]).json()
    assert again == first
    # And the session goes on from there.
    next_ = server.post("refreshSession", token=first["refreshJwt"])
    assert next_.status_code == 200
    assert next_.json()["refreshJwt"] not in (first["refreshJwt"], made["refreshJwt"])


def test_o52_a_refresh_repeated_too_late_ends_the_session(server: Server) -> None:
    server.add_account()
    made, other = server.sign_in(), server.sign_in()
    fresh = server.post("refreshSession", token=made["refreshJwt"]).json()
    server.clock.pass_(GRACE_SECONDS + 1)
    answer = server.post("refreshSession", token=made["refreshJwt"])
    assert error(answer) == (400, "ExpiredToken")
    assert "sign in again" in answer.json()["message"]
    # Nobody knows which of the two who had it was the thief.
    assert error(server.get("getSession", fresh["accessJwt"])) == (400, "ExpiredToken")
    assert error(server.post("refreshSession", token=fresh["refreshJwt"])) == (400, "ExpiredToken")
    assert server.get("getSession", other["accessJwt"]).status_code == 200


def test_o52_many_threads_refresh_at_once(server: Server) -> None:
    server.add_account()
    made = server.sign_in()
    start = threading.Barrier(8)

    def refresh(_: int) -> tuple[int, str]:
        start.wait()
        answer = server.post("refreshSession", token=made["refreshJwt"])
        return answer.status_code, json.dumps(answer.json())

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(refresh, range(8)))
    assert len(answers) == 1
    ((status, text),) = answers
    assert status == 200
    assert server.get("getSession", json.loads(text)["accessJwt"]).status_code == 200


def test_o52_many_processes_refresh_at_once(server: Server, target: str) -> None:
    server.add_account()
    made = server.sign_in()
    arguments = [target, server.host.config.did, str(server.clock.now), made["refreshJwt"]]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", REFRESHING, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    done = [process.communicate(timeout=SECONDS) for process in processes]
    assert [err for _, err in done] == [b""] * 4
    assert len({out for out, _ in done}) == 1
    access = done[0][0].decode().split()[0]
    assert server.get("getSession", access).status_code == 200


def test_signing_out(server: Server) -> None:
    server.add_account()
    made, other = server.sign_in(), server.sign_in()
    fresh = server.post("refreshSession", token=made["refreshJwt"]).json()
    assert server.post("deleteSession", token=made["refreshJwt"]).status_code == 200
    assert server.post("deleteSession", token=made["refreshJwt"]).status_code == 200
    for token in (made["accessJwt"], fresh["accessJwt"]):
        assert error(server.get("getSession", token)) == (400, "ExpiredToken")
    assert error(server.post("refreshSession", token=fresh["refreshJwt"])) == (400, "ExpiredToken")
    assert server.get("getSession", other["accessJwt"]).status_code == 200


def test_signing_in_forgets_what_has_expired(server: Server) -> None:
    server.add_account()
    server.sign_in()
    server.clock.pass_(REFRESH_SECONDS)
    server.sign_in()
    with server.host.database.read() as connection:
        assert len(connection.execute(select(tables.sessions)).all()) == 1


def test_an_account_that_is_taken_down(server: Server) -> None:
    account = server.add_account()
    made = server.sign_in()
    server.host.accounts.set_state(account, "takendown")
    entry = {"identifier": "mira.localhost", "password": PASSWORD}
    assert error(server.post("createSession", entry)) == (401, "AccountTakedown")
    wrong = {**entry, "password": "not the password"}
    assert error(server.post("createSession", wrong)) == (401, "AuthenticationRequired")
    assert error(server.post("refreshSession", token=made["refreshJwt"])) == (
        401,
        "AccountTakedown",
    )
    for method in ("createAppPassword", "listAppPasswords"):
        call = (
            server.get
            if method.startswith("list")
            else lambda m, t: server.post(m, {"name": "x"}, t)
        )
        assert error(call(method, made["accessJwt"])) == (401, "AccountTakedown")
    let_in = server.post("createSession", {**entry, "allowTakendown": True})
    assert let_in.status_code == 200
    told = server.get("getSession", let_in.json()["accessJwt"]).json()
    assert (told["active"], told["status"]) == (False, "takendown")
    server.host.accounts.set_state(account, "active")
    assert server.post("refreshSession", token=made["refreshJwt"]).status_code == 200


def test_an_account_that_is_deactivated_signs_in(server: Server) -> None:
    server.host.accounts.set_state(server.add_account(), "deactivated")
    made = server.sign_in()
    assert (made["active"], made["status"]) == (False, "deactivated")


def test_app_passwords(server: Server) -> None:
    account = server.add_account()
    own = server.sign_in()["accessJwt"]
    made = server.post("createAppPassword", {"name": "laptop"}, own).json()
    assert (made["name"], made["privileged"]) == ("laptop", False)
    again = server.post("createAppPassword", {"name": "laptop"}, own)
    assert error(again) == (400, "InvalidRequest")
    assert error(server.post("createAppPassword", {"name": ""}, own)) == (400, "InvalidRequest")
    server.post("createAppPassword", {"name": "phone", "privileged": True}, own)
    listed = server.get("listAppPasswords", own).json()["passwords"]
    assert [(each["name"], each["privileged"]) for each in listed] == [
        ("laptop", False),
        ("phone", True),
    ]
    assert "password" not in listed[0]

    session = server.sign_in(account.did, made["password"])
    token = session["accessJwt"]
    assert server.get("getSession", token).status_code == 200
    read = server.host.sessions.read(token)
    assert (read.did, read.app_password, read.is_app_password) == (account.did, "laptop", True)
    assert jwt.decode(token, options={"verify_signature": False})["scope"] == "com.atproto.appPass"
    assert error(server.get("listAppPasswords", token)) == (400, "InvalidToken")
    assert error(server.post("createAppPassword", {"name": "x"}, token)) == (400, "InvalidToken")
    assert error(server.post("revokeAppPassword", {"name": "x"}, token)) == (400, "InvalidToken")

    assert server.post("revokeAppPassword", {"name": "laptop"}, own).status_code == 200
    assert error(server.get("getSession", token)) == (400, "ExpiredToken")
    assert error(server.post("refreshSession", token=session["refreshJwt"])) == (
        400,
        "ExpiredToken",
    )
    entry = {"identifier": account.did, "password": made["password"]}
    assert error(server.post("createSession", entry)) == (401, "AuthenticationRequired")
    assert server.get("getSession", own).status_code == 200


def test_a_new_password_signs_out_who_had_the_old_one(server: Server) -> None:
    account = server.add_account()
    own = server.sign_in()
    app = server.host.accounts.add_app_password(account, "laptop")
    program = server.sign_in(password=app)
    server.host.accounts.set_password(account, "another password")
    assert error(server.get("getSession", own["accessJwt"])) == (400, "ExpiredToken")
    assert server.get("getSession", program["accessJwt"]).status_code == 200
    server.sign_in(password="another password")


def test_what_this_server_is(server: Server) -> None:
    told = server.get("describeServer").json()
    assert told == {
        "did": server.host.config.did,
        "availableUserDomains": [],
        "inviteCodeRequired": True,
    }


def test_signing_in_is_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[tuple[str, ...]] = []
    monkeypatch.setattr(server.host.limits, "spend", lambda *what: spent.append(what))
    for name in ("Mira.localhost", "@mira.localhost"):
        server.post("createSession", {"identifier": name, "password": "x"})
    assert [each for each in spent if each[0] == "signInAs"] == [("signInAs", "mira.localhost")] * 2


def test_nothing_secret_is_said(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    account = server.add_account()
    made = server.sign_in()
    app = server.host.accounts.add_app_password(account, "laptop")
    server.sign_in(password=app)
    session, tokens = server.host.sessions.refresh(made["refreshJwt"])
    key = server.host.accounts.signing_key(account.did)
    with server.host.database.read() as connection:
        kept = connection.execute(select(tables.accounts.c.password)).scalar_one()
    said = [
        caplog.text,
        repr(session),
        repr(tokens),
        repr(account),
        repr(server.host.config),
        repr(server.host.accounts),
        repr(server.host.sessions),
        repr(key),
        repr(server.host.accounts.prove("mira.localhost", PASSWORD)),
        server.post("createSession", {"identifier": "mira.localhost", "password": app[:-1]}).text,
        server.get("getSession", made["accessJwt"] + "x").text,
    ]
    secrets = [PASSWORD, app, app[:-1], made["accessJwt"], made["refreshJwt"], tokens.refresh,
               tokens.access, kept, key.to_bytes().hex(), str(key.to_bytes())]  # fmt: skip
    for text in said:
        for secret in secrets:
            assert secret not in text
    assert isinstance(session, Session)
    assert SigningKey.from_bytes("secp256k1", key.to_bytes()).did == key.did
