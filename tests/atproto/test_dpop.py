"""DPoP proofs, against vectors of the reference, and against changed requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import jwt
from lettaspace.atproto.dpop import MAX_AGE, hash_of, mint_proof, target, verify_proof
from lettaspace.atproto.jwk import from_jwk, thumbprint, to_jwk
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import InvalidInput, Refused

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors/dpop.json").read_text())

NOW = 1_795_000_000
URL = "https://kiln.example/xrpc/com.atproto.space.getRepo"
CREDENTIAL = "aaa.bbb.ccc"
KEY = SigningKey.generate("p256")
JKT = thumbprint(KEY.verifying_key)


def test_every_vector_is_run() -> None:
    assert len(VECTORS["cases"]) == 67
    assert (VECTORS["max_proof_age_sec"], VECTORS["clock_skew_sec"]) == (MAX_AGE, jwt.SKEW)


@pytest.mark.parametrize("name", VECTORS["keys"])
def test_thumbprint_vector(name: str) -> None:
    key = VECTORS["keys"][name]
    public = {member: value for member, value in key["jwk"].items() if member != "d"}
    assert thumbprint(from_jwk(public)) == key["jkt"]
    secret = SigningKey.from_bytes("p256", jwt.from_base64url(key["jwk"]["d"]))
    assert to_jwk(secret.verifying_key) == public


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_proof_vector(case: dict[str, Any]) -> None:
    def verify() -> Any:
        return verify_proof(
            case["proof"],
            case["request"]["method"],
            case["request"]["url"],
            case["now"],
            credential=case.get("credential"),
            jkt=case.get("jkt"),
        )

    if case["expected"] != "ok":
        with pytest.raises(Refused) as refused:
            verify()
        assert refused.value.code == case["error_code"]
        return
    proof = verify()
    result = case["result"]
    assert (proof.jti, proof.jkt) == (result["jti"], result["jkt"])
    assert target(case["request"]["url"]) == result["htu"]
    if case["name"].startswith("library-made"):
        secret = SigningKey.from_bytes("p256", jwt.from_base64url(VECTORS["keys"]["A"]["jwk"]["d"]))
        made = mint_proof(
            secret,
            case["request"]["method"],
            case["request"]["url"],
            case["now"],
            credential=case.get("credential"),
            jti=proof.jti,
        )
        assert made.split(".")[:2] == case["proof"].split(".")[:2]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://Kiln.Example:443", "https://kiln.example/"),
        ("http://kiln.example:80/a?b#c", "http://kiln.example/a"),
        ("http://kiln.example:443/", "http://kiln.example:443/"),
        ("https://kiln.example#c", "https://kiln.example/"),
        ("http://[::1]:2583/xrpc/a.b.c", "http://[::1]:2583/xrpc/a.b.c"),
    ],
)
def test_a_target_is_the_url_without_what_varies(url: str, expected: str) -> None:
    assert target(url) == expected


@pytest.mark.parametrize(
    "url", ["", "/xrpc/a", "ftp://a/", "https://", "https:///a", "https://u@a/", "https://a b/"]
)
def test_what_is_no_target_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="not an HTTP URL"):
        target(url)


def claims(**changes: Any) -> dict[str, Any]:
    full = {"jti": "j", "htm": "GET", "htu": URL, "iat": NOW, "ath": hash_of(CREDENTIAL)} | changes
    return {name: value for name, value in full.items() if value is not ...}


def verify_claims(told: dict[str, Any], key: SigningKey = KEY, **header: Any) -> Any:
    head = {"jwk": to_jwk(key.verifying_key)} | header
    text = jwt.sign(key, "dpop+jwt", told, **head)
    return verify_proof(text, "GET", URL, NOW, credential=CREDENTIAL, jkt=JKT)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"iat": NOW + 5.5}, "BadDpopProofSignature"),
        ({"iat": True}, "BadDpopProofSignature"),
        ({"iat": NOW - 65.5}, "DpopProofExpired"),
        ({"exp": "x"}, "BadDpopProofSignature"),
        ({"exp": NOW - 5}, "DpopProofExpired"),
        ({"jti": "\ud800"}, "BadDpopProof"),
        ({"jti": ["j"]}, "BadDpopProof"),
        ({"htm": ["GET"]}, "BadDpopProof"),
        ({"htu": URL + "?"}, "BadDpopProof"),
        ({"ath": None}, "BadDpopProof"),
        ({"ath": ...}, "BadDpopProof"),
    ],
    ids=str,
)
def test_a_proof_is_refused(changes: dict[str, Any], code: str) -> None:
    told = claims(**changes)
    head = jwt.base64url(
        json.dumps({"alg": "ES256", "typ": "dpop+jwt", "jwk": to_jwk(KEY.verifying_key)}).encode()
    )
    signed = f"{head}.{jwt.base64url(json.dumps(told).encode())}"
    text = f"{signed}.{jwt.base64url(KEY.sign(signed.encode()))}"
    with pytest.raises(Refused) as refused:
        verify_proof(text, "GET", URL, NOW, credential=CREDENTIAL, jkt=JKT)
    assert refused.value.code == code


def test_an_exchange_takes_no_hash_not_even_an_empty_one() -> None:
    for ath in (None, "", hash_of(CREDENTIAL)):
        text = jwt.sign(KEY, "dpop+jwt", claims(ath=ath), jwk=to_jwk(KEY.verifying_key))
        with pytest.raises(Refused, match="not made for this credential"):
            verify_proof(text, "GET", URL, NOW)


def test_only_keys_on_p_256_prove() -> None:
    other = SigningKey.generate()
    with pytest.raises(Refused) as refused:
        verify_claims(claims(), other)
    assert refused.value.code == "BadDpopProofSignature"
    with pytest.raises(InvalidInput, match="P-256"):
        mint_proof(other, "GET", URL, NOW)


def test_the_key_is_a_part_of_the_proof() -> None:
    assert verify_claims(claims()).jkt == JKT
    with pytest.raises(Refused):
        verify_claims(claims(), jwk=to_jwk(SigningKey.generate("p256").verifying_key))


@given(st.floats(0, 2**40), st.sampled_from([None, CREDENTIAL]))
def test_what_is_minted_is_verified(now: float, credential: str | None) -> None:
    text = mint_proof(KEY, "POST", URL + "?a=b", now, credential=credential)
    proof = verify_proof(text, "POST", URL, now, credential=credential)
    assert proof.exp == int(now) + 65


@given(st.data())
def test_no_bit_can_be_changed(data: st.DataObject) -> None:
    text = mint_proof(KEY, "GET", URL, NOW, credential=CREDENTIAL)
    place = data.draw(st.integers(0, len(text) - 1))
    bit = 1 << data.draw(st.integers(0, 6))
    changed = text[:place] + chr(ord(text[place]) ^ bit) + text[place + 1 :]
    with pytest.raises(Refused):
        verify_proof(changed, "GET", URL, NOW, credential=CREDENTIAL, jkt=JKT)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["alg", "typ", "jwk", "crit"]),
    st.sampled_from(["jti", "htm", "htu", "iat", "exp", "nbf", "ath"]),
    values,
)
def test_any_header_and_claim_is_read_or_refused(header: str, claim: str, value: Any) -> None:
    head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": to_jwk(KEY.verifying_key)}
    for parts in ((head | {header: value}, claims()), (head, claims() | {claim: value})):
        signed = ".".join(jwt.base64url(json.dumps(part).encode()) for part in parts)
        text = f"{signed}.{jwt.base64url(KEY.sign(signed.encode()))}"
        try:
            assert verify_proof(text, "GET", URL, NOW, credential=CREDENTIAL, jkt=JKT).jkt == JKT
        except Refused as refused:
            assert "Dpop" in refused.code  # noqa: PT017


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        verify_proof(text, text, URL, NOW, credential=text, jkt=text)
