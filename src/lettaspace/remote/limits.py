"""How much a host takes at once."""

from dataclasses import dataclass, replace
from typing import Final

_LEAST: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a host is sent in one request.

    The defaults are what every host of the protocol takes (section 10). No method tells what a
    host's own are, so a lower one is learnt when it refuses (413), and kept by the `HostRepo`.
    """

    writes: int = 200
    """Writes of one batch."""
    body: int = 1_000_000
    """Bytes of a batch's JSON."""
    blob: int = 5 * 1024 * 1024
    """Bytes of a blob."""

    def after_body(self, size: int) -> "Limits":
        """What to keep to after a host refused a batch of so many bytes as too large."""
        return replace(self, body=max(_LEAST, min(self.body, size) // 2))

    def after_blob(self, size: int) -> "Limits":
        """What to keep to after a host refused a blob of so many bytes as too large."""
        return replace(self, blob=min(self.blob, size - 1))
