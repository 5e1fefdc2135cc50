"""Client attestations: an app shows to a space's authority which OAuth client it is.

A JWT that the client signs with a key of its published set, for one authority, single use.
The signature may have either form: clients sign with JOSE libraries, which do not choose the
low one. Source: protocol, section 4 (tokens).
"""

import secrets
from dataclasses import dataclass
from typing import Any, Final

from lettaspace.atproto import jwt
from lettaspace.atproto.jwk import signing_keys
from lettaspace.atproto.jwt import Jwt, Time
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.tokens import AHEAD, MAX_SINGLE_USE, host_id
from lettaspace.errors import Refused

ATTESTATION: Final = "atproto-client-attestation+jwt"


@dataclass(frozen=True, slots=True)
class Attestation:
    """The client is `client_id`. `jti` is to be used once per client (`exp` bounds it)."""

    client_id: str
    jti: str
    exp: Time


@dataclass(frozen=True, slots=True, repr=False)
class UnverifiedAttestation:
    """An attestation whose claims are in order, and whose signature nobody has checked."""

    client_id: str
    """Where the client's metadata, and through them its keys, are to be had."""
    _jwt: Jwt
    _claims: Attestation

    def verify(self, jwks: Any) -> Attestation:
        """The claims, if a key of the client's set (a parsed JWK set) signed them.

        Exactly one key must be meant: by the token's `kid`, or as the only one there is.
        Raises Refused (InvalidClientAttestation).
        """
        kid = self._jwt.header.get("kid")
        if kid is not None and type(kid) is not str:
            raise Refused("InvalidClientAttestation", "attestation: kid is not a string")
        keys = list(signing_keys(jwks, kid, self._jwt.header["alg"]))
        if len(keys) != 1:
            raise Refused("InvalidClientAttestation", "attestation: not one key of the client fits")
        if not self._jwt.is_signed_by(keys[0], high_s=True):
            raise Refused("InvalidClientAttestation", "attestation: not signed by the client")
        return self._claims


def read_attestation(text: str, now: Time, authority: str) -> UnverifiedAttestation:
    """An attestation made for the host of an authority's spaces.

    Raises Refused: BadJwt, BadJwtType, BadJwtIss, BadJwtSub or BadJwtAudience for one that no
    client should make, InvalidClientAttestation for one that is not good here and now.
    """
    token = jwt.parse(text)
    if token.header.get("typ") != ATTESTATION:
        raise Refused("BadJwtType", f"JWT: type is not {ATTESTATION}")
    client_id = token.text("iss", "BadJwtIss")
    if token.text("sub", "BadJwtSub") != client_id:
        raise Refused("BadJwtIss", "attestation: issuer and subject differ")
    jti = token.text("jti")
    token.number("exp")
    if not _is_for(token.claims.get("aud"), host_id(authority)):
        raise Refused("InvalidClientAttestation", "attestation: for another host")
    if "nbf" in token.claims and token.number("nbf") > now + AHEAD:
        raise Refused("InvalidClientAttestation", "attestation: not yet valid by this clock")
    try:
        exp = token.expiry(now, longest=MAX_SINGLE_USE, ahead=AHEAD, skew=0)
    except Refused as error:
        raise Refused("InvalidClientAttestation", str(error)) from None
    return UnverifiedAttestation(client_id, token, Attestation(client_id, jti, exp))


def mint_attestation(
    key: SigningKey, kid: str, client_id: str, authority: str, now: Time, *, jti: str | None = None
) -> str:
    """An attestation for the host of an authority, good for 60 seconds.

    The key is P-256 (ES256), and `kid` its id in the client's set.
    """
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": host_id(authority),
        "iat": int(now),
        "exp": int(now) + 60,
        "jti": secrets.token_hex(16) if jti is None else jti,
    }
    return jwt.sign(key, ATTESTATION, claims, kid=kid)


def _is_for(audience: Any, host: str) -> bool:
    """JWTs may name several audiences."""
    if type(audience) is str and audience:
        return audience == host
    if type(audience) is not list or not audience:
        raise Refused("BadJwtAudience", "attestation: for nobody")
    return host in audience
