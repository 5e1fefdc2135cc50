"""The tokens of access to a space: delegation, credential, and authentication of a service.

    delegation   a user's host: "this client may ask for the user", single use, a minute
    credential   the space's authority: "whoever holds this key may read", ten minutes
    service      one host to another: "I call this method, in this account's name"

Reading a token gives an `Unverified`: it names who must have signed it, so that the key can be
looked up, and hands out its claims only against that key. Two generations of credentials are
told apart by what they are bound to: a P-256 key (`cnf.kid`), or the thumbprint of one
(`cnf.jkt`, the alpha of August 2026, presented with DPoP).

Times are checked for every kind. The reference checks them for credentials only; our limits
for the rest are wide enough for every minter we know of. Source: protocol, sections 1 and 4.
"""

import secrets
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from lettaspace.atproto import jwt
from lettaspace.atproto.jwt import Jwt, Time
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.syntax import is_did, is_nsid
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.errors import InvalidInput, Refused

DELEGATION: Final = "atproto-space-delegation+jwt"
CREDENTIAL: Final = "atproto-space-credential+jwt"
SERVICE: Final = "JWT"

ACCOUNT_KEY: Final = "#atproto"
SPACE_KEY: Final = "#atproto_space"

MAX_CREDENTIAL: Final = 3600
MAX_ALPHA_CREDENTIAL: Final = 7200
MAX_SINGLE_USE: Final = 300
MAX_SERVICE: Final = 3600
"""Seconds that a token may live. Those of credentials are the protocol's."""

AHEAD: Final = 30
"""Seconds that the clock of a user's host or client may be ahead of ours."""

Holder: TypeAlias = VerifyingKey | str
"""What a credential is bound to: the key, or in the alpha its thumbprint (`jwk.thumbprint`)."""

KeyId: TypeAlias = Literal["#atproto", "#atproto_space"]

_Claims = TypeVar("_Claims")
_KIDS: dict[str, KeyId] = {
    "#atproto": "#atproto",
    "atproto": "#atproto",
    "#atproto_space": "#atproto_space",
    "atproto_space": "#atproto_space",
}


@dataclass(frozen=True, slots=True)
class Delegation:
    """A user's permission to ask for a credential. `jti` is to be used once (`exp` bounds it)."""

    issuer: str
    space: SpaceRef
    jti: str
    exp: Time


@dataclass(frozen=True, slots=True)
class Credential:
    """The right to read a space, for who proves to be its holder.

    `jti` is what a revocation names; the alpha has credentials without.
    """

    space: SpaceRef
    holder: Holder
    jti: str | None
    exp: Time


@dataclass(frozen=True, slots=True)
class ServiceAuth:
    """Who calls: the account `issuer`, at `audience`, the method `lxm`."""

    issuer: str
    audience: str
    lxm: str
    jti: str | None
    exp: Time


@dataclass(frozen=True, slots=True, repr=False)
class Unverified(Generic[_Claims]):
    """A token whose claims are in order, and whose signature nobody has checked."""

    issuer: str
    """The DID whose key must have signed it."""
    kid: KeyId
    """Which key of its document. `#atproto_space` is never satisfied by `#atproto`."""
    _jwt: Jwt
    _claims: _Claims

    def verify(self, key: VerifyingKey) -> _Claims:
        """The claims, if the key signed them.

        Raises Refused (BadJwtSignature): look the key up afresh and try once more, it may have
        been rotated.
        """
        if not self._jwt.is_signed_by(key, again=isinstance(self._claims, Credential)):
            raise Refused("BadJwtSignature", "JWT: not signed by its issuer's key")
        return self._claims


def host_id(authority: str) -> str:
    """The audience that means the host of an authority's spaces."""
    return f"{authority}#atproto_space_host"


def read_delegation(text: str, now: Time, space: str | None = None) -> Unverified[Delegation]:
    """A delegation token, for the host of the space's authority; for `space`, if one is given.

    Raises Refused: BadJwt, BadJwtType, BadJwtIss, BadJwtSub, BadJwtAudience, JwtExpired.
    """
    token = jwt.parse(text)
    _check_type(token, DELEGATION)
    issuer = _did(token)
    ref = _space(token, space)
    jti = token.text("jti")
    if token.text("aud", "BadJwtAudience") != host_id(ref.authority):
        raise Refused("BadJwtAudience", "JWT: not for the host of the space")
    exp = token.expiry(now, longest=MAX_SINGLE_USE, ahead=AHEAD)
    if (kid := _kid(token)) != ACCOUNT_KEY:
        raise Refused("BadJwt", "JWT: delegation is not signed with the account's key")
    return Unverified(issuer, kid, token, Delegation(issuer, ref, jti, exp))


def read_credential(text: str, now: Time, space: str | None = None) -> Unverified[Credential]:
    """A credential of either generation; for `space`, if one is given.

    Raises Refused: BadJwt, BadJwtType, BadJwtIss, BadJwtSub, BadJwtCnf, JwtExpired.
    """
    token = jwt.parse(text)
    _check_type(token, CREDENTIAL)
    issuer = _did(token)
    ref = _space(token, space)
    if issuer != ref.authority:
        raise Refused("BadJwtIss", "JWT: issuer is not the authority of the space")
    holder = _holder(token)
    jti: str | None
    if isinstance(holder, VerifyingKey):
        jti = token.text("jti")
        exp = token.expiry(now, longest=MAX_CREDENTIAL, iat=True)
    else:
        claim = token.claims.get("jti")
        jti = token.text("jti") if type(claim) is str and claim else None
        exp = token.expiry(now, longest=MAX_ALPHA_CREDENTIAL)
    return Unverified(issuer, _kid(token), token, Credential(ref, holder, jti, exp))


def read_service_auth(
    text: str, now: Time, lxm: str, audiences: tuple[str, ...] | None = None
) -> Unverified[ServiceAuth]:
    """A service's authentication for a method; for one of `audiences`, if they are given.

    Raises Refused: BadJwt, also for another method, BadJwtType, BadJwtIss, BadJwtAudience,
    JwtExpired.
    """
    token = jwt.parse(text)
    if "typ" in token.header:
        _check_type(token, SERVICE)
    issuer = _did(token)
    audience = token.text("aud", "BadJwtAudience")
    if audiences is not None and audience not in audiences:
        raise Refused("BadJwtAudience", "JWT: for another service")
    if token.text("lxm") != lxm:
        raise Refused("BadJwt", "JWT: for another method")
    jti = token.text("jti") if "jti" in token.claims else None
    exp = token.expiry(now, longest=MAX_SERVICE, ahead=AHEAD)
    claims = ServiceAuth(issuer, audience, lxm, jti, exp)
    return Unverified(issuer, ACCOUNT_KEY, token, claims)


def mint_delegation(
    key: SigningKey, issuer: str, space: SpaceRef, now: Time, *, jti: str | None = None
) -> str:
    """A delegation token of the account `issuer`, good for 60 seconds."""
    claims = {"iss": issuer, "sub": str(space), "aud": host_id(space.authority)}
    return jwt.sign(key, DELEGATION, claims | _times(now, 60, jti), kid=ACCOUNT_KEY)


def mint_credential(
    key: SigningKey,
    space: SpaceRef,
    holder: Holder,
    now: Time,
    *,
    lifetime: int = 600,
    kid: KeyId = ACCOUNT_KEY,
    jti: str | None = None,
) -> str:
    """A credential of the space's authority, whose key this is, for a holder.

    Raises InvalidInput for a key that is not on P-256, and for a longer life than verifiers
    take.
    """
    alpha = not isinstance(holder, VerifyingKey)
    if isinstance(holder, VerifyingKey) and holder.curve != "p256":
        raise InvalidInput("credential: holder's key is not on P-256")
    if not 0 < lifetime <= (MAX_ALPHA_CREDENTIAL if alpha else MAX_CREDENTIAL):
        raise InvalidInput("credential: no verifier takes such a lifetime")
    cnf = {"jkt": holder} if isinstance(holder, str) else {"kid": holder.did}
    claims = {"iss": space.authority, "sub": str(space), "cnf": cnf}
    return jwt.sign(key, CREDENTIAL, claims | _times(now, lifetime, jti), kid=kid)


def mint_service_auth(
    key: SigningKey, issuer: str, audience: str, lxm: str, now: Time, *, jti: str | None = None
) -> str:
    """Authentication for one call, good for 60 seconds. Raises InvalidInput."""
    if not is_nsid(lxm):
        raise InvalidInput("service authentication: method is not an NSID")
    times = _times(now, 60, jti)
    return jwt.sign(key, SERVICE, {"iss": issuer, "aud": audience, "lxm": lxm} | times)


def _times(now: Time, lifetime: int, jti: str | None) -> dict[str, Any]:
    return {
        "iat": int(now),
        "exp": int(now) + lifetime,
        "jti": secrets.token_hex(16) if jti is None else jti,
    }


def _check_type(token: Jwt, typ: str) -> None:
    if token.header.get("typ") != typ:
        raise Refused("BadJwtType", f"JWT: type is not {typ}")


def _did(token: Jwt) -> str:
    issuer = token.text("iss", "BadJwtIss")
    if not is_did(issuer):
        raise Refused("BadJwtIss", "JWT: issuer is not a DID")
    return issuer


def _space(token: Jwt, expected: str | None) -> SpaceRef:
    text = token.text("sub", "BadJwtSub")
    try:
        ref = parse_space_ref(text)
    except InvalidInput:
        raise Refused("BadJwtSub", "JWT: subject is not a space") from None
    if expected is not None and text != expected:
        raise Refused("BadJwtSub", "JWT: for another space")
    return ref


def _kid(token: Jwt) -> KeyId:
    kid = token.header.get("kid")
    if type(kid) is not str or kid not in _KIDS:
        raise Refused("BadJwt", "JWT: names no key that signs for spaces")
    return _KIDS[kid]


def _holder(token: Jwt) -> Holder:
    cnf = token.claims.get("cnf")
    if type(cnf) is not dict or ("kid" in cnf) == ("jkt" in cnf):
        raise Refused("BadJwtCnf", "JWT: not bound to exactly one key")
    value = cnf.get("kid", cnf.get("jkt"))
    if type(value) is not str or not value:
        raise Refused("BadJwtCnf", "JWT: the key it is bound to is not a string")
    if "jkt" in cnf:
        return value
    try:
        key = VerifyingKey.from_did(value)
    except InvalidInput:
        raise Refused("BadJwtCnf", "JWT: not bound to a did:key") from None
    if key.curve != "p256":
        raise Refused("BadJwtCnf", "JWT: bound to a key that is not on P-256")
    return key
