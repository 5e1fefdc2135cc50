"""DPoP proofs: how the alpha of August 2026 proves who holds a credential's key.

A proof is a JWT with its own public key in the header, fresh for every request: method, URL
without query, time, and for a credential its hash (`ath`). The credential names the key by its
thumbprint. Signatures may have either form, as JOSE libraries write them. Sources: RFC 9449,
protocol section 1. Nonces are only written: the protocol's hosts ask for none with credentials,
authorization servers do.
"""

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from lettaspace.atproto import jwt
from lettaspace.atproto.jwk import from_jwk, thumbprint, to_jwk
from lettaspace.atproto.jwt import SKEW, Jwt, Time
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.errors import InvalidInput, Refused

SCHEME: Final = "DPoP"
PROOF: Final = "dpop+jwt"
MAX_AGE: Final = 60
"""Seconds that a proof is good for, beside the differences of clocks."""

# The name of a media type, which may be written in full and in any case (RFC 7515, 4.1.9).
_is_proof = re.compile(r"(?:application/)?dpop\+jwt", re.IGNORECASE | re.ASCII).fullmatch
_url = re.compile(
    r"(https?)://((?:\[[^/?#@\\\s\[\]]+\]|[^/?#@\\\s\[\]:]+)(?::[0-9]*)?)((?:/[^?#\s]*)?)(?:[?#].*)?",
    re.IGNORECASE,
).fullmatch
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that was verified. `jti` is to be used once per key, until `exp`."""

    jkt: str
    """The thumbprint of the key that made it."""
    jti: str
    exp: Time


def mint_proof(
    key: SigningKey,
    method: str,
    url: str,
    now: Time,
    *,
    credential: str | None = None,
    jti: str | None = None,
    nonce: str | None = None,
) -> str:
    """The value of the field `DPoP` for one request.

    `credential` is the token that is presented; when a delegation is exchanged there is none.
    `nonce` is what the server wants to find in it.
    Raises InvalidInput for a key that is not P-256, and for what is no HTTP URL.
    """
    if key.curve != "p256":
        raise InvalidInput("DPoP proof: key is not on P-256")
    claims: dict[str, Any] = {
        "jti": secrets.token_hex(16) if jti is None else jti,
        "htm": method,
        "htu": target(url),
    }
    if credential is not None:
        claims["ath"] = hash_of(credential)
    if nonce is not None:
        claims["nonce"] = nonce
    return jwt.sign(key, PROOF, claims | {"iat": int(now)}, jwk=to_jwk(key.verifying_key))


def verify_proof(
    text: str,
    method: str,
    url: str,
    now: Time,
    *,
    credential: str | None = None,
    jkt: str | None = None,
) -> Proof:
    """The proof that a field's value holds, for this request.

    `jkt` is the thumbprint the credential is bound to. Raises Refused: BadDpopProofSignature
    for what is no proof or not signed by its own key, DpopProofExpired, BadDpopProof for one
    made for another request, DpopKeyMismatch for one made with another key. Raises InvalidInput
    for a URL that is none: it is the verifier's own.
    """
    try:
        token = jwt.parse(text)
        issued = token.number("iat")
        expiry = token.number("exp") if "exp" in token.claims else None
        starts = token.number("nbf") if "nbf" in token.claims else issued
    except Refused as error:
        raise Refused("BadDpopProofSignature", str(error).replace("JWT", "DPoP proof")) from None
    key = _key(token)
    if not token.is_signed_by(key, high_s=True):
        raise Refused("BadDpopProofSignature", "DPoP proof: not signed by its key")
    if max(issued, starts) > now + SKEW:
        raise Refused("BadDpopProofSignature", "DPoP proof: issued ahead of this clock")
    if issued < now - MAX_AGE - SKEW or (expiry is not None and now >= expiry + SKEW):
        raise Refused("DpopProofExpired", "DPoP proof: too old by this clock")
    jti = token.text("jti", "BadDpopProof")
    if token.claims.get("htm") != method or token.claims.get("htu") != target(url):
        raise Refused("BadDpopProof", "DPoP proof: made for another request")
    ath = None if credential is None else hash_of(credential)
    if token.claims.get("ath") != ath or ("ath" in token.claims) != (ath is not None):
        raise Refused("BadDpopProof", "DPoP proof: not made for this credential")
    if jkt is not None and thumbprint(key) != jkt:
        raise Refused("DpopKeyMismatch", "DPoP proof: made with another key")
    return Proof(thumbprint(key), jti, issued + MAX_AGE + SKEW)


def target(url: str) -> str:
    """The URL as proofs name it: host in lower case, no default port, query or fragment.

    Raises InvalidInput for what is no HTTP URL.
    """
    match = _url(url)
    if match is None:
        raise InvalidInput("DPoP: not an HTTP URL")
    scheme, host, path = match[1].lower(), match[2].lower(), match[3]
    return f"{scheme}://{host.removesuffix(_PORTS[scheme])}{path or '/'}"


def hash_of(credential: str) -> str:
    """What a proof says of the token it goes with: SHA-256 in base64url."""
    return jwt.base64url(sha256(credential.encode(errors="surrogatepass")).digest())


def _key(token: Jwt) -> VerifyingKey:
    typ = token.header.get("typ")
    if type(typ) is not str or not _is_proof(typ):
        raise Refused("BadDpopProofSignature", f"DPoP proof: type is not {PROOF}")
    try:
        key = from_jwk(token.header.get("jwk"))
    except InvalidInput as error:
        raise Refused("BadDpopProofSignature", f"DPoP proof: {error}") from None
    if key.curve != "p256":
        raise Refused("BadDpopProofSignature", "DPoP proof: key is not on P-256")
    return key
