"""Public keys as JSON Web Keys: the form in which OAuth clients and DPoP proofs give them.

Only the two curves of `keys`. Sources: RFC 7517, RFC 7518, RFC 7638.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from lettaspace.atproto.jwt import base64url, from_base64url
from lettaspace.atproto.keys import Curve, VerifyingKey
from lettaspace.errors import InvalidInput, Refused

_CURVES: dict[str, Curve] = {"P-256": "p256", "secp256k1": "secp256k1"}
_NAMES = {curve: name for name, curve in _CURVES.items()}


def to_jwk(key: VerifyingKey) -> dict[str, str]:
    """The members that make up the key."""
    x, y = key.point
    return {"kty": "EC", "crv": _NAMES[key.curve], "x": base64url(x), "y": base64url(y)}


def from_jwk(jwk: Any) -> VerifyingKey:
    """The key of a JSON Web Key; members that say what it is used for are not looked at.

    Raises InvalidInput for other kinds of keys, malformed ones, and one with its private half.
    """
    if type(jwk) is not dict or jwk.get("kty") != "EC":
        raise InvalidInput("JWK: not an elliptic curve key")
    if "d" in jwk:
        raise InvalidInput("JWK: holds a private key")
    curve, x, y = (jwk.get(name) for name in ("crv", "x", "y"))
    if type(curve) is not str or curve not in _CURVES:
        raise InvalidInput("JWK: curve is neither P-256 nor secp256k1")
    if type(x) is not str or type(y) is not str:
        raise InvalidInput("JWK: coordinates are missing")
    try:
        point = from_base64url(x), from_base64url(y)
    except Refused:
        raise InvalidInput("JWK: coordinates are not base64url") from None
    return VerifyingKey.from_point(_CURVES[curve], *point)


def thumbprint(key: VerifyingKey) -> str:
    """The RFC 7638 thumbprint with SHA-256: 43 characters of base64url."""
    text = json.dumps(to_jwk(key), sort_keys=True, separators=(",", ":"))
    return base64url(sha256(text.encode()).digest())


def signing_keys(jwks: Any, kid: str | None, alg: str) -> Iterator[VerifyingKey]:
    """The keys of a set that may have made a signature, by what the set says of each.

    Keys that cannot be read are passed over: a set may hold kinds we do not know.
    """
    keys = jwks.get("keys") if type(jwks) is dict else None
    for jwk in keys if type(keys) is list else ():
        if type(jwk) is not dict or (kid is not None and jwk.get("kid") != kid):
            continue
        if jwk.get("use", "sig") != "sig" or jwk.get("alg", alg) != alg:
            continue
        operations = jwk.get("key_ops", ["verify"])
        if type(operations) is not list or "verify" not in operations:
            continue
        try:
            yield from_jwk(jwk)
        except InvalidInput:
            continue
