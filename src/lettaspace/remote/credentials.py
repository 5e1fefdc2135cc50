"""Reading the repos of a space's other members: delegation, credential, and the proof of each use.

    credentials = SpaceCredentials(own, host, "at://did:web:lab.example/space/org.example.lab/self")
    client = Client(members_host, auth=credentials.auth_for(member), transport=Checked())
    HostRepo(client, credentials.space, member).ops(None)

The user's own host says that this client may ask for the user (a delegation, good once). The
host of the space's authority gives a credential for it, bound to a key that is made for it alone
and never kept. Every host of a member takes the credential with a proof of that key. Hosts of
both generations are understood; which one the authority's is, its first answer tells. Source:
protocol, sections 1, 4, 5 and 7.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from lettaspace.atproto import jwt
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.proof import Generation, Prover, new_prover, other_generation
from lettaspace.atproto.tokens import MAX_ALPHA_CREDENTIAL
from lettaspace.atproto.uri import parse_space_ref
from lettaspace.errors import Damaged, HostRefused, Refused
from lettaspace.remote.xrpc import Auth, Client, Field

SPARE: Final = 30.0
"""Seconds before its expiry in which a credential is not used any more."""

_OVER = frozenset(("JwtExpired", "CredentialRevoked"))
"""What a host says of a credential that a new one may stand for."""


@dataclass(slots=True, repr=False)
class _Held:
    """A credential, and the key that it is bound to."""

    token: str
    prover: Prover
    until: float
    signed: dict[str, list[Field]] = field(default_factory=dict)
    """The fields for an audience, which can be sent again where the generation is `signature`."""


class SpaceCredentials:
    """Credentials for one space, for as many of its members' repos as are read.

    `own` is the client of the user's own host, signed in; `host` one of the host of the space's
    authority, whose own `auth` is not used. `generation` is tried first. Threads may share it.

    What it is used for raises, beside what clients raise: HostRefused with the errors
    UserNotAuthorized, AppNotAuthorized, NotAuthorized (no member any more, or not with this
    client), SpaceDeleted (gone for good), SpaceNotFound, and from `own` InvalidToken (a password
    that may not delegate) or a missing scope; Damaged for a credential that is none.
    """

    def __init__(
        self,
        own: Client,
        host: Client,
        space: str,
        *,
        generation: Generation = "signature",
        clock: Callable[[], float] = time.time,
    ) -> None:
        parse_space_ref(space)
        self.space: Final = space
        self._own = own
        self._host = host
        self._generation = generation
        self._clock = clock
        self._lock = threading.Lock()
        self._held: _Held | None = None

    def auth_for(self, audience: str) -> Auth:
        """How to ask a host for the repo of the account `audience`, a DID; for the methods of
        the space's host it is the authority's."""
        return _Use(self, audience)

    def fields(self, audience: str, method: str, url: str) -> list[Field]:
        """The fields of one request, with a credential that is still good."""
        held = self._current()
        if held.prover.generation == "signature":
            found = held.signed.get(audience)
            if found is None:
                found = held.prover.use(method, url, held.token, audience, self._clock())
                held.signed[audience] = found
            return list(found)
        return held.prover.use(method, url, held.token, audience, self._clock())

    def drop(self, used: Sequence[Field]) -> None:
        """The credential in these fields is no good any more."""
        values = {value.rpartition(" ")[2] for name, value in used if name == "Authorization"}
        with self._lock:
            if self._held is not None and self._held.token in values:
                self._held = None

    def _current(self) -> _Held:
        with self._lock:
            if self._held is None or self._clock() >= self._held.until:
                self._held = None
                self._held = self._exchange()
            return self._held

    def _exchange(self) -> _Held:
        try:
            return self._ask()
        except HostRefused as error:
            other = other_generation(self._generation, error.error)
            if other is None:
                raise
            self._generation = other
        return self._ask()

    def _ask(self) -> _Held:
        """A new credential, for a new delegation and bound to a new key."""
        asked = {"space": self.space}
        delegation = self._own.query("com.atproto.space.getDelegationToken", asked)["token"]
        prover = new_prover(self._generation)
        auth = _Exchange(prover, delegation, self._clock)
        answer = self._host.procedure("com.atproto.space.getSpaceCredential", asked, auth=auth)
        token: str = answer["credential"]
        lifetime = self._lifetime(token, prover)
        return _Held(token, prover, self._clock() + lifetime - min(SPARE, lifetime / 2))

    def _lifetime(self, token: str, prover: Prover) -> float:
        """How many seconds from now a credential is good, going by when its host says that it
        made it: clocks may differ. Raises Damaged for one of another space or another key.
        """
        holder = prover.holder
        bound = {"kid": holder.did} if isinstance(holder, VerifyingKey) else {"jkt": holder}
        try:
            found = jwt.parse(token)
            made = found.number("iat") if "iat" in found.claims else self._clock()
            lifetime = found.number("exp") - made
        except Refused as error:
            raise Damaged(f"{self._host.origin} gives no credential: {error}") from None
        if found.claims.get("sub") != self.space or found.claims.get("cnf") != bound:
            raise Damaged(f"{self._host.origin} gives a credential for something else")
        return float(min(lifetime, MAX_ALPHA_CREDENTIAL))


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Asks for a credential, once."""

    prover: Prover
    delegation: str
    clock: Callable[[], float]

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:  # noqa: ARG002
        return self.prover.exchange(method, url, self.delegation, self.clock())

    def renew(self, used: Sequence[Field], error: str) -> bool:  # noqa: ARG002
        return False


@dataclass(frozen=True, slots=True)
class _Use:
    """Reads with a credential."""

    credentials: SpaceCredentials
    audience: str

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:  # noqa: ARG002
        return self.credentials.fields(self.audience, method, url)

    def renew(self, used: Sequence[Field], error: str) -> bool:
        if error not in _OVER:
            return False
        self.credentials.drop(used)
        return True
