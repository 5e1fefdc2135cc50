"""Signed commits of space repos: what a repo holds, said by its author to one reader.

    context = "atproto-space-v1", then space reference, author DID, rev and ikm,
              each after its length as two bytes, big-endian
    sig     = signature of the context with the author's signing key
    mac     = HMAC-SHA-256 of the set hash, with a key that HKDF-Expand (SHA-256) makes of the
              ikm for the context

The hash is not signed, on purpose: whoever is given a commit knows the ikm and could make the
mac of another hash, so a commit proves something only to who got it from the author's host.
Source: protocol, section 3 (space repo).
"""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.syntax import is_tid
from lettaspace.errors import InvalidInput

VERSION: Final = 1
IKM_BYTES: Final = 32

_PREFIX = b"atproto-space-v1"
_MAX_FIELD = 0xFFFF
_BYTES = ("hash", "ikm", "sig", "mac")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of version 1."""

    rev: str
    """The revision, a TID."""
    hash: bytes
    """The digest of the repo's set hash, 32 bytes."""
    ikm: bytes
    """Input key material: 32 random bytes, fresh for every reader."""
    sig: bytes
    """64 bytes."""
    mac: bytes
    """32 bytes."""

    @classmethod
    def from_value(cls, value: Any) -> "Commit":
        """The commit that a data-model value tells; other fields are ignored.

        Raises InvalidInput for another version, and where a field is missing or no bytes.
        """
        if type(value) is not dict:
            raise InvalidInput("commit: not a map")
        if type(value.get("ver")) is not int or value["ver"] != VERSION:
            raise InvalidInput(f"commit: not of version {VERSION}")
        if not is_tid(value.get("rev")):
            raise InvalidInput("commit: rev is not a TID")
        for name in _BYTES:
            if type(value.get(name)) is not bytes:
                raise InvalidInput(f"commit: {name} is not bytes")
        return cls(value["rev"], *(value[name] for name in _BYTES))

    def to_value(self) -> dict[str, Any]:
        """The data-model value, as it is encoded and sent."""
        fields = {name: getattr(self, name) for name in _BYTES}
        return {"ver": VERSION, "rev": self.rev, **fields}

    def is_valid(self, space: str, author: str, key: VerifyingKey) -> bool:
        """Whether the author, whose key this is, gave this commit for a repo in the space."""
        try:
            signed = context(space, author, self.rev, self.ikm)
        except InvalidInput:
            return False
        expected = _mac(signed, self.ikm, self.hash)
        return hmac.compare_digest(self.mac, expected) and key.verify(self.sig, signed)


def sign(
    key: SigningKey, space: str, author: str, rev: str, digest: bytes, ikm: bytes | None = None
) -> Commit:
    """The commit of a repo at a revision. `ikm` is only given to repeat a known commit.

    Raises InvalidInput for a part that is too long.
    """
    if ikm is None:
        ikm = secrets.token_bytes(IKM_BYTES)
    signed = context(space, author, rev, ikm)
    return Commit(rev, digest, ikm, key.sign(signed), _mac(signed, ikm, digest))


def context(space: str, author: str, rev: str, ikm: bytes) -> bytes:
    """The bytes that are signed. Raises InvalidInput for a part of more than 65,535 bytes."""
    parts = [_PREFIX]
    for part in (space.encode(), author.encode(), rev.encode(), ikm):
        if len(part) > _MAX_FIELD:
            raise InvalidInput(f"commit context: a part of {len(part)} bytes is too long")
        parts += len(part).to_bytes(2, "big"), part
    return b"".join(parts)


def mac_key(signed: bytes, ikm: bytes) -> bytes:
    """The key of the mac: one step of HKDF-Expand, since 32 bytes are asked for."""
    return hmac.digest(ikm, signed + b"\x01", sha256)


def _mac(signed: bytes, ikm: bytes, digest: bytes) -> bytes:
    return hmac.digest(mac_key(signed, ikm), digest, sha256)
