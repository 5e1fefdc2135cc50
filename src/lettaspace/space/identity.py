"""The identity of an embedded space: one signing key in one private file.

Until a real account is attached the author is the key's own did:key. The file is JSON:
`{"did": ..., "curve": "secp256k1", "privateKey": <64 hex digits>}`, mode 0600.
"""

import json
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lettaspace.atproto.syntax import is_did
from lettaspace.errors import Damaged, StoreUnavailable

if TYPE_CHECKING:
    from lettaspace.atproto.keys import SigningKey

_CURVE: Literal["secp256k1"] = "secp256k1"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes, and where the key is. The key itself is read only when it is needed."""

    did: str
    path: Path

    @classmethod
    def open(cls, path: Path) -> "Identity":
        """Reads the identity file, or creates it with a fresh key."""
        if not path.exists():
            _create(path)
        return cls(_read(path)["did"], path)

    def signing_key(self) -> "SigningKey":
        from lettaspace.atproto.keys import SigningKey

        return SigningKey.from_bytes(_CURVE, bytes.fromhex(_read(self.path)["privateKey"]))


def _create(path: Path) -> None:
    from lettaspace.atproto.keys import SigningKey

    key = SigningKey.generate(_CURVE)
    content = json.dumps({"did": key.did, "curve": _CURVE, "privateKey": key.to_bytes().hex()})
    # Written aside and linked into place: of two processes that start at once, one key wins
    # and neither sees half a file.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(content + "\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot create {path}: {error.strerror or error}") from error


def _read(path: Path) -> dict[str, str]:
    try:
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreUnavailable(f"{path} can be read by others; run: chmod 600 '{path}'")
        content = json.loads(path.read_text())
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise Damaged(f"{path} is not an identity file") from error
    if (
        not isinstance(content, dict)
        or content.get("curve") != _CURVE
        or not isinstance(content.get("did"), str)
        or not is_did(content["did"])
        or not isinstance(content.get("privateKey"), str)
        or not _is_key(content["privateKey"])
    ):
        raise Damaged(f"{path} is not an identity file")
    return content


def _is_key(text: str) -> bool:
    return len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)
