"""Proof of possession: one seam with two generations behind it.

A credential is good only for who holds its key. How that is shown changed: `signature` is HTTP
message signatures (`httpsig`, current), `dpop` is DPoP proofs (`dpop`, the alpha of August
2026). A client presents with a `Prover`, a host checks with a `Verifier`; neither needs to know
which one it has. Source: protocol, sections 1 (the two generations) and 5.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from lettaspace.atproto import dpop, httpsig, jwt
from lettaspace.atproto.httpsig import Field, Fields, single
from lettaspace.atproto.jwk import thumbprint
from lettaspace.atproto.jwt import Time
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.tokens import CREDENTIAL, Holder
from lettaspace.errors import Refused

Generation: TypeAlias = Literal["signature", "dpop"]

_authorization = re.compile(r"([A-Za-z-]{1,32}) +([A-Za-z0-9._~+/-]+=*)").fullmatch


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """What of a request is proved about: the URL under which the host is known, and all fields
    as they were received, one entry each time a field was sent."""

    method: str
    url: str
    fields: Fields


class Replays(Protocol):
    """Remembers the tokens that may be used once."""

    def seen(self, iss: str, jti: str, exp: Time) -> bool:
        """Whether this was asked before. Remembers it until `jwt.SKEW` seconds after `exp`.

        Atomic: of two calls at the same moment one is told True. Called only when everything
        that the token's maker signed was verified, so that nobody else can use a token up.
        """


class Prover(Protocol):
    """The client's side, with one key. A key is for one credential: make a new one for each."""

    @property
    def generation(self) -> Generation: ...

    @property
    def holder(self) -> Holder:
        """What the credential must be bound to, compared by `==`."""

    def exchange(self, method: str, url: str, delegation: str, now: Time) -> list[Field]:
        """The fields of a request that exchanges a delegation for a credential."""

    def use(self, method: str, url: str, credential: str, audience: str, now: Time) -> list[Field]:
        """The fields of a request that uses the credential.

        `audience` is the DID of the repo's account, or for the methods of a space's host the
        DID of its authority. Raises InvalidInput for what is none.
        """


class Verifier(Protocol):
    """The host's side. Both methods raise Refused with a code of their generation."""

    def exchange(self, request: Request, now: Time, replays: Replays) -> Holder:
        """What the credential shall be bound to: the key that made this request."""

    def use(
        self, request: Request, credential: str, holder: Holder, now: Time, replays: Replays
    ) -> str | None:
        """The audience that the holder made this request for; None in the alpha, which names
        the URL instead."""


class SignatureProver:
    """Proves with HTTP message signatures. Its fields can be sent again for one audience."""

    generation: Final = "signature"

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self.holder: Final = key.verifying_key

    def exchange(self, method: str, url: str, delegation: str, now: Time) -> list[Field]:
        value = f"Bearer {delegation}"
        return [("Authorization", value), *httpsig.sign_exchange(self._key, value)]

    def use(self, method: str, url: str, credential: str, audience: str, now: Time) -> list[Field]:
        value = f"{httpsig.SCHEME} {credential}"
        return [("Authorization", value), *httpsig.sign_use(self._key, value, audience)]


class DpopProver:
    """Proves with DPoP: every request needs fields of its own."""

    generation: Final = "dpop"

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self.holder: Final = thumbprint(key.verifying_key)

    def exchange(self, method: str, url: str, delegation: str, now: Time) -> list[Field]:
        proof = dpop.mint_proof(self._key, method, url, now)
        return [("Authorization", f"Bearer {delegation}"), ("DPoP", proof)]

    def use(self, method: str, url: str, credential: str, audience: str, now: Time) -> list[Field]:
        proof = dpop.mint_proof(self._key, method, url, now, credential=credential)
        return [("Authorization", f"{dpop.SCHEME} {credential}"), ("DPoP", proof)]


class SignatureVerifier:
    """Checks HTTP message signatures, which prove the same any number of times."""

    def exchange(self, request: Request, now: Time, replays: Replays) -> VerifyingKey:
        return httpsig.verify_exchange(request.fields)

    def use(
        self, request: Request, credential: str, holder: Holder, now: Time, replays: Replays
    ) -> str:
        if not isinstance(holder, VerifyingKey):
            raise Refused("BadJwtCnf", "credential: not bound to a key that signs requests")
        return httpsig.verify_use(request.fields, holder)


class DpopVerifier:
    """Checks DPoP proofs, each of which is good once."""

    def exchange(self, request: Request, now: Time, replays: Replays) -> str:
        text = _proof(request)
        proof = dpop.verify_proof(text, request.method, request.url, now)
        return _once(proof, replays).jkt

    def use(
        self, request: Request, credential: str, holder: Holder, now: Time, replays: Replays
    ) -> None:
        if not isinstance(holder, str):
            raise Refused("BadJwtCnf", "credential: not bound to a key that makes DPoP proofs")
        proof = dpop.verify_proof(
            _proof(request), request.method, request.url, now, credential=credential, jkt=holder
        )
        _once(proof, replays)


VERIFIERS: Final[Mapping[Generation, Verifier]] = {
    "signature": SignatureVerifier(),
    "dpop": DpopVerifier(),
}


def new_prover(generation: Generation = "signature") -> Prover:
    """A prover with a new key."""
    key = SigningKey.generate("p256")
    return SignatureProver(key) if generation == "signature" else DpopProver(key)


def bearer(fields: Fields) -> str:
    """The token of `Authorization: Bearer`. Raises Refused (MissingJwt)."""
    found = _authorized(fields)
    if found is None or found[0] != "bearer":
        raise Refused("MissingJwt", "request: no bearer token")
    return found[1]


def presented(fields: Fields) -> tuple[Generation, str] | None:
    """The credential that a request presents, and how; None if its authorization is another.

    The scheme `DPoP` is also that of OAuth sessions, so there the token's type decides.
    """
    found = _authorized(fields)
    if found is None:
        return None
    scheme, token = found
    if scheme == httpsig.SCHEME.lower():
        return "signature", token
    if scheme == dpop.SCHEME.lower() and jwt.typ_of(token) == CREDENTIAL:
        return "dpop", token
    return None


def generation_of_exchange(fields: Fields) -> Generation:
    """How a request for a credential proves who asks. With no proof at all: the current way."""
    names = {name.lower() for name, _ in fields}
    return "dpop" if "dpop" in names and "signature-input" not in names else "signature"


def other_generation(tried: Generation, error: str) -> Generation | None:
    """What to try next with a host that refused with this error; None if that is not the cause.

    Hosts name the proof they miss: of August's the DPoP proof, today's the signature. The
    delegation was not used up by it, but hosts differ: ask for a new one.
    """
    if tried == "signature" and error == "MissingDpopProof":
        return "dpop"
    if tried == "dpop" and error == "BadSpaceSignature":
        return "signature"
    return None


def generation_of_space(config: Mapping[str, Any]) -> Generation | None:
    """The generation of the host that described a space so (`simplespace.getSpace`)."""
    if "readPolicy" in config:
        return "signature"
    return "dpop" if "policy" in config else None


def _authorized(fields: Fields) -> tuple[str, str] | None:
    """Scheme, in lower case, and token of the only `Authorization` there may be."""
    value = single(fields, "authorization")
    match = None if value is None else _authorization(value)
    return None if match is None else (match[1].lower(), match[2])


def _proof(request: Request) -> str:
    values = [value for name, value in request.fields if name.lower() == "dpop"]
    if not values:
        raise Refused("MissingDpopProof", "request: no DPoP proof")
    if len(values) > 1:
        raise Refused("BadDpopProof", "request: more than one DPoP proof")
    return values[0].strip(" \t")


def _once(proof: dpop.Proof, replays: Replays) -> dpop.Proof:
    if replays.seen(proof.jkt, proof.jti, proof.exp):
        raise Refused("JwtReplayed", "DPoP proof: was used before")
    return proof
