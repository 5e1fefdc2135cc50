"""Compact JSON Web Tokens: reading them strictly, signing and verifying them.

    base64url(header) . base64url(claims) . base64url(signature)

One text per token: base64url has no padding and no stray bits, JSON objects name no key twice,
nothing follows the third part. The algorithm is never chosen by the token: it is the one of the
key's curve, and a header that names another does not verify. What kinds there are, and what
they claim, is in `tokens`, `attestation` and `dpop`. Sources: RFC 7515, RFC 7519, protocol
section 4 (tokens).
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from lettaspace.atproto.cbor import MAX_DEPTH
from lettaspace.atproto.keys import Curve, SigningKey, VerifyingKey
from lettaspace.errors import RefusalCode, Refused

MAX_LENGTH: Final = 16_384
"""Characters. The longest identifiers there can be need about 12,000."""

SKEW: Final = 5
"""Seconds that a token is still taken after its expiry, and a credential before its issue."""

Time: TypeAlias = int | float
"""Seconds since 1970."""

_MAX_NUMBER = 2**53 - 1
_ALGORITHMS: dict[Curve, str] = {"secp256k1": "ES256K", "p256": "ES256"}
_base64url = re.compile(r"[A-Za-z0-9_-]*").fullmatch


@dataclass(frozen=True, slots=True, repr=False)
class Jwt:
    """A token that is well formed. Nothing it says is true before `is_signed_by` says so."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes
    sig: bytes

    def is_signed_by(self, key: VerifyingKey, *, high_s: bool = False, again: bool = False) -> bool:
        """Whether the key signed it, with the algorithm of its curve (`keys.verify`).

        `again` is for tokens that are shown many times (`keys.verify_again`).
        """
        verify = key.verify_again if again else key.verify
        return self.header["alg"] == _ALGORITHMS[key.curve] and verify(
            self.sig, self.signed, high_s=high_s
        )

    def text(self, name: str, code: RefusalCode = "BadJwt") -> str:
        """A claim that must be a non-empty string. Raises Refused with this code."""
        value = self.claims.get(name)
        if type(value) is not str or not value or not _is_unicode(value):
            raise Refused(code, f"JWT: {name} is missing or not a string")
        return value

    def number(self, name: str) -> Time:
        """A claim that must be a finite number. Raises Refused (BadJwt)."""
        value = self.claims.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused("BadJwt", f"JWT: {name} is missing or not a number")
        if not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise Refused("BadJwt", f"JWT: {name} is not a finite number")
        return value

    def expiry(
        self, now: Time, *, longest: int, ahead: int = SKEW, skew: int = SKEW, iat: bool = False
    ) -> Time:
        """When it expires, after checking when it is good.

        `longest` is the most seconds it may live, `ahead` how far its issue may be in the
        future, `skew` how long its expiry may be past, `iat` whether it must say when it was
        issued. Raises Refused: JwtExpired, or BadJwt for times that no honest issuer gives.
        """
        exp = self.number("exp")
        issued = self.number("iat") if iat or "iat" in self.claims else None
        if now >= exp + skew:
            raise Refused("JwtExpired", f"JWT: expired {now - exp:.0f} s ago by this clock")
        if issued is None:
            if exp > now + longest + skew:
                raise Refused("BadJwt", f"JWT: lives longer than {longest} s")
        elif exp <= issued:
            raise Refused("BadJwt", "JWT: expires before it is issued")
        elif exp - issued > longest:
            raise Refused("BadJwt", f"JWT: lives longer than {longest} s")
        elif issued > now + ahead:
            raise Refused("BadJwt", f"JWT: issued {issued - now:.0f} s ahead of this clock")
        return exp


def parse(text: str) -> Jwt:
    """The token that a text holds. Raises Refused (BadJwt) for anything but exactly one.

    Also for extensions that the header calls critical: none are known.
    """
    if len(text) > MAX_LENGTH:
        raise Refused("BadJwt", f"JWT: longer than {MAX_LENGTH} characters")
    parts = text.split(".")
    if len(parts) != 3:
        raise Refused("BadJwt", "JWT: not three parts")
    header, claims, sig = (from_base64url(part) for part in parts)
    token = Jwt(
        _object("header", header),
        _object("claims", claims),
        text[: text.rindex(".")].encode(),
        sig,
    )
    if type(token.header.get("alg")) is not str:
        raise Refused("BadJwt", "JWT: no algorithm")
    if "crit" in token.header:
        raise Refused("BadJwt", "JWT: has critical extensions")
    return token


def typ_of(text: str) -> str | None:
    """The type that a token claims to be, before anything else is looked at; None if none."""
    try:
        typ = parse(text).header.get("typ")
    except Refused:
        return None
    return typ if type(typ) is str else None


def sign(key: SigningKey, typ: str, claims: dict[str, Any], **header: Any) -> str:
    """The token of these claims. `header` follows `alg` and `typ`, in its order."""
    head = {"alg": _ALGORITHMS[key.curve], "typ": typ, **header}
    signed = ".".join(base64url(_json(part)) for part in (head, claims))
    return f"{signed}.{base64url(key.sign(signed.encode()))}"


def base64url(data: bytes) -> str:
    """The bytes in base64url without padding."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def from_base64url(text: str) -> bytes:
    """The bytes of a base64url text. Raises Refused (BadJwt) for padding and stray bits."""
    if _base64url(text) is not None and len(text) % 4 != 1:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if base64url(data) == text:
            return data
    raise Refused("BadJwt", "JWT: not base64url")


def _object(part: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), object_pairs_hook=_pairs, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Refused("BadJwt", f"JWT: {part} is not JSON") from None
    if type(value) is not dict:
        raise Refused("BadJwt", f"JWT: {part} is not an object")
    # How deep the parser goes differs from one Python to the next.
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        items = [each for node in level for each in (node.values() if type(node) is dict else node)]
        level = [each for each in items if type(each) in (dict, list)]
        if not level:
            return value
    raise Refused("BadJwt", f"JWT: {part} is nested too deep")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


def _refuse(_: str) -> NoReturn:
    raise ValueError


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _is_unicode(text: str) -> bool:
    """Whether it can be stored and sent: JSON can spell half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
