"""Who gets in: the checks of a credential's issue and of its use, in the protocol's order.

Keys of DIDs have to be looked up in between, which is I/O, so both go in two steps:

    exchange = Exchange(request, now)                     # reads the delegation
    key = …                                               # exchange.issuer, exchange.kid
    delegation, holder = exchange.finish(key, space, replays)

If the key was an old one, `finish` raises Refused (BadJwtSignature) before it changes anything,
and can be called again with a fresh one. Source: protocol, sections 4 (exchange), 5 (order for
a credential read) and 7 (revocation).
"""

from dataclasses import dataclass
from typing import Protocol

from lettaspace.atproto.attestation import Attestation, UnverifiedAttestation, read_attestation
from lettaspace.atproto.jwt import Time
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.proof import (
    VERIFIERS,
    Replays,
    Request,
    bearer,
    generation_of_exchange,
    presented,
)
from lettaspace.atproto.tokens import (
    Credential,
    Delegation,
    Holder,
    KeyId,
    read_credential,
    read_delegation,
)
from lettaspace.errors import Refused


class Revocations(Protocol):
    """Remembers the credentials that a space's authority has taken back."""

    def revoked(self, space: str, jti: str) -> bool:
        """Whether the credential with this id, for this space, is no longer good."""


@dataclass(frozen=True, slots=True)
class Access:
    """A credential that its holder presented."""

    credential: Credential
    audience: str | None
    """The DID that the request was made for; None in the alpha, which does not say."""

    def check(self, space: str, audience: str) -> None:
        """Raises Refused unless this opens the space at the audience that the request implies.

        BadSpaceAudience comes before InvalidCredential, which is for another space.
        """
        if self.audience not in (None, audience):
            raise Refused("BadSpaceAudience", "credential: presented to another audience")
        if str(self.credential.space) != space:
            raise Refused("InvalidCredential", "credential: for another space")


class Exchange:
    """A delegation that is to be exchanged for a credential.

    Raises Refused where the request holds none that is in order. `alpha` also takes DPoP.
    """

    def __init__(self, request: Request, now: Time, *, alpha: bool = False) -> None:
        self._request, self._now = request, now
        self._token = read_delegation(bearer(request.fields), now)
        self._verifier = VERIFIERS[generation_of_exchange(request.fields) if alpha else "signature"]

    @property
    def issuer(self) -> str:
        """The user's DID, whose key `finish` needs."""
        return self._token.issuer

    @property
    def kid(self) -> KeyId:
        """Which key of the user's it is."""
        return self._token.kid

    def finish(self, key: VerifyingKey, space: str, replays: Replays) -> tuple[Delegation, Holder]:
        """The delegation, used up, and what the credential is to be bound to.

        `space` is what the request's body asks for. Raises Refused: BadJwtSignature, those of
        the proof, JwtReplayed, InvalidDelegationToken. What fails before the last two leaves
        the delegation unused.
        """
        delegation = self._token.verify(key)
        holder = self._verifier.exchange(self._request, self._now, replays)
        if replays.seen(delegation.issuer, delegation.jti, delegation.exp):
            raise Refused("JwtReplayed", "delegation: was used before")
        if str(delegation.space) != space:
            raise Refused("InvalidDelegationToken", "delegation: for another space")
        return delegation, holder


class Use:
    """A credential that is presented to read a space.

    Raises Refused where the request holds none that is in order (`proof.presented` says
    whether it holds one at all). `alpha` also takes DPoP.
    """

    def __init__(self, request: Request, now: Time, *, alpha: bool = False) -> None:
        found = presented(request.fields)
        if found is None or (found[0] == "dpop" and not alpha):
            raise Refused("MissingJwt", "request: no space credential")
        self._request, self._now = request, now
        generation, self._text = found
        self._token = read_credential(self._text, now)
        self._verifier = VERIFIERS[generation]

    @property
    def issuer(self) -> str:
        """The DID of the space's authority, whose key `finish` needs."""
        return self._token.issuer

    @property
    def kid(self) -> KeyId:
        """Which key of the authority's it is."""
        return self._token.kid

    def finish(self, key: VerifyingKey, replays: Replays, revocations: Revocations) -> Access:
        """What the credential opens. Ask `Access.check` before opening it.

        Raises Refused: BadJwtSignature, those of the proof, CredentialRevoked.
        """
        credential = self._token.verify(key)
        audience = self._verifier.use(
            self._request, self._text, credential.holder, self._now, replays
        )
        require_not_revoked(credential, revocations)
        return Access(credential, audience)


def require_not_revoked(credential: Credential, revocations: Revocations) -> None:
    """Raises Refused (CredentialRevoked) if its authority has taken the credential back."""
    if credential.jti is not None and revocations.revoked(str(credential.space), credential.jti):
        raise Refused("CredentialRevoked", "credential: was revoked")


def open_attestation(text: str, now: Time, authority: str) -> UnverifiedAttestation:
    """`read_attestation` for an exchange, where all that is wrong with one has one code.

    Raises Refused (InvalidClientAttestation).
    """
    try:
        return read_attestation(text, now, authority)
    except Refused as error:
        raise Refused("InvalidClientAttestation", str(error)) from None


def use_attestation(attestation: Attestation, replays: Replays) -> str:
    """The client's id, and the attestation is used up.

    Raises Refused (InvalidClientAttestation) if it was used before.
    """
    if replays.seen(attestation.client_id, attestation.jti, attestation.exp):
        raise Refused("InvalidClientAttestation", "attestation: was used before")
    return attestation.client_id
