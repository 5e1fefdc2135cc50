"""Ways to prove who asks, as plain as they can be, for tests of what uses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lettaspace.atproto import dpop
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import SignedOut
from lettaspace.remote.xrpc import Auth, Field


class Bearer:
    """A password session. `others` are the tokens that renewing gives, one after the other."""

    def __init__(self, token: str, others: Sequence[str] = ()) -> None:
        self.token = token
        self.others = list(others)
        self.renewals: list[str] = []

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:  # noqa: ARG002
        return [("Authorization", f"Bearer {self.token}")]

    def renew(self, used: Sequence[Field], error: str) -> bool:  # noqa: ARG002
        self.renewals.append(error)
        if error not in ("ExpiredToken", "InvalidToken"):
            return False
        if not self.others:
            raise SignedOut("sign in again")
        self.token = self.others.pop(0)
        return True


class Proving:
    """An OAuth session: each request with a proof of the key that the token is bound to."""

    def __init__(self, key: SigningKey, token: str, clock: Callable[[], float]) -> None:
        self.key = key
        self.token = token
        self.clock = clock

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:
        proof = dpop.mint_proof(
            self.key, method, url, self.clock(), credential=self.token, nonce=nonce
        )
        return [("Authorization", f"DPoP {self.token}"), ("DPoP", proof)]

    def renew(self, used: Sequence[Field], error: str) -> bool:  # noqa: ARG002
        return False


def _are_what_they_claim() -> list[Auth]:  # held by the type checker
    return [Bearer(""), Proving(SigningKey.generate("p256"), "", lambda: 0.0)]
