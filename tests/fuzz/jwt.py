"""Tokens of every kind. Nobody's token makes a reader fail, and no reader takes an unsigned one.

The first byte chooses: the rest is a token as it stands; or header and claims as JSON, a line
each, of which a token is made and signed, so that what lies behind the signature is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lettaspace.atproto import jwt, tokens
from lettaspace.atproto.admission import open_attestation
from lettaspace.atproto.attestation import UnverifiedAttestation
from lettaspace.atproto.dpop import verify_proof
from lettaspace.atproto.jwk import thumbprint, to_jwk
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import Refused
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b'"alg":"ES256"', b'"typ":', b'"atproto-space-credential+jwt"', b'"JWT"', b'"dpop+jwt"'),
    *(b'"atproto-space-delegation+jwt"', b'"atproto-client-attestation+jwt"', b'"kid":"#atproto"'),
    *(b'"iss":"did:web:ada.example"', b'"sub":', b'"aud":', b'"exp":1795000060', b'"jti":"a"'),
    *(b'"iat":1795000000', b'"cnf":{"kid":"did:key:z', b'"cnf":{"jkt":"', b'"lxm":', b"1e308"),
    *(b'"htm":"GET"', b'"htu":"https://host.example/"', b'"ath":', b'"crit":[]', b"\\ud800", b"["),
)
NOW = 1_795_000_000
SPACE = "at://did:web:ada.example/space/com.example.forum/self"
AUDIENCE = "did:web:host.example#atproto_space_host"
METHOD = "com.atproto.space.getRecord"
URL = "https://host.example/"
KEY = SigningKey.from_bytes("p256", b"\x01" * 32)
OTHER = SigningKey.from_bytes("secp256k1", b"\x01" * 32)
JWKS = {"keys": [{**to_jwk(KEY.verifying_key), "kid": "a", "use": "sig", "alg": "ES256"}]}

_READERS: list[Callable[[str], Any]] = [
    lambda token: tokens.read_delegation(token, NOW),
    lambda token: tokens.read_credential(token, NOW),
    lambda token: tokens.read_credential(token, NOW, SPACE),
    lambda token: tokens.read_service_auth(token, NOW, METHOD, (AUDIENCE,)),
    lambda token: open_attestation(token, NOW, "did:web:ada.example"),
]


def fuzz_jwt(given: bytes) -> None:
    made = given[:1] == b"s"
    token = _signed(given[1:]) if made else text(given[1:])
    parsed, refusal = outcome(lambda: jwt.parse(token), Refused)
    if parsed is not None:
        assert jwt.typ_of(token) == (t if type(t := parsed.header.get("typ")) is str else None)
        parts = [parsed.signed, jwt.base64url(parsed.sig).encode()]
        assert b".".join(parts).decode() == token
    for read in _READERS:
        unverified, _ = outcome(lambda read=read: read(token), Refused)
        if unverified is None:
            continue
        assert refusal is None
        _check_claims(unverified)
    for credential in (None, "a.b.c"):
        for jkt in (None, thumbprint(KEY.verifying_key)):
            outcome(
                lambda c=credential, j=jkt: verify_proof(
                    token, "GET", URL, NOW, credential=c, jkt=j
                ),
                Refused,
            )


def _signed(given: bytes) -> str:
    header, _, claims = given.partition(b"\n")
    signed = f"{jwt.base64url(header)}.{jwt.base64url(claims)}"
    return f"{signed}.{jwt.base64url(KEY.sign(signed.encode()))}"


def _check_claims(unverified: Any) -> None:
    if isinstance(unverified, UnverifiedAttestation):
        unverified.client_id.encode()
        claims, _ = outcome(lambda: unverified.verify(JWKS), Refused)
        outcome(lambda: unverified.verify({"keys": [unverified._jwt.claims]}), Refused)
    else:
        unverified.issuer.encode()
        claims, _ = outcome(lambda: unverified.verify(KEY.verifying_key), Refused)
        _, refusal = outcome(lambda: unverified.verify(OTHER.verifying_key), Refused)
        assert refusal is not None
    if claims is not None:
        assert claims.exp >= NOW - jwt.SKEW
        assert claims.exp <= NOW + tokens.MAX_ALPHA_CREDENTIAL + tokens.AHEAD + jwt.SKEW
        if claims.jti is not None:  # which is stored
            claims.jti.encode()
