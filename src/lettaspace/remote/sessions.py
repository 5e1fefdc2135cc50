"""Sessions: the tokens of who is signed in, used for requests, and renewed when they are too old.

A host's refresh token is good once, and a home may be used by many processes. So whoever meets
an access token that is no longer taken goes one by one, under the lock of `keeping`: if the
tokens kept are newer than those that were refused, they are used; only else is the host asked,
and what it gives is kept before it is used.

If the host's answer is lost, the same is asked once more at once: the request may not have got
there, and some hosts repeat their answer. What the host says then is final. A session that it
ended is remembered as ended, and nobody asks again until there was a new sign-in. A host that
cannot be reached ends nothing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from lettaspace.atproto.dpop import mint_proof
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import Damaged, HostRefused, InvalidInput, SignedOut, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.remote.keeping import InMemory, Keeping
from lettaspace.remote.oauth import Binding, renew, revoke
from lettaspace.remote.xrpc import Client, Field

_RENEWABLE: Final = frozenset(
    ("", "AuthMissing", "AuthenticationRequired", "ExpiredToken", "InvalidToken", "invalid_token")
)
"""What hosts call an access token that they do not take. Other reasons for a 401, such as a
proof that is wrong, another token would not cure."""

_OVER: Final = frozenset(("ExpiredToken", "InvalidToken", "AuthenticationRequired"))
"""What hosts call a refresh token that they do not take."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a host gave. `binding` is for OAuth; without one they are those of a password."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    binding: Binding | None = None
    ended: bool = False
    """Whether the host said that they are no longer good."""

    def json(self) -> dict[str, Any]:
        """As `keeping` has them."""
        form: dict[str, Any] = {"access": self.access, "refresh": self.refresh}
        if self.ended:
            form["ended"] = True
        if (bound := self.binding) is not None:
            form["oauth"] = {
                "issuer": bound.issuer,
                "clientId": bound.client_id,
                "key": bound.key.to_bytes().hex(),
                "scope": bound.scope,
            }
        return form

    @classmethod
    def read(cls, form: dict[str, Any]) -> "Tokens":
        """Raises Damaged."""
        try:
            bound = form.get("oauth")
            binding = bound and Binding(
                _text(bound["issuer"]),
                _text(bound["clientId"]),
                SigningKey.from_bytes("p256", bytes.fromhex(bound["key"])),
                _text(bound["scope"]),
            )
            ended = form.get("ended") is True
            return cls(_text(form["access"]), _text(form["refresh"]), binding, ended)
        except (LookupError, TypeError, ValueError, AttributeError, InvalidInput):
            raise Damaged("the tokens that are kept are none; sign in again") from None


class Session:
    """Proves who asks (`xrpc.Auth`) with the tokens that are kept for an account.

    `origin` is its host. `fetcher` is what an authorization server is asked through. Threads
    and processes may share one.
    """

    def __init__(
        self,
        keeping: Keeping | InMemory,
        origin: str,
        fetcher: Fetcher,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keeping = keeping
        self._origin = origin
        self._fetcher = fetcher
        self._clock = clock
        self._tokens: Tokens | None = None

    def tokens(self) -> Tokens:
        """Those that were good last. Raises SignedOut where there are none, or they ended."""
        if self._tokens is None:
            self._tokens = self._kept()
        return self._tokens

    def state(self) -> Literal["kept", "ended", "missing"]:
        """What is known without asking: tokens are kept, the host ended them, there are none."""
        kept = self._keeping.load()
        if kept is None:
            return "missing"
        return "ended" if Tokens.read(kept).ended else "kept"

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:
        """`Auth`: the fields of one request. Raises SignedOut, StoreUnavailable, Damaged."""
        tokens = self.tokens()
        if tokens.binding is None:
            return [("authorization", f"Bearer {tokens.access}")]
        proof = mint_proof(
            tokens.binding.key, method, url, self._clock(), credential=tokens.access, nonce=nonce
        )
        return [("authorization", f"DPoP {tokens.access}"), ("dpop", proof)]

    def renew(self, used: Sequence[Field], error: str) -> bool:
        """`Auth`: gets tokens that are newer than those of a refused request.

        Raises SignedOut, Unreachable, HostRefused, StoreUnavailable, Damaged.
        """
        if error not in _RENEWABLE:
            return False
        with self._keeping.locked():
            kept = self._kept()
            if any(kept.access == value.rpartition(" ")[2] for _, value in used):
                kept = self._newer(kept)
                self._keeping.save(kept.json())
            self._tokens = kept
        return True

    def end(self) -> None:
        """Tells the host that the session is over. Raises SignedOut where it is over already,
        HostRefused, Unreachable."""
        tokens = self._kept()
        if tokens.binding is not None:
            revoke(tokens.refresh, tokens.binding, self._fetcher)
        else:
            with Client(self._origin) as client:
                client.procedure("com.atproto.server.deleteSession", auth=_Bearer(tokens.refresh))

    def _kept(self) -> Tokens:
        kept = self._keeping.load()
        if kept is None:
            raise SignedOut(f"there are no tokens for {self._keeping.did}; sign in again")
        tokens = Tokens.read(kept)
        if tokens.ended:
            raise SignedOut(f"{self._origin} has ended this session; sign in again")
        return tokens

    def _newer(self, kept: Tokens) -> Tokens:
        """What the host gives for these. Raises SignedOut once it is known that they ended.

        Raises Unreachable with `sent` False, whatever became of the refresh: the request that
        needs it was refused, and did nothing.
        """
        try:
            try:
                return self._ask(kept)
            except Unreachable as error:
                if not error.sent:
                    raise
                return self._ask(kept)
        except Unreachable as error:
            raise Unreachable(str(error), sent=False) from None
        except SignedOut:
            self._tokens = None
            self._keeping.save(replace(kept, ended=True).json())
            raise

    def _ask(self, kept: Tokens) -> Tokens:
        if kept.binding is not None:
            grant = renew(self._keeping.did, kept.refresh, kept.binding, self._fetcher)
            return Tokens(grant.access, grant.refresh, grant.binding)
        try:
            with Client(self._origin) as client:
                answer = client.procedure(
                    "com.atproto.server.refreshSession", auth=_Bearer(kept.refresh)
                )
        except HostRefused as error:
            if error.error not in _OVER:
                raise
            raise SignedOut(f"{self._origin} has ended this session; sign in again") from None
        if answer["did"] != self._keeping.did:
            raise SignedOut(f"{self._origin} answers for another account; sign in again")
        return Tokens(answer["accessJwt"], answer["refreshJwt"])


class _Bearer:
    """`Auth` for the requests that show a refresh token itself."""

    def __init__(self, token: str) -> None:
        self._token = token

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:  # noqa: ARG002
        return [("authorization", f"Bearer {self._token}")]

    def renew(self, used: Sequence[Field], error: str) -> bool:  # noqa: ARG002
        return False


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value
