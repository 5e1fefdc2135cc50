"""Delegations, credentials and revocations: each check, its error, and which comes first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto import jwt
from lettaspace.atproto.attestation import mint_attestation
from lettaspace.atproto.jwk import to_jwk
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.proof import Generation
from lettaspace.atproto.tokens import mint_delegation
from lettaspace.atproto.uri import parse_space_ref
from tests.server.hosts import Server
from tests.server.parties import (
    MEMBERS,
    PUBLIC,
    SIMPLE,
    SPACE,
    Reader,
    Service,
    User,
    error,
    managed_by,
    only,
    service,
)

EXCHANGE = SPACE + "getSpaceCredential"
REVOKED = SPACE + "notifyCredentialRevoked"


@pytest.fixture
def target(tmp_path: Path) -> str:
    """One kind of database: what is stored here is tested beside its table."""
    return str(tmp_path / "host.db")


@pytest.fixture
def alice(server: Server) -> User:
    return User(server, "alice")


@pytest.fixture
def bob(server: Server) -> User:
    return User(server, "bob")


@pytest.fixture
def app() -> Iterator[Service]:
    with service() as running:
        yield running


def test_a_delegation_says_what_it_should(alice: User) -> None:
    uri = "at://did:web:zoe.example/space/org.example.room/self"
    token = jwt.parse(alice.delegate(uri))
    key = alice.server.host.accounts.signing_key(alice.did).verifying_key
    assert token.is_signed_by(key)
    assert token.header["typ"] == "atproto-space-delegation+jwt"
    assert token.header["kid"] == "#atproto"
    now = int(alice.server.clock())
    assert {**token.claims, "jti": ""} == {
        "iss": alice.did,
        "sub": uri,
        "aud": "did:web:zoe.example#atproto_space_host",
        "iat": now,
        "exp": now + 60,
        "jti": "",
    }


def test_app_passwords_get_no_delegation(alice: User) -> None:
    password = alice.server.host.accounts.add_app_password(alice.account, "phone", privileged=True)
    alice.sign_in(password)
    answer = alice.get(SPACE + "getDelegationToken", space=alice.create())
    assert error(answer) == (400, "InvalidToken")


@pytest.mark.parametrize("generation", ["signature", "dpop"])
def test_a_credential_says_what_it_should(alice: User, generation: Generation) -> None:
    uri = alice.create()
    reader = Reader(alice.server, generation).open(alice, uri)
    token = jwt.parse(reader.credential)
    key = alice.server.host.accounts.signing_key(alice.did).verifying_key
    assert token.is_signed_by(key)
    assert token.header["typ"] == "atproto-space-credential+jwt"
    assert token.header["kid"] == "#atproto"
    now = int(alice.server.clock())
    holder = reader.prover.holder
    cnf = {"jkt": holder} if isinstance(holder, str) else {"kid": holder.did}
    assert {**token.claims, "jti": ""} == {
        "iss": alice.did,
        "sub": uri,
        "cnf": cnf,
        "iat": now,
        "exp": now + 600,
        "jti": "",
    }
    assert token.claims["jti"]


# The order of the checks, each with all that follows made right


def test_an_exchange_without_a_token(alice: User) -> None:
    uri = alice.create()
    answer = alice.server.client.post(f"/xrpc/{EXCHANGE}", json={"space": uri})
    assert error(answer) == (401, "MissingJwt")
    # A session is no delegation.
    answer = alice.post(EXCHANGE, space=uri)
    assert error(answer) in ((401, "BadJwtType"), (401, "BadJwt"))


def test_a_delegation_of_another_key(alice: User, bob: User) -> None:
    uri = alice.create(read=PUBLIC)
    key = SigningKey.generate()
    token = mint_delegation(key, bob.did, parse_space_ref(uri), bob.server.clock())
    assert error(Reader(bob.server).exchange(token, uri)) == (401, "BadJwtSignature")


def test_a_delegation_of_nobody(alice: User) -> None:
    uri = alice.create(read=PUBLIC)
    key = SigningKey.generate()
    did = f"did:web:nobody.localhost%3A{alice.server.host.config.origin.rpartition(':')[2]}"
    token = mint_delegation(key, did, parse_space_ref(uri), alice.server.clock())
    assert error(Reader(alice.server).exchange(token, uri)) == (401, "BadJwtIss")


def test_an_expired_delegation(alice: User) -> None:
    uri = alice.create()
    token = alice.delegate(uri)
    alice.server.clock.pass_(66)
    assert error(Reader(alice.server).exchange(token, uri)) == (401, "JwtExpired")


@pytest.mark.parametrize("generation", ["signature", "dpop"])
def test_a_bad_proof_does_not_use_the_delegation_up(alice: User, generation: Generation) -> None:
    uri = alice.create()
    token = alice.delegate(uri)
    headers = {"authorization": f"Bearer {token}"}
    answer = alice.server.client.post(f"/xrpc/{EXCHANGE}", json={"space": uri}, headers=headers)
    assert error(answer) == (401, "BadSpaceSignature")
    headers["dpop"] = "x.y.z"
    answer = alice.server.client.post(f"/xrpc/{EXCHANGE}", json={"space": uri}, headers=headers)
    assert error(answer) == (401, "BadDpopProofSignature")
    reader = Reader(alice.server, generation)
    assert reader.exchange(token, uri).status_code == 200
    for again in (reader, Reader(alice.server)):
        assert error(again.exchange(token, uri)) == (401, "JwtReplayed")


def test_asking_for_another_space(alice: User) -> None:
    one, two = alice.create("one"), alice.create("two")
    token = alice.delegate(one)
    reader = Reader(alice.server)
    assert error(reader.exchange(token, two)) == (400, "InvalidDelegationToken")
    assert error(reader.exchange(token, one)) == (401, "JwtReplayed")


@pytest.mark.parametrize(
    "space", ["", "at://x", "at://did:web:a.example/space/org.example.room/self#/x", 7, None]
)
def test_malformed_spaces(alice: User, space: Any) -> None:
    uri = alice.create()
    answer = Reader(alice.server).exchange(alice.delegate(uri), space)
    assert error(answer) == (400, "InvalidRequest")
    answer = alice.get(SPACE + "getDelegationToken", space=space or "")
    assert error(answer) == (400, "InvalidRequest")


def test_spaces_that_are_not_here(alice: User, bob: User) -> None:
    for uri in (
        "at://did:web:zoe.example/space/org.example.room/self",
        f"at://{alice.did}/space/org.example.room/none",
    ):
        # An attestation is looked at first, where the authority is here.
        answer = Reader(bob.server).exchange(bob.delegate(uri), uri)
        assert error(answer) == (400, "SpaceNotFound")


def test_an_authority_that_is_out_of_service_admits_nobody(alice: User, bob: User) -> None:
    uri = alice.create(read=PUBLIC)
    accounts = alice.server.host.accounts
    for state, refusal in (("takendown", "RepoTakendown"), ("deactivated", "RepoDeactivated")):
        accounts.set_state(alice.account, state)  # type: ignore[arg-type]
        answer = Reader(bob.server).exchange(bob.delegate(uri), uri)
        assert error(answer) == (400, refusal)


def test_who_may_read(alice: User, bob: User) -> None:
    members, public = alice.create("members"), alice.create("public", read=PUBLIC)

    def ask(user: User, uri: str) -> str:
        answer = Reader(user.server).exchange(user.delegate(uri), uri)
        return "" if answer.status_code == 200 else error(answer)[1]

    assert ask(bob, public) == ""
    assert ask(alice, members) == ""
    assert ask(bob, members) == "UserNotAuthorized"
    alice.admit(members, bob.did, read=False, write=True)
    assert ask(bob, members) == "UserNotAuthorized"
    alice.admit(members, bob.did, read=True, write=False)
    assert ask(bob, members) == ""


# Apps


@pytest.fixture
def client_id(app: Service) -> str:
    """An app with one key, which its metadata has."""
    app.key = SigningKey.generate("p256")
    url = f"http://localhost:{app.port}/client.json"
    keys = {"keys": [to_jwk(app.key.verifying_key) | {"kid": "k1"}]}
    app.documents["/client.json"] = {"client_id": url, "jwks": keys}
    return url


def attest(app: Service, client_id: str, alice: User, **more: Any) -> str:
    return mint_attestation(app.key, "k1", client_id, alice.did, alice.server.clock(), **more)


def test_only_apps_on_the_list(alice: User, app: Service, client_id: str) -> None:
    uri = alice.create(apps=only(client_id))
    other = alice.create("other", apps=only("https://other.example/client.json"))
    reader = Reader(alice.server)
    assert error(reader.exchange(alice.delegate(uri), uri)) == (400, "AppNotAuthorized")
    token = attest(app, client_id, alice)
    answer = reader.exchange(alice.delegate(other), other, clientAttestation=token)
    assert error(answer) == (400, "AppNotAuthorized")
    # It was good, and so it is used up.
    answer = reader.exchange(alice.delegate(uri), uri, clientAttestation=token)
    assert error(answer) == (400, "InvalidClientAttestation")
    token = attest(app, client_id, alice)
    assert reader.exchange(alice.delegate(uri), uri, clientAttestation=token).status_code == 200


def test_keys_in_another_place(alice: User, app: Service, client_id: str) -> None:
    uri = alice.create(apps=only(client_id))
    metadata = app.documents["/client.json"]
    app.documents["/keys.json"] = metadata.pop("jwks")
    metadata["jwks_uri"] = f"http://localhost:{app.port}/keys.json"
    answer = Reader(alice.server).exchange(
        alice.delegate(uri), uri, clientAttestation=attest(app, client_id, alice)
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "flaw",
    ["text", "key", "audience", "expired", "client", "metadata", "both", "neither", "nowhere"],
)
def test_attestations_that_prove_nothing(
    alice: User, app: Service, client_id: str, flaw: str
) -> None:
    # Also where any app may come: one that lies about itself may not.
    uri = alice.create()
    token = attest(app, client_id, alice)
    metadata = app.documents["/client.json"]
    now = alice.server.clock()
    if flaw == "text":
        token = "x"
    elif flaw == "key":
        token = mint_attestation(SigningKey.generate("p256"), "k1", client_id, alice.did, now)
    elif flaw == "audience":
        token = mint_attestation(app.key, "k1", client_id, "did:web:zoe.example", now)
    elif flaw == "expired":
        token = mint_attestation(app.key, "k1", client_id, alice.did, now - 61)
    elif flaw == "client":
        token = mint_attestation(app.key, "k1", client_id + "?x", alice.did, now)
    elif flaw == "metadata":
        metadata["client_id"] = "https://app.example/client.json"
    elif flaw == "both":
        metadata["jwks_uri"] = f"http://localhost:{app.port}/keys.json"
    elif flaw == "neither":
        del metadata["jwks"]
    else:
        del metadata["jwks"]
        metadata["jwks_uri"] = ["x"]
    answer = Reader(alice.server).exchange(alice.delegate(uri), uri, clientAttestation=token)
    assert error(answer) == (400, "InvalidClientAttestation")


def test_a_managing_app_decides(alice: User, bob: User, app: Service, client_id: str) -> None:
    uri = alice.create(read=managed_by(app.id))
    reader = Reader(alice.server)
    app.answer = {"authorized": True}
    assert reader.exchange(bob.delegate(uri), uri).status_code == 200
    assert app.queries == [{"space": uri, "user": bob.did, "access": "read"}]
    assert app.auth() == (alice.did, app.id, SIMPLE + "checkUserAccess")
    token = attest(app, client_id, alice)
    assert reader.exchange(bob.delegate(uri), uri, clientAttestation=token).status_code == 200
    assert app.queries[1]["clientId"] == client_id
    # The authority needs nobody's word.
    app.answer = {"authorized": False}
    assert reader.exchange(alice.delegate(uri), uri).status_code == 200
    assert len(app.queries) == 2
    assert error(reader.exchange(bob.delegate(uri), uri)) == (400, "UserNotAuthorized")


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {}),
        (200, {"authorized": "true"}),
        (200, {"authorized": 1}),
        (200, [True]),
        (200, {"authorized": 0.5}),
        (400, {"authorized": True}),
        (500, {"authorized": True}),
        (302, {"authorized": True}),
    ],
)
def test_whatever_a_managing_app_says_amiss_is_a_no(
    alice: User, bob: User, app: Service, status: int, answer: Any
) -> None:
    uri = alice.create(read=managed_by(app.id))
    app.status, app.answer = status, answer
    assert error(Reader(bob.server).exchange(bob.delegate(uri), uri)) == (400, "UserNotAuthorized")


def test_a_managing_app_that_is_not_there_is_a_no(alice: User, bob: User, app: Service) -> None:
    for service_ in (app.did + "#other", "did:web:gone.localhost%3A1#x"):
        uri = alice.create(service_[-1], read=managed_by(service_))
        answer = Reader(bob.server).exchange(bob.delegate(uri), uri)
        assert error(answer) == (400, "UserNotAuthorized")


def test_a_refused_app_is_not_told_of_to_the_managing_app(
    alice: User, bob: User, app: Service
) -> None:
    uri = alice.create(read=managed_by(app.id), apps=only("https://app.example/client.json"))
    app.answer = {"authorized": True}
    assert error(Reader(bob.server).exchange(bob.delegate(uri), uri)) == (400, "AppNotAuthorized")
    assert app.queries == []


# Revocation


def test_who_may_revoke(alice: User, bob: User) -> None:
    uri = alice.create(read=MEMBERS)
    body = {"space": uri, "credentials": ["x"]}
    here = alice.server
    assert bob.service_post(here, REVOKED, alice.did, **body).status_code == 403
    assert alice.service_post(here, REVOKED, "did:web:zoe.example", **body).status_code == 403
    assert alice.service_post(here, REVOKED, here.host.config.did, **body).status_code == 403
    assert 400 <= alice.post(REVOKED, **body).status_code < 500
    nobody = here.client.post(f"/xrpc/{REVOKED}", json=body)
    assert nobody.status_code == 401
    here.host.accounts.set_state(bob.account, "deactivated")
    assert alice.service_post(here, REVOKED, bob.did, **body).status_code == 200
    assert here.host.revocations.revoked(uri, "x")
    assert not here.host.revocations.revoked(uri + "x", "x")


@pytest.mark.parametrize("credentials", [[], [""], [7], ["x"] * 101, None])
def test_malformed_revocations(alice: User, credentials: Any) -> None:
    uri = alice.create()
    answer = alice.service_post(
        alice.server, REVOKED, alice.did, space=uri, credentials=credentials
    )
    assert error(answer) == (400, "InvalidRequest")


def test_long_ids_are_revoked_as_well(alice: User) -> None:
    uri = alice.create()
    ids = ["x" * 1000, "x" * 1001]
    answer = alice.service_post(alice.server, REVOKED, alice.did, space=uri, credentials=ids[:1])
    assert answer.status_code == 200
    revoked = alice.server.host.revocations.revoked
    assert [revoked(uri, each) for each in ids] == [True, False]
