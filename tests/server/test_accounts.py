"""Accounts and their passwords, on either database."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import select, update

from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import Conflict, InvalidInput, NotFound
from lettaspace.server import passwords, tables
from lettaspace.server.accounts import STATES, Account, Accounts, Proven, check_handle
from lettaspace.server.config import web_did
from lettaspace.server.errors import XrpcError
from lettaspace.space.database import Database
from tests.server.hosts import NOW, PASSWORD, Clock

HANDLE = "mira.example.com"
DID = web_did(HANDLE)

HASHER = passwords._hasher
"""The real one, which the tests replace."""


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture
def mira(accounts: Accounts, key: SigningKey) -> Account:
    return accounts.add(HANDLE, DID, password=PASSWORD, key=key)


def test_an_account_is_found_by_its_names(accounts: Accounts, mira: Account) -> None:
    assert mira == Account(mira.id, DID, HANDLE, "active", int(NOW))
    assert accounts.by_did(DID) == accounts.by_handle(HANDLE) == mira
    assert accounts.by_handle("Mira.Example.com") == mira
    for name in (DID, HANDLE, "@" + HANDLE):
        assert accounts.get(name) == mira


@pytest.mark.parametrize(
    "name", ["", "@", "otto.example.com", "did:web:x", "\0", "\ud800", "K" * 99]
)
def test_names_that_nobody_has(accounts: Accounts, mira: Account, name: str) -> None:
    assert accounts.by_did(name) is None
    assert accounts.by_handle(name) is None
    assert accounts.prove(name, PASSWORD) is None
    with pytest.raises(NotFound):
        accounts.get(name)


def test_handles_and_dids_are_had_once(accounts: Accounts, mira: Account, key: SigningKey) -> None:
    other = "otto.example.com"
    for handle, did in ((HANDLE, web_did(other)), (other, DID)):
        with pytest.raises(Conflict):
            accounts.add(handle, did, password=PASSWORD, key=key)
    with pytest.raises(InvalidInput):
        accounts.add(other, "did:web", password=PASSWORD, key=key)
    with pytest.raises(InvalidInput):
        accounts.add(other, web_did(other), password="short", key=key)
    assert accounts.all() == [mira]
    otto = accounts.add(other, web_did(other), password=PASSWORD, key=key)
    anna = accounts.add("anna.example.com", "did:plc:" + "a" * 24, password=PASSWORD, key=key)
    assert accounts.all() == [anna, mira, otto]


@pytest.mark.parametrize("curve", ["secp256k1", "p256"])
def test_an_account_keeps_its_key(accounts: Accounts, curve: str) -> None:
    key = SigningKey.generate(curve)  # type: ignore[arg-type]
    accounts.add(HANDLE, DID, password=PASSWORD, key=key)
    kept = accounts.signing_key(DID)
    assert (kept.curve, kept.to_bytes(), kept.did) == (curve, key.to_bytes(), key.did)
    with pytest.raises(NotFound):
        accounts.signing_key("did:web:otto.example.com")


def test_states(accounts: Accounts, mira: Account) -> None:
    for state in STATES:
        accounts.set_state(mira, state)
        found = accounts.get(DID)
        assert found.state == state
        assert found.is_active == (state == "active")
    with pytest.raises(InvalidInput):
        accounts.set_state(mira, "deleted")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "handle"),
    [
        (HANDLE, HANDLE),
        ("@Mira.Example.COM", HANDLE),
        ("xn--mra-7ma.example.com", "xn--mra-7ma.example.com"),
    ],
)
def test_handles(text: str, handle: str) -> None:
    assert check_handle(text) == handle


@pytest.mark.parametrize(
    "text",
    ["", "mira", "mira.", ".example.com", "mira example.com", "mira..example.com", "-a.example.com",
     "mira.example.com.", "mìra.example.com", "mira.1", "a" * 64 + ".com", "a." * 127 + "com",
     "mira.local", "mira.onion", "mira.invalid", "mira.example", "mira.alt", "mira.arpa",
     "mira.internal", "did:web:x", "@@mira.example.com", "mira.example.com\n"],
)  # fmt: skip
def test_handles_that_are_none(text: str) -> None:
    for development in (False, True):
        with pytest.raises(InvalidInput):
            check_handle(text, development=development)


@pytest.mark.parametrize("text", ["mira.localhost", "mira.test"])
def test_handles_for_development(text: str) -> None:
    assert check_handle(text, development=True) == text
    with pytest.raises(InvalidInput):
        check_handle(text)


@pytest.mark.parametrize(
    "password", ["12345678", "x" * 256, "パスワード です 🔑", "a\0bcdefgh", " " * 8]
)
def test_any_password_will_do(accounts: Accounts, mira: Account, password: str) -> None:
    accounts.set_password(mira, password)
    assert accounts.prove(HANDLE, password) == Proven(mira, None)
    assert accounts.prove(HANDLE, PASSWORD) is None
    assert accounts.prove(HANDLE, password[:-1]) is None
    assert accounts.prove(HANDLE, password + "x") is None


@pytest.mark.parametrize("password", ["", "1234567", "x" * 257])
def test_passwords_of_a_bad_length(accounts: Accounts, mira: Account, password: str) -> None:
    with pytest.raises(InvalidInput):
        accounts.set_password(mira, password)
    assert accounts.prove(HANDLE, PASSWORD) is not None


def test_as_much_work_for_nobody(
    monkeypatch: pytest.MonkeyPatch, accounts: Accounts, mira: Account
) -> None:
    """Whether there is such an account cannot be told by the time it takes."""
    looked: list[str | None] = []
    monkeypatch.setattr(passwords, "matches", lambda _, kept: looked.append(kept) is not None)
    for name in (HANDLE, "otto.example.com", "\0", ""):
        for password in ("wrong password", passwords.new_app_password()):
            accounts.prove(name, password)
    assert len(looked) == 8
    assert [kept is None for kept in looked] == [False] * 2 + [True] * 6


def test_nobody_matches_nothing() -> None:
    assert not passwords.matches("", None)
    assert not passwords.matches("anything", None)
    assert not passwords.matches("anything", "not what argon2 makes")


def test_where_too_many_sign_in_some_are_sent_away(accounts: Accounts, mira: Account) -> None:
    places = [passwords._waiting.acquire(blocking=False) for _ in range(4)]
    try:
        assert places == [True] * 4
        with pytest.raises(XrpcError) as caught:
            accounts.prove(HANDLE, PASSWORD)
        assert (caught.value.name, caught.value.status) == ("NotEnoughResources", 503)
        app = accounts.add_app_password(mira, "laptop")  # costs nothing to compare
        assert accounts.prove(HANDLE, app) == Proven(mira, "laptop")
    finally:
        for _ in places:
            passwords._waiting.release()
    assert accounts.prove(HANDLE, PASSWORD) == Proven(mira, None)


def test_what_is_kept_is_no_password(database: Database, accounts: Accounts, mira: Account) -> None:
    app = accounts.add_app_password(mira, "laptop")
    with database.read() as connection:
        own = connection.execute(select(tables.accounts.c.password)).scalar_one()
        kept = connection.execute(select(tables.app_passwords.c.hash)).scalar_one()
    assert own.startswith("$argon2id$v=19$")
    assert len(kept) == 32
    assert kept == passwords.keep_app_password(DID, app)
    assert kept != passwords.keep_app_password("did:web:otto.example.com", app)


def test_what_a_password_costs() -> None:
    assert HASHER.hash(PASSWORD).startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_generated_passwords() -> None:
    made = {passwords.new_app_password() for _ in range(50)}
    assert len(made) == 50
    for password in made:
        assert re.fullmatch(r"[a-z2-7]{4}(-[a-z2-7]{4}){3}", password)
        assert passwords.is_app_password(password)
    assert len({passwords.new_password() for _ in range(50)}) == 50
    assert not any(passwords.is_app_password(passwords.new_password()) for _ in range(50))


def test_app_passwords(accounts: Accounts, mira: Account, clock: Clock, key: SigningKey) -> None:
    laptop = accounts.add_app_password(mira, "laptop")
    clock.pass_(60)
    phone = accounts.add_app_password(mira, "phone 📱", privileged=True)
    assert [
        (each.name, each.privileged, each.created_at) for each in accounts.app_passwords(mira)
    ] == [
        ("laptop", False, int(NOW)),
        ("phone 📱", True, int(NOW) + 60),
    ]
    assert accounts.prove(HANDLE, laptop) == Proven(mira, "laptop")
    assert accounts.prove(DID, phone) == Proven(mira, "phone 📱")
    with pytest.raises(Conflict):
        accounts.add_app_password(mira, "laptop")
    otto = accounts.add("otto.example.com", "did:web:o.example", password=PASSWORD, key=key)
    assert accounts.prove(otto.did, laptop) is None
    assert not accounts.remove_app_password(otto, "laptop")
    assert accounts.remove_app_password(mira, "laptop")
    assert not accounts.remove_app_password(mira, "laptop")
    assert accounts.prove(HANDLE, laptop) is None
    assert accounts.prove(HANDLE, phone) == Proven(mira, "phone 📱")


@pytest.mark.parametrize("name", ["", " ", " laptop", "a\nb", "x" * 65, "\ud800", "\0"])
def test_names_that_no_app_password_has(accounts: Accounts, mira: Account, name: str) -> None:
    with pytest.raises(InvalidInput):
        accounts.add_app_password(mira, name)


def test_an_own_password_that_looks_like_an_app_password(accounts: Accounts, mira: Account) -> None:
    password = passwords.new_app_password()
    accounts.set_password(mira, password)
    assert accounts.prove(HANDLE, password) == Proven(mira, None)


def test_a_damaged_password_signs_nobody_in(
    database: Database, accounts: Accounts, mira: Account
) -> None:
    with database.write() as connection:
        connection.execute(update(tables.accounts).values(password="damaged"))
    assert accounts.prove(HANDLE, PASSWORD) is None
