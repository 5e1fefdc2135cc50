"""Tokens, against vectors of the reference, and against whoever would forge one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import jwt, tokens
from lettaspace.atproto.admission import use_attestation
from lettaspace.atproto.attestation import ATTESTATION, mint_attestation, read_attestation
from lettaspace.atproto.jwk import thumbprint, to_jwk
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.tokens import (
    CREDENTIAL,
    DELEGATION,
    Credential,
    Unverified,
    host_id,
    mint_credential,
    mint_delegation,
    mint_service_auth,
    read_credential,
    read_delegation,
    read_service_auth,
)
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.errors import InvalidInput, Refused

VECTORS = Path(__file__).parents[1] / "data/vectors"
AUGUST = json.loads(gzip.decompress((VECTORS / "tokens.json.gz").read_bytes()))
NEWEST = json.loads((VECTORS / "http_signature.json").read_text())["tokens"]

NOW = 1_795_000_000
USER = "did:web:ada.example"
AUTHORITY = "did:web:kiln.example"
SPACE = SpaceRef(AUTHORITY, "com.example.group", "k")
METHOD = "com.atproto.space.notifyWrite"

# The same in each process: they stand in tests' names.
KEY = SigningKey.from_bytes("secp256k1", bytes([1] * 32))
OTHER = SigningKey.from_bytes("secp256k1", bytes([2] * 32))
HOLDER = SigningKey.from_bytes("p256", bytes([3] * 32)).verifying_key
CLIENT = SigningKey.from_bytes("p256", bytes([4] * 32))

CLIENT_ID = "https://app.example/client.json"
JWKS = {"keys": [to_jwk(CLIENT.verifying_key) | {"kid": "key-1"}]}

STRICTER = {
    # The reference checks no times but the expiry.
    "iat in the future is not checked",
    "very long lifetime is not checked",
    "long lifetime is not checked",
    # Refused by both; in the reference a list is an object without an issuer.
    "payload json array",
}
"""Vectors whose outcome is another here, by name: BadJwt, or InvalidClientAttestation."""


def test_every_vector_is_run() -> None:
    assert (len(AUGUST["cases"]), len(NEWEST["items"])) == (159, 4)
    assert {case["name"] for case in AUGUST["cases"]} >= STRICTER


@pytest.mark.parametrize(
    "case",
    [case for case in AUGUST["cases"] if case["type"] != "clientAttestation"],
    ids=lambda case: f"{case['type']}: {case['name']}",
)
def test_token_vector(case: dict[str, Any]) -> None:
    read: Any = read_delegation if case["type"] == "delegation" else read_credential
    keys = [VerifyingKey.from_did(did) for did in case["signing_keys"]]
    token = outcome(lambda: read(case["jwt"], case["now"], case.get("check_sub")))
    if isinstance(token, Refused):
        lookups, claims = 0, token
    else:
        lookups, claims = 1, outcome(lambda: token.verify(keys[0]))
        if isinstance(claims, Refused):
            lookups, claims = 2, outcome(lambda: token.verify(keys[-1]))
    if isinstance(claims, Refused):
        code = "BadJwt" if case["name"] in STRICTER else case["error_code"]
        assert claims.code == code, str(claims)
        assert lookups == (2 if code == "BadJwtSignature" else 0)
        return
    assert case["expected"] == "ok"
    assert case["name"] not in STRICTER
    assert lookups == case["key_lookups"]
    payload = case["payload"]
    assert (token.issuer, str(claims.space)) == (payload["iss"], payload["sub"])
    assert claims.exp == payload["exp"]
    if case["type"] == "credential":
        assert claims.holder == payload["cnf"]["jkt"]
    if "made by the library" in case["name"]:
        _mints_the_same(case)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or how it refuses."""
    try:
        return call()
    except Refused as refused:
        return refused


def _mints_the_same(case: dict[str, Any]) -> None:
    """Signatures of the reference are deterministic, so ours is the same text."""
    payload = case["payload"]
    (name,) = (n for n, k in AUGUST["keys"].items() if k["did_key"] in case["signing_keys"])
    secret = AUGUST["keys"][name]
    key = SigningKey.from_bytes(secret["curve"], bytes.fromhex(secret["private_hex"]))
    space, jti = parse_space_ref(payload["sub"]), payload["jti"]
    if case["type"] == "delegation":
        text = mint_delegation(key, payload["iss"], space, NOW, jti=jti)
    else:
        text = mint_credential(key, space, payload["cnf"]["jkt"], NOW, lifetime=7200, jti=jti)
    assert text == case["jwt"]


@pytest.mark.parametrize(
    "case",
    [case for case in AUGUST["cases"] if case["type"] == "clientAttestation"],
    ids=lambda case: case["name"],
)
def test_attestation_vector(case: dict[str, Any]) -> None:
    authority = case["check_aud"].partition("#")[0]
    metadata = case["client_metadata"] or {}
    keys = case["client_jwks"] if "jwks_uri" in metadata else metadata.get("jwks")
    used = case["name"] == "same jti again on one verifier"
    client_id = outcome(
        lambda: use_attestation(
            read_attestation(case["jwt"], case["now"], authority).verify(keys), Seen(used)
        )
    )
    if isinstance(client_id, Refused):
        late = case["name"] in STRICTER or case["stage"] == "verify"
        code = "InvalidClientAttestation" if late else case["error_code"]
        assert client_id.code == code, str(client_id)
        return
    assert (case["expected"], client_id) == ("ok", case["client_id"])
    assert case["name"] not in STRICTER


class Seen:
    """A store that has seen everything, or nothing."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer

    def seen(self, *_: object) -> bool:
        return self.answer


@pytest.mark.parametrize("item", NEWEST["items"], ids=lambda item: item["header"]["kid"])
def test_newest_token_vector(item: dict[str, Any]) -> None:
    now = NEWEST["verify_at_unix_time"]
    read: Any = read_delegation if item["type"] == "delegation" else read_credential
    claims = read(item["jwt"], now).verify(VerifyingKey.from_did(item["signing_key"]))
    assert (str(claims.space), claims.jti) == (item["payload"]["sub"], item["payload"]["jti"])
    if isinstance(claims, Credential):
        assert isinstance(claims.holder, VerifyingKey)
        assert claims.holder.did == item["payload"]["cnf"]["kid"]


# What each kind holds, and how it is changed: kind, claims, header, read.


def credential_claims(**changes: Any) -> dict[str, Any]:
    claims = {
        "iss": AUTHORITY,
        "sub": str(SPACE),
        "cnf": {"kid": HOLDER.did},
        "iat": NOW,
        "exp": NOW + 600,
        "jti": "j",
    }
    return _changed(claims, changes)


def delegation_claims(**changes: Any) -> dict[str, Any]:
    claims = {
        "iss": USER,
        "sub": str(SPACE),
        "aud": host_id(AUTHORITY),
        "iat": NOW,
        "exp": NOW + 60,
        "jti": "j",
    }
    return _changed(claims, changes)


def service_claims(**changes: Any) -> dict[str, Any]:
    claims = {"iss": USER, "aud": AUTHORITY, "lxm": METHOD, "iat": NOW, "exp": NOW + 60}
    return _changed(claims, changes)


def attestation_claims(**changes: Any) -> dict[str, Any]:
    claims = {
        "iss": CLIENT_ID,
        "sub": CLIENT_ID,
        "aud": host_id(AUTHORITY),
        "iat": NOW,
        "exp": NOW + 60,
        "jti": "j",
    }
    return _changed(claims, changes)


def _changed(claims: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (claims | changes).items() if value is not ...}


def read_as_credential(claims: dict[str, Any], now: float = NOW) -> Credential:
    text = jwt.sign(KEY, CREDENTIAL, claims, kid="#atproto")
    return read_credential(text, now).verify(KEY.verifying_key)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"iat": ...}, "BadJwt"),
        ({"iat": None}, "BadJwt"),
        ({"iat": True}, "BadJwt"),
        ({"iat": "1795000000"}, "BadJwt"),
        ({"iat": NOW + 6}, "BadJwt"),
        ({"iat": NOW, "exp": NOW}, "BadJwt"),
        ({"exp": NOW + 3601}, "BadJwt"),
        ({"exp": NOW + 3600.5}, "BadJwt"),
        ({"exp": 10**400}, "BadJwt"),
        ({"exp": True}, "BadJwt"),
        ({"jti": ...}, "BadJwt"),
        ({"jti": ""}, "BadJwt"),
        ({"jti": 5}, "BadJwt"),
        ({"iss": USER}, "BadJwtIss"),
        ({"iss": "kiln.example"}, "BadJwtIss"),
        ({"sub": f"{SPACE}#/x"}, "BadJwtSub"),
        ({"sub": f"{SPACE}/"}, "BadJwtSub"),
        ({"sub": [str(SPACE)]}, "BadJwtSub"),
        ({"cnf": {}}, "BadJwtCnf"),
        ({"cnf": [HOLDER.did]}, "BadJwtCnf"),
        ({"cnf": {"kid": HOLDER.did, "jkt": thumbprint(HOLDER)}}, "BadJwtCnf"),
        ({"cnf": {"kid": KEY.did}}, "BadJwtCnf"),
        ({"cnf": {"kid": "did:web:kiln.example"}}, "BadJwtCnf"),
        ({"cnf": {"kid": HOLDER.did + "x"}}, "BadJwtCnf"),
        ({"cnf": {"kid": {}}}, "BadJwtCnf"),
    ],
    ids=str,
)
def test_credential_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        read_as_credential(credential_claims(**changes))
    assert refused.value.code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"iat": NOW + 5},
        {"iat": NOW - 3000, "exp": NOW - 4.5},
        {"exp": NOW + 3600},
        {"iat": NOW - 0.5, "exp": NOW + 0.25},
        {"nonce": {"a": [1]}},
    ],
    ids=str,
)
def test_credential_is_taken(changes: dict[str, Any]) -> None:
    claims = read_as_credential(credential_claims(**changes))
    assert (claims.holder, claims.space) == (HOLDER, SPACE)


def test_an_alpha_credential_may_lack_what_the_alpha_did_not_ask_for() -> None:
    bound = {"jkt": thumbprint(HOLDER)}
    claims = read_as_credential(credential_claims(cnf=bound, jti=7, iat=..., exp=NOW + 7200))
    assert (claims.holder, claims.jti) == (bound["jkt"], None)
    for changes in ({"exp": NOW + 7206, "iat": ...}, {"exp": NOW + 7201}, {"iat": NOW + 6}):
        with pytest.raises(Refused, match=r"lives longer|ahead of this clock"):
            read_as_credential(credential_claims(cnf=bound, **changes))


@pytest.mark.parametrize(
    ("iat", "exp", "code"),
    [
        (NOW + 0.04, NOW + 60, None),
        (NOW + 20, NOW + 80, None),
        (NOW + 600, NOW + 660, "BadJwt"),
        (NOW - 64, NOW - 4, None),
        (NOW - 65, NOW - 5, "JwtExpired"),
        (NOW - 660, NOW - 600, "JwtExpired"),
    ],
)
def test_o53_small_clock_differences(iat: float, exp: float, code: str | None) -> None:
    """Five seconds after the expiry are the documented leeway, and do not include the fifth."""
    text = jwt.sign(KEY, DELEGATION, delegation_claims(iat=iat, exp=exp), kid="#atproto")
    service = jwt.sign(KEY, "JWT", service_claims(iat=iat, exp=exp))
    if code is None:
        read_delegation(text, NOW).verify(KEY.verifying_key)
        read_service_auth(service, NOW, METHOD).verify(KEY.verifying_key)
        return
    for read in (
        lambda: read_delegation(text, NOW),
        lambda: read_service_auth(service, NOW, METHOD),
    ):
        with pytest.raises(Refused, match="this clock") as refused:
            read()
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"lxm": ...}, "BadJwt"),
        ({"lxm": "com.atproto.space.notifySpaceDeleted"}, "BadJwt"),
        ({"iss": f"{USER}#atproto_labeler"}, "BadJwtIss"),
        ({"aud": ...}, "BadJwtAudience"),
        ({"aud": USER}, "BadJwtAudience"),
        ({"aud": [AUTHORITY]}, "BadJwtAudience"),
        ({"jti": ""}, "BadJwt"),
        ({"exp": NOW + 3601}, "BadJwt"),
        ({"exp": ...}, "BadJwt"),
    ],
    ids=str,
)
def test_service_auth_is_refused(changes: dict[str, Any], code: str) -> None:
    text = jwt.sign(KEY, "JWT", service_claims(**changes))
    with pytest.raises(Refused) as refused:
        read_service_auth(text, NOW, METHOD, (AUTHORITY, host_id(AUTHORITY)))
    assert refused.value.code == code


def test_a_token_of_one_kind_is_none_of_another() -> None:
    made = {
        "delegation": mint_delegation(KEY, USER, SPACE, NOW),
        "credential": mint_credential(KEY, SPACE, HOLDER, NOW),
        "service": mint_service_auth(KEY, USER, AUTHORITY, METHOD, NOW),
        "attestation": mint_attestation(CLIENT, "key-1", CLIENT_ID, AUTHORITY, NOW),
    }
    readers: dict[str, Any] = {
        "delegation": lambda text: read_delegation(text, NOW),
        "credential": lambda text: read_credential(text, NOW),
        "service": lambda text: read_service_auth(text, NOW, METHOD),
        "attestation": lambda text: read_attestation(text, NOW, AUTHORITY),
    }
    for kind, text in made.items():
        for reader, read in readers.items():
            if reader == kind:
                read(text)
                continue
            with pytest.raises(Refused) as refused:
                read(text)
            assert refused.value.code == "BadJwtType"


@pytest.mark.parametrize("kid", ["#atproto_label", "", None, 5, ["#atproto"], "did:web:x#atproto"])
def test_a_token_names_one_of_two_keys(kid: object) -> None:
    for typ, claims, read in (
        (DELEGATION, delegation_claims(), read_delegation),
        (CREDENTIAL, credential_claims(), read_credential),
    ):
        with pytest.raises(Refused) as refused:
            read(jwt.sign(KEY, typ, claims, kid=kid), NOW)  # type: ignore[operator]
        assert refused.value.code == "BadJwt"


def test_only_an_authority_signs_with_a_key_for_spaces() -> None:
    text = mint_credential(KEY, SPACE, HOLDER, NOW, kid="#atproto_space")
    assert read_credential(text, NOW).kid == "#atproto_space"
    with pytest.raises(Refused, match="account's key"):
        read_delegation(jwt.sign(KEY, DELEGATION, delegation_claims(), kid="atproto_space"), NOW)


def test_an_algorithm_is_the_one_of_the_key() -> None:
    text = mint_credential(KEY, SPACE, HOLDER, NOW)
    _, claims, sig = text.split(".")
    for alg in ("none", "None", "HS256", "ES256", "ES384", "es256k", ""):
        header = jwt.base64url(
            json.dumps({"alg": alg, "typ": CREDENTIAL, "kid": "#atproto"}).encode()
        )
        for signature in (sig, "", jwt.base64url(KEY.sign(f"{header}.{claims}".encode()))):
            token = read_credential(f"{header}.{claims}.{signature}", NOW)
            with pytest.raises(Refused) as refused:
                token.verify(KEY.verifying_key)
            assert refused.value.code == "BadJwtSignature"


def test_another_key_is_no_key() -> None:
    token = read_credential(mint_credential(KEY, SPACE, HOLDER, NOW), NOW)
    for key in (OTHER.verifying_key, HOLDER, SigningKey.generate("p256").verifying_key):
        with pytest.raises(Refused, match="not signed by its issuer's key"):
            token.verify(key)
    assert token.verify(KEY.verifying_key).holder == HOLDER


def test_what_is_minted_for_no_verifier_is_not_minted() -> None:
    for lifetime in (0, -1, 3601):
        with pytest.raises(InvalidInput, match="lifetime"):
            mint_credential(KEY, SPACE, HOLDER, NOW, lifetime=lifetime)
    with pytest.raises(InvalidInput, match="lifetime"):
        mint_credential(KEY, SPACE, thumbprint(HOLDER), NOW, lifetime=7201)
    with pytest.raises(InvalidInput, match="P-256"):
        mint_credential(KEY, SPACE, OTHER.verifying_key, NOW)
    with pytest.raises(InvalidInput, match="method"):
        mint_service_auth(KEY, USER, AUTHORITY, "notifyWrite", NOW)


def test_minted_tokens_can_be_told_apart() -> None:
    first, second = (read_delegation(mint_delegation(KEY, USER, SPACE, NOW), NOW) for _ in "ab")
    assert first.verify(KEY.verifying_key).jti != second.verify(KEY.verifying_key).jti


def test_claims_are_shown_by_nothing_but_verify() -> None:
    token = read_credential(mint_credential(KEY, SPACE, HOLDER, NOW, jti="opensesame"), NOW)
    assert isinstance(token, Unverified)
    assert "opensesame" not in repr(token)


curves = st.sampled_from(["secp256k1", "p256"])
times = st.integers(0, 2**40) | st.floats(0, 2**40)


@given(curves, times, st.integers(1, 3600))
def test_what_is_minted_is_read(curve: Any, now: float, lifetime: int) -> None:
    key = SigningKey.generate(curve)
    credential = read_credential(mint_credential(key, SPACE, HOLDER, now, lifetime=lifetime), now)
    assert credential.verify(key.verifying_key).exp == int(now) + lifetime
    delegation = read_delegation(mint_delegation(key, USER, SPACE, now), now)
    assert delegation.verify(key.verifying_key).issuer == USER
    auth = read_service_auth(mint_service_auth(key, USER, AUTHORITY, METHOD, now), now, METHOD)
    assert auth.verify(key.verifying_key).audience == AUTHORITY
    text = mint_attestation(CLIENT, "key-1", CLIENT_ID, AUTHORITY, now)
    assert read_attestation(text, now, AUTHORITY).verify(JWKS).client_id == CLIENT_ID


MINTED = [
    (mint_delegation(KEY, USER, SPACE, NOW), lambda t: read_delegation(t, NOW)),
    (mint_credential(KEY, SPACE, HOLDER, NOW), lambda t: read_credential(t, NOW)),
    (
        mint_service_auth(KEY, USER, AUTHORITY, METHOD, NOW),
        lambda t: read_service_auth(t, NOW, METHOD),
    ),
]


@given(st.sampled_from(MINTED), st.data())
def test_no_bit_can_be_changed(minted: Any, data: st.DataObject) -> None:
    text, read = minted
    place = data.draw(st.integers(0, len(text) - 1))
    bit = data.draw(st.integers(0, 6))
    changed = text[:place] + chr(ord(text[place]) ^ (1 << bit)) + text[place + 1 :]
    with pytest.raises(Refused):
        read(changed).verify(KEY.verifying_key)


@given(st.text() | st.lists(st.text(alphabet="AQeyJ0-_", max_size=20), max_size=5).map(".".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (
        lambda: read_delegation(text, NOW),
        lambda: read_credential(text, NOW),
        lambda: read_service_auth(text, NOW, METHOD),
        lambda: read_attestation(text, NOW, AUTHORITY),
    ):
        with pytest.raises(Refused):
            read()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from([delegation_claims(), credential_claims(), service_claims()]),
    st.sampled_from(["iss", "sub", "aud", "cnf", "lxm", "iat", "exp", "jti", "nbf"]),
    json_values | st.builds(lambda v: {"kid": v}, json_values),
    st.sampled_from(["alg", "typ", "kid", "crit", "jwk"]),
    json_values,
)
def test_any_claim_is_read_or_refused(
    claims: dict[str, Any], name: str, value: Any, header: str, other: Any
) -> None:
    head = {"alg": "ES256K", "typ": CREDENTIAL, "kid": "#atproto"}
    for parts in ((head, claims | {name: value}), (head | {header: other}, claims)):
        text = ".".join(jwt.base64url(json.dumps(part).encode()) for part in parts)
        for read in (read_credential, read_delegation):
            found = outcome(partial(read, f"{text}.AAAA", NOW))
            assert isinstance(found, Refused | Unverified)


def test_attestation_keys_are_the_ones_meant_for_signing() -> None:
    text = mint_attestation(CLIENT, "key-1", CLIENT_ID, AUTHORITY, NOW)
    token = read_attestation(text, NOW, AUTHORITY)
    public = to_jwk(CLIENT.verifying_key) | {"kid": "key-1"}
    other = to_jwk(HOLDER) | {"kid": "key-2"}
    good: list[Any] = [
        {"keys": [public | {"use": "sig", "alg": "ES256", "key_ops": ["verify"]}]},
        {"keys": [{"kty": "RSA", "kid": "key-1"}, None, 5, other, public]},
    ]
    for jwks in good:
        assert token.verify(jwks).client_id == CLIENT_ID
    bad: list[Any] = [
        None,
        [],
        {},
        {"keys": None},
        {"keys": {"key-1": public}},
        {"keys": [public | {"use": "enc"}]},
        {"keys": [public | {"alg": "RS256"}]},
        {"keys": [public | {"key_ops": ["encrypt"]}]},
        {"keys": [public | {"key_ops": "verify"}]},
        {"keys": [public | {"d": "AAAA"}]},
        {"keys": [public | {"x": public["y"]}]},
        {"keys": [public, public]},
        {"keys": [other | {"kid": "key-1"}]},
    ]
    for jwks in bad:
        with pytest.raises(Refused) as refused:
            token.verify(jwks)
        assert refused.value.code == "InvalidClientAttestation"


@pytest.mark.parametrize("aud", [..., None, "", [], {"a": 1}, 5])
def test_an_attestation_is_for_somebody(aud: object) -> None:
    text = jwt.sign(CLIENT, ATTESTATION, attestation_claims(aud=aud), kid="key-1")
    with pytest.raises(Refused) as refused:
        read_attestation(text, NOW, AUTHORITY)
    assert refused.value.code == "BadJwtAudience"


def test_lifetimes_are_told() -> None:
    assert (tokens.MAX_CREDENTIAL, tokens.MAX_ALPHA_CREDENTIAL, jwt.SKEW) == (3600, 7200, 5)
