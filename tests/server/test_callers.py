"""Who calls: credentials over time, services, and what is remembered of tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select, update

from lettaspace.atproto import methods, tokens
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import Refused
from lettaspace.server import callers, maintenance, replay, tables
from lettaspace.server.calls import Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.presented import Presented
from lettaspace.server.replay import REVOKED_SECONDS, Revocations, UsedTokens
from lettaspace.space.database import Database
from tests.server.worlds import NOTE, Headers, World, bearer, new_prover, world

SPACE = "com.atproto.space."
GET = SPACE + "getRecord"
NOTIFY = SPACE + "notifyWrite"


@pytest.fixture
def there(target) -> Iterator[World]:
    with world(target) as populated:
        yield populated


def read(there: World, headers: Headers, nsid: str = GET, **values: Any) -> str:
    """The name of the error, or `ok`."""
    values = {"space": there.spaces["open"], "repo": there.dids["mira"], **values}
    if nsid == GET:
        values |= {"collection": NOTE, "rkey": "first"}
    answer = there.call(nsid, headers, **values)
    return "ok" if answer.status_code == 200 else str(answer.json()["error"])


def test_one_set_of_fields_is_good_for_many_requests_until_the_credential_ends(there):
    prover = new_prover()
    credential = there.mint(prover)
    headers = there.present(prover, credential, GET, there.dids["mira"])
    for _ in range(3):
        assert read(there, headers) == "ok"
    assert read(there, headers, SPACE + "listRecords") == "ok"
    assert read(there, headers, SPACE + "listRecords", repo=there.dids["yuki"]) == (
        "BadSpaceAudience"
    )
    assert read(there, headers, SPACE + "listRecords", space=there.spaces["other"]) == (
        "InvalidCredential"
    )
    there.clock.pass_(599)
    assert read(there, headers) == "ok"
    there.clock.pass_(5)
    assert read(there, headers) == "ok"  # so much may clocks differ
    there.clock.pass_(1)
    assert read(there, headers) == "JwtExpired"
    there.clock.pass_(-700)
    assert read(there, headers) == "BadJwt"  # it is not yet issued


def test_a_revocation_counts_at_once_and_for_one_space(there):
    prover = new_prover()
    credential = there.mint(prover, jti="one")
    headers = there.present(prover, credential, GET, there.dids["mira"])
    assert read(there, headers) == "ok"
    there.host.revocations.add(there.spaces["other"], ["one"])
    there.host.revocations.add(there.spaces["open"], ["two"])
    assert read(there, headers) == "ok"
    there.host.revocations.add(there.spaces["open"], ["one", "one", "three"])
    there.host.revocations.add(there.spaces["open"], ["one"])
    assert read(there, headers) == "CredentialRevoked"
    # Sessions go on, and other credentials.
    assert read(there, there.session("mira")) == "ok"
    assert read(there, there.with_credential(GET, there.dids["mira"])) == "ok"


@pytest.mark.parametrize("index", [1, 2, 3])
def test_what_is_not_the_same_proves_nothing(there, index):
    """Nothing of the fields can be changed after they were good once."""
    prover = new_prover()
    headers = there.present(prover, there.mint(prover), GET, there.dids["mira"])
    assert read(there, headers) == "ok"
    name, value = headers[index]
    changed = list(headers)
    changed[index] = name, there.dids["yuki"] if index == 1 else value.replace("=", "=x", 1)
    assert read(there, changed) == "BadSpaceSignature"
    assert read(there, headers[:index] + headers[index + 1 :]) == "BadSpaceSignature"
    # A signature field may be repeated, for it is a dictionary.
    twice = read(there, [*headers, headers[index]])
    assert twice == "BadSpaceSignature"


def test_a_proof_of_the_alpha_is_good_once_even_after_a_restart(target):
    with world(target) as there:
        prover = new_prover(alpha=True)
        credential = there.mint(prover)
        headers = there.present(prover, credential, GET, there.dids["mira"])
        assert read(there, headers) == "ok"
        assert read(there, headers) == "JwtReplayed"
        used = UsedTokens(there.host.database, "dpop")
        with there.host.database.read() as connection:
            row = connection.execute(select(tables.used)).one()
        assert used.seen(row.issuer, row.jti, 0)
        assert not UsedTokens(there.host.database, "delegation").seen(row.issuer, row.jti, 0)
        again = there.present(prover, credential, GET, there.dids["mira"])
        assert read(there, again) == "ok"
        # Made for one method and address only.
        other = there.present(prover, credential, SPACE + "listRecords", there.dids["mira"])
        assert read(there, other) == "BadDpopProof"


def test_a_new_key_of_the_authority(there):
    old = there.with_credential(GET, there.dids["mira"])
    key = SigningKey.generate("p256")
    with there.host.database.write() as connection:
        connection.execute(
            update(tables.accounts)
            .where(tables.accounts.c.did == there.dids["ada"])
            .values(key=key.to_bytes(), key_type=key.curve)
        )
    assert read(there, old) == "BadJwtSignature"
    there.keys["ada"] = key
    assert read(there, there.with_credential(GET, there.dids["mira"])) == "ok"


def test_an_authority_that_cannot_be_found(there):
    prover = new_prover()
    for did, error in (
        ("did:web:localhost%3A9", "UpstreamTimeout"),  # nobody listens there
        ("did:example:abc", "BadJwtIss"),
    ):
        ref = tokens.SpaceRef(did, "com.example.kind", "x")
        credential = tokens.mint_credential(
            SigningKey.generate(), ref, prover.holder, there.clock()
        )
        headers = there.present(prover, credential, GET, there.dids["mira"])
        assert read(there, headers) == error


# Services


def call(headers: Headers, nsid: str = NOTIFY) -> Call:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Call(methods.method(nsid), {}, raw, None, 1e18)


def service(there: World, **changes: Any) -> Headers:
    options = {
        "key": there.keys["mira"],
        "issuer": there.dids["mira"],
        "audience": "did:web:x.example#some_service",
        "lxm": NOTIFY,
        "now": there.clock(),
    }
    return bearer(tokens.mint_service_auth(**(options | changes)))


def test_a_service_that_calls(there):
    found = callers.service(there.host, call(service(there)))
    assert found.issuer == there.dids["mira"]
    assert found.audience == "did:web:x.example#some_service"
    assert found.lxm == NOTIFY


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda _: [], "MissingJwt"),
        (lambda _: [("authorization", "Basic x")], "MissingJwt"),
        (lambda _: bearer("x"), "BadJwt"),
        (lambda there: there.session("mira"), "BadJwtType"),
        (lambda there: service(there) * 2, "BadSpaceSignature"),
        (lambda there: service(there, lxm=GET), "BadJwt"),
        (lambda there: service(there, key=there.keys["yuki"]), "BadJwtSignature"),
        (lambda there: service(there, now=there.clock() - 90), "JwtExpired"),
        (lambda there: service(there, now=there.clock() + 90), "BadJwt"),
        (lambda there: service(there, issuer="nobody"), "BadJwtIss"),
        (lambda there: there.with_credential(NOTIFY, there.dids["ada"]), "MissingJwt"),
    ],
)
def test_what_is_no_service(there, change, code):
    with pytest.raises((Refused, XrpcError)) as raised:
        callers.service(there.host, call(change(there)))
    error = raised.value
    assert (error.code if isinstance(error, Refused) else error.name) == code


# What is remembered


def test_a_token_is_used_once_however_many_try(database):
    used = UsedTokens(database, "delegation")
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda _: used.seen("did:web:a.example", "x", 1e9), range(24)))
    assert sorted(seen) == [False] + [True] * 23


def test_tokens_are_told_apart_by_kind_issuer_and_id(database):
    used = UsedTokens(database, "delegation")
    assert not used.seen("a", "x", 0)
    assert not used.seen("b", "x", 0)
    assert not used.seen("a", "y", 0)
    assert not UsedTokens(database, "attestation").seen("a", "x", 0)
    long, other = "x" * 15_000, "x" * 14_999 + "y"  # longer than a database indexes
    assert not used.seen(long, long, 0)
    assert not used.seen(long, other, 0)
    assert used.seen(long, long, 0)


def test_several_processes_share_what_is_remembered(target, database, clock):
    with Database.open(target) as other:
        assert not UsedTokens(database, "dpop").seen("a", "x", clock())
        assert UsedTokens(other, "dpop").seen("a", "x", clock())
        Revocations(database, clock).add("at://space", ["one"])
        assert Revocations(other, clock).revoked("at://space", "one")
        assert not Revocations(other, clock).revoked("at://space", "two")


def test_cleaning_loses_nothing_that_still_counts(database, clock):
    used, revocations = UsedTokens(database, "dpop"), Revocations(database, clock)
    now = clock()
    assert not used.seen("a", "short", now + 10)
    assert not used.seen("a", "long", now + 3600)
    revocations.add("at://space", ["first"])
    clock.pass_(3600)
    revocations.add("at://space", ["second", "first"])

    def rows() -> tuple[int, int]:
        with database.write() as connection:
            replay.clean(connection, clock())
            counts = (
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (tables.used, tables.revoked)
            )
            return next(counts), next(counts)

    # A token is taken for a little while after its expiry, and so long it is remembered.
    assert rows() == (1, 2)
    assert used.seen("a", "long", now + 3600)
    clock.pass_(5)
    assert rows() == (1, 2)
    clock.pass_(REVOKED_SECONDS - 3600 - 6)
    assert rows() == (0, 2)
    assert revocations.revoked("at://space", "first")
    # Whatever it was revoked for has expired by now, also where it was revoked again.
    clock.pass_(1)
    assert rows() == (0, 1)
    clock.pass_(3600)
    assert rows() == (0, 0)


def test_maintenance_does_all_of_it(there):
    there.host.revocations.add(there.spaces["open"], ["one"])
    there.clock.pass_(REVOKED_SECONDS + 1)
    there.host.revocations.add(there.spaces["open"], ["two"])
    maintenance.maintain(there.host)
    with there.host.database.read() as connection:
        assert list(connection.execute(select(tables.revoked.c.jti)).scalars()) == ["two"]


def test_presented_credentials_are_forgotten_after_a_while_and_when_there_are_many(there):
    prover = new_prover()
    headers = there.present(prover, there.mint(prover), GET, there.dids["mira"])
    raw = call(headers, GET)
    access = callers.holder(there.host, raw)
    kept = Presented()
    now = there.clock()
    assert kept.find(raw.headers, now) is None
    kept.add(raw.headers, access, now)
    assert kept.find(raw.headers, now + 59) is access
    assert kept.find([*raw.headers, (b"accept", b"*/*")], now) is access
    assert kept.find(raw.headers[1:], now) is None
    assert kept.find(raw.headers, now + 60) is None
    assert kept.find(raw.headers, now) is None  # gone for good
    kept.add(raw.headers, access, now)
    assert kept.find(raw.headers, now - 1) is None  # the clock was set back
    kept.add(raw.headers, access, now)
    threads = [
        threading.Thread(
            target=lambda number=number: [
                kept.add([(b"signature", b"%d %d" % (number, n))], access, now) for n in range(1500)
            ]
        )
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.find(raw.headers, now) is None
