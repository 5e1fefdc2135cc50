"""JWTs: one text per token, and everything else refused in bounded time."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import jwk, jwt
from lettaspace.atproto.jwk import from_jwk, thumbprint, to_jwk
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import InvalidInput, Refused

KEY = SigningKey.generate()
P256 = SigningKey.generate("p256")
HEADER = '{"alg":"ES256K","typ":"JWT"}'
CLAIMS = '{"iss":"did:web:ada.example"}'


def token(header: str | bytes = HEADER, claims: str | bytes = CLAIMS) -> str:
    parts = (part.encode() if isinstance(part, str) else part for part in (header, claims))
    signed = ".".join(jwt.base64url(part) for part in parts)
    return f"{signed}.{jwt.base64url(KEY.sign(signed.encode()))}"


def test_a_token_is_read() -> None:
    found = jwt.parse(token())
    assert (found.header["typ"], found.claims) == ("JWT", {"iss": "did:web:ada.example"})
    assert found.is_signed_by(KEY.verifying_key)
    assert not found.is_signed_by(P256.verifying_key)
    assert jwt.typ_of(token()) == "JWT"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        token() + ".",
        token() + "\n",
        " " + token(),
        token() + "=",
        token().replace(".", ".\n", 1),
        token().replace(".", "..", 1),
        token(HEADER.replace("}", ',"crit":["b64"],"b64":false}')),
        token(HEADER.replace("}", ',"crit":[]}')),
        token('{"alg":"none","alg":"ES256K","typ":"JWT"}'),
        token(claims='{"iss":"did:web:ada.example","iss":"did:web:eve.example"}'),
        token(claims='{"cnf":{"kid":"a","kid":"b"}}'),
        token(claims='{"exp":NaN}'),
        token(claims='{"exp":Infinity}'),
        token(claims='{"exp":' + "9" * 5000 + "}"),
        token(claims="[" * 6000),
        token(claims='{"a":' * 2000 + "1" + "}" * 2000),
        token(claims='{"a":' * 600 + "[]" + "}" * 600),
        token(claims=CLAIMS + "{}"),
        token(claims=b"\xef\xbb\xbf" + CLAIMS.encode()),
        token(claims=CLAIMS.encode("utf-16")),
        token(claims=b'{"iss":"\xff"}'),
        token(claims='"did:web:ada.example"'),
        token(claims="null"),
        token(header="[]"),
        token(header='{"typ":"JWT"}'),
        token(header='{"alg":null}'),
        token(header='{"alg":["ES256K"]}'),
        token(claims='{"a":"' + "x" * jwt.MAX_LENGTH + '"}'),
        "ａ.ｂ.ｃ",
        "\ud800.\ud800.\ud800",
    ],
    ids=range(35),
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        jwt.parse(text)
    assert refused.value.code == "BadJwt"
    assert jwt.typ_of(text) is None


@given(st.binary(max_size=70))
def test_base64url_has_one_text(data: bytes) -> None:
    text = jwt.base64url(data)
    assert jwt.from_base64url(text) == data
    for other in (text + "=", text + "A", text + "\n", " " + text):
        if other == text + "A" and len(other) % 4 != 1:
            continue  # it is other bytes, or stray bits
        with pytest.raises(Refused):
            jwt.from_base64url(other)


@pytest.mark.parametrize("text", ["A", "AB", "AAB", "YWJjZB", "a+b/", "====", "YQ==", "Zh"])
def test_stray_bits_and_other_alphabets_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        jwt.from_base64url(text)


@given(st.text(max_size=200))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    with pytest.raises(Refused):
        jwt.parse(text)


@given(st.binary(max_size=100), st.binary(max_size=100), st.binary(max_size=70))
def test_any_bytes_are_refused(header: bytes, claims: bytes, sig: bytes) -> None:
    with pytest.raises(Refused):
        jwt.parse(".".join(map(jwt.base64url, (header, claims, sig))))


def test_a_long_text_is_refused_at_once() -> None:
    """Before it is taken apart: these would be two million parts, or as deep as the stack."""
    for text in ("." * 2_000_000, "A" * 2_000_000, token(claims="[" * 12_000), "\ud800" * 20_000):
        with pytest.raises(Refused, match=r"longer than|not JSON"):
            jwt.parse(text)


@pytest.mark.parametrize("value", [None, 5, "", [], {}, True, "\ud800"])
def test_a_text_claim_is_a_text(value: object) -> None:
    found = jwt.parse(token(claims=json.dumps({"iss": value})))
    with pytest.raises(Refused) as refused:
        found.text("iss", "BadJwtIss")
    assert refused.value.code == "BadJwtIss"


@pytest.mark.parametrize("value", ["null", '"5"', "true", "1e999", "-1e999", "1" + "0" * 30, "[]"])
def test_a_number_claim_is_a_finite_number(value: str) -> None:
    found = jwt.parse(token(claims=f'{{"exp":{value}}}'))
    with pytest.raises(Refused, match=r"exp is"):
        found.number("exp")


claims = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    max_size=4,
)


@given(claims, st.sampled_from([KEY, P256]))
def test_what_is_signed_is_read(told: dict[str, Any], key: SigningKey) -> None:
    found = jwt.parse(jwt.sign(key, "JWT", told, kid="k"))
    assert (found.claims, found.header["kid"]) == (told, "k")
    assert found.is_signed_by(key.verifying_key)


def test_nothing_secret_is_shown() -> None:
    assert "ada" not in repr(jwt.parse(token()))


def test_a_refusal_has_the_protocols_code() -> None:
    error = pickle.loads(pickle.dumps(Refused("JwtExpired", "JWT: expired")))  # noqa: S301
    assert (error.code, str(error), Refused.code) == ("JwtExpired", "JWT: expired", "Refused")


# JWKs


@pytest.mark.parametrize("key", [KEY, P256], ids=["secp256k1", "p256"])
def test_a_jwk_is_the_key(key: SigningKey) -> None:
    assert from_jwk(to_jwk(key.verifying_key) | {"kid": "k", "use": "sig"}) == key.verifying_key


def test_the_thumbprint_of_rfc_7638_is_over_the_members_in_order() -> None:
    """With the example key of RFC 9449, section 4.2, and its thumbprint there (6.1)."""
    example = {
        "kty": "EC",
        "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
        "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
        "crv": "P-256",
    }
    assert thumbprint(from_jwk(example)) == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "oct", "k": "AAAA"},
        {"kty": None},
        {"crv": "P-384"},
        {"crv": ["P-256"]},
        {"crv": "secp256k1"},
        {"x": None},
        {"x": "AAAA"},
        {"x": "=" * 43},
        {"y": jwt.base64url(bytes(32))},
        {"d": "AAAA"},
    ],
    ids=str,
)
def test_what_is_no_public_key_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"JWK|public key"):
        from_jwk(to_jwk(P256.verifying_key) | change)


@given(st.recursive(st.none() | st.text(), lambda x: st.dictionaries(st.text(), x) | st.lists(x)))
def test_any_json_is_a_set_of_keys(value: Any) -> None:
    assert list(jwk.signing_keys(value, None, "ES256")) == []
    assert list(jwk.signing_keys({"keys": value}, None, "ES256")) == []
    with pytest.raises(InvalidInput):
        from_jwk(value)
