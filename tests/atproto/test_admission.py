"""From a delegation to a read, in both generations, and everything that must not get in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.admission import Access, Exchange, Use, open_attestation, use_attestation
from lettaspace.atproto.attestation import mint_attestation
from lettaspace.atproto.httpsig import Fields
from lettaspace.atproto.jwk import thumbprint, to_jwk
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.proof import (
    DpopProver,
    Generation,
    Prover,
    Request,
    SignatureProver,
    bearer,
    generation_of_exchange,
    generation_of_space,
    new_prover,
    other_generation,
    presented,
)
from lettaspace.atproto.tokens import (
    Credential,
    mint_credential,
    mint_delegation,
    mint_service_auth,
    read_credential,
)
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import LettaspaceError, Refused

NOW = 1_795_000_000
USER = "did:web:ada.example"
AUTHORITY = "did:web:kiln.example"
SPACE = SpaceRef(AUTHORITY, "com.example.group", "k")
OTHER_SPACE = SpaceRef(AUTHORITY, "com.example.group", "z")
USER_KEY = SigningKey.generate()
AUTHORITY_KEY = SigningKey.generate("p256")
STRANGER = SigningKey.generate()

EXCHANGE_URL = "https://kiln.example/xrpc/com.atproto.space.getSpaceCredential"
READ_URL = "https://ada.example/xrpc/com.atproto.space.listRecords?limit=5"
GENERATIONS: list[Generation] = ["signature", "dpop"]


class Memory:
    """What was used and what was revoked."""

    def __init__(self) -> None:
        self.used: set[tuple[str, str]] = set()
        self.taken_back: set[tuple[str, str]] = set()

    def seen(self, iss: str, jti: str, exp: float) -> bool:
        assert exp > NOW - 100
        known = (iss, jti) in self.used
        self.used.add((iss, jti))
        return known

    def revoked(self, space: str, jti: str) -> bool:
        return (space, jti) in self.taken_back


def exchange(
    prover: Prover, memory: Memory, delegation: str, *, alpha: bool = True, space: object = SPACE
) -> Any:
    fields = prover.exchange("POST", EXCHANGE_URL, delegation, NOW)
    asked = Exchange(Request("POST", EXCHANGE_URL, fields), NOW, alpha=alpha)
    assert (asked.issuer, asked.kid) == (USER, "#atproto")
    return asked.finish(USER_KEY.verifying_key, str(space), memory)


def use(fields: Fields, memory: Memory, *, alpha: bool = True) -> Access:
    presented = Use(Request("GET", READ_URL, fields), NOW, alpha=alpha)
    assert (presented.issuer, presented.kid) == (AUTHORITY, "#atproto")
    return presented.finish(AUTHORITY_KEY.verifying_key, memory, memory)


def issue(prover: Prover, **options: Any) -> str:
    return mint_credential(AUTHORITY_KEY, SPACE, prover.holder, NOW, **options)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.code


@pytest.mark.parametrize("generation", GENERATIONS)
def test_o54_which_proof_where(generation: Generation) -> None:
    """Each step carries the proof of its kind and nothing more; each credential a new key."""
    memory, prover = Memory(), new_prover(generation)
    fields = dict(prover.exchange("POST", EXCHANGE_URL, "delegation", NOW))
    assert fields["Authorization"] == "Bearer delegation"
    assert (
        set(fields)
        == {
            "signature": {"Authorization", "Signature-Input", "Signature"},
            "dpop": {"Authorization", "DPoP"},
        }[generation]
    )

    delegation = mint_delegation(USER_KEY, USER, SPACE, NOW)
    claims, holder = exchange(prover, memory, delegation)
    assert (claims.issuer, claims.space, holder) == (USER, SPACE, prover.holder)

    credential = mint_credential(AUTHORITY_KEY, SPACE, holder, NOW)
    fields = dict(prover.use("GET", READ_URL, credential, USER, NOW))
    assert (
        set(fields)
        == {
            "signature": {
                "Authorization",
                "Atproto-Space-Audience",
                "Signature-Input",
                "Signature",
            },
            "dpop": {"Authorization", "DPoP"},
        }[generation]
    )
    access = use(list(fields.items()), memory)
    access.check(str(SPACE), USER)
    assert access.credential.holder == prover.holder
    assert new_prover(generation).holder != prover.holder


def test_signed_fields_are_good_again_and_dpop_proofs_are_not() -> None:
    memory = Memory()
    signature = new_prover()
    fields = signature.use("GET", READ_URL, issue(signature), USER, NOW)
    assert use(fields, memory) == use(fields, memory)
    dpop = new_prover("dpop")
    fields = dpop.use("GET", READ_URL, issue(dpop), USER, NOW)
    use(fields, memory)
    assert refusal(lambda: use(fields, memory)) == "JwtReplayed"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_delegation_is_good_once(generation: Generation) -> None:
    memory, delegation = Memory(), mint_delegation(USER_KEY, USER, SPACE, NOW)
    exchange(new_prover(generation), memory, delegation)
    assert refusal(lambda: exchange(new_prover(generation), memory, delegation)) == "JwtReplayed"


def test_what_fails_before_the_end_uses_no_delegation_up() -> None:
    memory, delegation = Memory(), mint_delegation(USER_KEY, USER, SPACE, NOW)
    prover = new_prover()
    fields = prover.exchange("POST", EXCHANGE_URL, delegation, NOW)
    request = Request("POST", EXCHANGE_URL, fields)
    asked = Exchange(request, NOW)
    stranger = STRANGER.verifying_key
    assert refusal(lambda: asked.finish(stranger, str(SPACE), memory)) == "BadJwtSignature"
    unsigned = Exchange(Request("POST", EXCHANGE_URL, fields[:1]), NOW)
    key = USER_KEY.verifying_key
    assert refusal(lambda: unsigned.finish(key, str(SPACE), memory)) == "BadSpaceSignature"
    assert memory.used == set()
    assert asked.finish(key, str(SPACE), memory)[1] == prover.holder


def test_asking_for_another_space_uses_the_delegation_up() -> None:
    """As the protocol's order has it: a replay is found before the body is looked at."""
    memory, delegation = Memory(), mint_delegation(USER_KEY, USER, SPACE, NOW)
    wrong = refusal(lambda: exchange(new_prover(), memory, delegation, space=OTHER_SPACE))
    assert wrong == "InvalidDelegationToken"
    assert refusal(lambda: exchange(new_prover(), memory, delegation)) == "JwtReplayed"


def test_hosts_of_each_generation_name_the_proof_they_miss() -> None:
    """And that is how a client finds out which one it talks to."""
    memory = Memory()
    delegation = mint_delegation(USER_KEY, USER, SPACE, NOW)
    current = refusal(lambda: exchange(new_prover("dpop"), memory, delegation, alpha=False))
    assert other_generation("dpop", current) == "signature"
    assert other_generation("signature", "MissingDpopProof") == "dpop"
    for tried, error in (
        ("dpop", "MissingDpopProof"),
        ("signature", "BadSpaceSignature"),
        ("signature", "BadJwt"),
    ):
        assert other_generation(tried, error) is None  # type: ignore[arg-type]
    assert (
        generation_of_space({"uri": "at://…", "readPolicy": {}, "writePolicy": {}}) == "signature"
    )
    assert generation_of_space({"uri": "at://…", "policy": {}}) == "dpop"
    assert generation_of_space({"uri": "at://…"}) is None


def test_an_exchange_is_of_the_generation_whose_proof_it_has() -> None:
    assert generation_of_exchange([("dpop", "x")]) == "dpop"
    assert generation_of_exchange([("DPoP", "x"), ("signature-INPUT", "y")]) == "signature"
    assert generation_of_exchange([]) == "signature"


def test_a_credential_is_no_good_without_its_key() -> None:
    memory = Memory()
    owner, thief = new_prover(), new_prover()
    stolen = issue(owner)
    assert (
        refusal(lambda: use(thief.use("GET", READ_URL, stolen, USER, NOW), memory))
        == "BadSpaceSignature"
    )
    for scheme in ("Atproto-Space", "atproto-space"):
        bare = [("Authorization", f"{scheme} {stolen}")]
        assert refusal(lambda bare=bare: use(bare, memory)) == "BadSpaceSignature"  # type: ignore[misc]
    old_owner, old_thief = new_prover("dpop"), new_prover("dpop")
    stolen = issue(old_owner)
    assert (
        refusal(lambda: use(old_thief.use("GET", READ_URL, stolen, USER, NOW), memory))
        == "DpopKeyMismatch"
    )
    bare = [("Authorization", f"DPoP {stolen}")]
    assert refusal(lambda: use(bare, memory)) == "MissingDpopProof"
    twice = old_owner.use("GET", READ_URL, stolen, USER, NOW)
    assert refusal(lambda: use([*twice, twice[1]], memory)) == "BadDpopProof"


def test_a_credential_is_presented_in_its_own_generation() -> None:
    """The same key, so that nothing but the kind of binding is wrong."""
    key = SigningKey.generate("p256")
    signature, dpop = SignatureProver(key), DpopProver(key)
    memory = Memory()
    for prover, credential in ((signature, issue(dpop)), (dpop, issue(signature))):
        fields = prover.use("GET", READ_URL, credential, USER, NOW)
        assert refusal(lambda fields=fields: use(fields, memory)) == "BadJwtCnf"  # type: ignore[misc]


def test_the_alpha_is_taken_only_where_it_is_asked_for() -> None:
    prover = new_prover("dpop")
    fields = prover.use("GET", READ_URL, issue(prover), USER, NOW)
    assert refusal(lambda: use(fields, Memory(), alpha=False)) == "MissingJwt"
    use(fields, Memory())


def test_a_revoked_credential_is_refused_once_its_holder_is_known() -> None:
    memory, prover = Memory(), new_prover()
    fields = prover.use("GET", READ_URL, issue(prover, jti="x"), USER, NOW)
    use(fields, memory)
    memory.taken_back.add((str(SPACE), "x"))
    assert refusal(lambda: use(fields, memory)) == "CredentialRevoked"
    assert refusal(lambda: use(fields[:2], memory)) == "BadSpaceSignature"
    memory.taken_back = {(str(OTHER_SPACE), "x"), (str(SPACE), "y")}
    use(fields, memory)


def test_the_audience_comes_before_the_space() -> None:
    prover = new_prover()
    access = use(prover.use("GET", READ_URL, issue(prover), USER, NOW), Memory())
    access.check(str(SPACE), USER)
    assert refusal(lambda: access.check(str(OTHER_SPACE), AUTHORITY)) == "BadSpaceAudience"
    assert refusal(lambda: access.check(str(OTHER_SPACE), USER)) == "InvalidCredential"
    alpha = Access(access.credential, None)
    alpha.check(str(SPACE), AUTHORITY)
    assert refusal(lambda: alpha.check(str(OTHER_SPACE), USER)) == "InvalidCredential"


def test_a_read_by_the_wrong_authority_is_refused() -> None:
    prover = new_prover()
    fields = prover.use("GET", READ_URL, issue(prover), USER, NOW)
    found = Use(Request("GET", READ_URL, fields), NOW)
    memory = Memory()
    code = refusal(lambda: found.finish(USER_KEY.verifying_key, memory, memory))
    assert code == "BadJwtSignature"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "MissingJwt"),
        ("Basic YTpi", "MissingJwt"),
        ("Bearer", "MissingJwt"),
        ("Bearer a b", "MissingJwt"),
        ("Bearer a,b", "MissingJwt"),
        ("bearer  abc", None),
        ("Bearer aé", "BadSpaceSignature"),
    ],
)
def test_a_bearer_is_one_token(value: str | None, code: str | None) -> None:
    fields = [] if value is None else [("authorization", value)]
    if code is None:
        assert bearer(fields) == "abc"
    else:
        assert refusal(lambda: bearer(fields)) == code
    if fields and code is None:
        assert refusal(lambda: bearer(fields * 2)) == "BadSpaceSignature"


def test_a_session_is_no_credential() -> None:
    """OAuth sessions come with the scheme DPoP as well."""
    session = mint_service_auth(USER_KEY, USER, AUTHORITY, "com.atproto.space.getRecord", NOW)
    for value in (f"DPoP {session}", f"Bearer {session}", "DPoP opaque", "Basic YTpi"):
        assert presented([("Authorization", value)]) is None
    assert presented([]) is None
    credential = issue(new_prover())
    assert presented([("Authorization", f"DPoP {credential}")]) == ("dpop", credential)
    assert presented([("Authorization", f"Atproto-Space {session}")]) == ("signature", session)


def test_a_client_knows_whether_a_credential_is_its_own() -> None:
    for generation in GENERATIONS:
        mine, other = new_prover(generation), new_prover(generation)
        text = mint_credential(AUTHORITY_KEY, SPACE, mine.holder, NOW)
        found: Credential = read_credential(text, NOW, str(SPACE)).verify(
            AUTHORITY_KEY.verifying_key
        )
        assert found.holder == mine.holder != other.holder
    assert DpopProver(AUTHORITY_KEY).holder == thumbprint(AUTHORITY_KEY.verifying_key)


CLIENT = SigningKey.generate("p256")
CLIENT_ID = "https://app.example/client.json"
JWKS = {"keys": [to_jwk(CLIENT.verifying_key) | {"kid": "k"}]}


def test_an_attestation_is_good_once() -> None:
    memory = Memory()
    text = mint_attestation(CLIENT, "k", CLIENT_ID, AUTHORITY, NOW)
    opened = open_attestation(text, NOW, AUTHORITY)
    assert opened.client_id == CLIENT_ID
    assert use_attestation(opened.verify(JWKS), memory) == CLIENT_ID
    again = open_attestation(text, NOW, AUTHORITY).verify(JWKS)
    assert refusal(lambda: use_attestation(again, memory)) == "InvalidClientAttestation"


@pytest.mark.parametrize("text", ["", "abc", "a.b.c", mint_delegation(USER_KEY, USER, SPACE, NOW)])
def test_all_that_is_wrong_with_an_attestation_has_one_code(text: str) -> None:
    code = refusal(lambda: open_attestation(text, NOW, AUTHORITY))
    assert code == "InvalidClientAttestation"


FIELDS = ["Authorization", "DPoP", "Signature", "Signature-Input", "Atproto-Space-Audience"]
GOOD = [
    new_prover(generation).use(
        "GET",
        READ_URL,
        mint_credential(AUTHORITY_KEY, SPACE, SigningKey.generate("p256").verifying_key, NOW),
        USER,
        NOW,
    )
    for generation in GENERATIONS
]


@given(
    st.lists(st.tuples(st.sampled_from(FIELDS), st.text()), max_size=5),
    st.sampled_from(GOOD),
    st.integers(0, 4),
)
def test_any_request_is_refused(
    fields: list[tuple[str, str]], good: list[tuple[str, str]], kept: int
) -> None:
    memory = Memory()
    request = Request("GET", READ_URL, good[:kept] + fields)
    for step in (
        lambda: Exchange(request, NOW, alpha=True),
        lambda: Use(request, NOW, alpha=True).finish(AUTHORITY_KEY.verifying_key, memory, memory),
    ):
        with pytest.raises(LettaspaceError) as error:
            step()
        assert type(error.value) is Refused
    assert memory.used == set()
