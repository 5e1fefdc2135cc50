"""The set hash of a space repo: LtHash over its records.

Source: protocol, section 3 (space repo). The state is 1024 little-endian 16-bit lanes, all
zero for the empty set. An element is expanded with BLAKE3 to the size of the state, then
added or subtracted lane by lane, modulo 65536. Order never matters; adding an element twice
is not detected, so the caller guarantees that each is in the set once.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from blake3 import blake3

STATE_BYTES = 2048

_LANES = np.dtype("<u2")


def element(collection: str, rkey: str, cid: str) -> bytes:
    """The set element of a record: `collection/rkey/cid`, the CID in its base32 text."""
    return f"{collection}/{rkey}/{cid}".encode()


class SetHash:
    """A mutable LtHash state."""

    __slots__ = ("_state",)

    def __init__(self, state: bytes | None = None) -> None:
        if state is None:
            self._state = np.zeros(STATE_BYTES // 2, _LANES)
        elif len(state) == STATE_BYTES:
            self._state = np.frombuffer(state, _LANES).copy()
        else:
            raise ValueError(f"a set hash state has {STATE_BYTES} bytes, not {len(state)}")

    def add(self, item: bytes) -> None:
        self._state += np.frombuffer(blake3(item).digest(STATE_BYTES), _LANES)

    def add_all(self, items: Sequence[bytes]) -> None:
        """The same for some hundreds at once, 2 KB each, which is faster."""
        digests = b"".join([blake3(item).digest(STATE_BYTES) for item in items])
        lanes = np.frombuffer(digests, _LANES).reshape(len(items), STATE_BYTES // 2)
        self._state += lanes.sum(axis=0, dtype=_LANES)

    def remove(self, item: bytes) -> None:
        self._state -= np.frombuffer(blake3(item).digest(STATE_BYTES), _LANES)

    @property
    def state(self) -> bytes:
        """The whole state, 2048 bytes."""
        return self._state.tobytes()

    @property
    def is_empty(self) -> bool:
        return not self._state.any()

    def digest(self) -> bytes:
        """SHA-256 of the state: the hash that a commit carries, 32 bytes."""
        return hashlib.sha256(self.state).digest()
