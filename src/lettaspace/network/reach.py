"""Where connections may go: anywhere in the public, and where this machine's user said.

A user who types the address of a host at home means that host, wherever it is. So of one origin,
and of the names below it that lead to the very same machine, addresses in private networks are
good, too: a host and its accounts are found there. Whatever else anybody names is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lettaspace.network.addresses import Address, is_home, is_loopback, is_public
from lettaspace.network.targets import Target, parse


@dataclass(frozen=True, slots=True)
class Reach:
    """`development` allows this machine, also without TLS. `trusted` is the origin that the user
    typed, https, where that is in a private network."""

    development: bool = False
    trusted: str | None = None

    def parse(self, url: str) -> Target:
        """As `targets.parse`."""
        return parse(url, development=self.development, trusted=self.trusted)

    def allows(
        self,
        host: str,
        port: int,
        found: Sequence[Address],
        lookup: Callable[[str], Sequence[Address]],
    ) -> bool:
        """Whether all addresses of a host may be connected to. `lookup` finds those of the
        trusted one."""
        inside = [
            address
            for address in found
            if not (is_public(address) or (self.development and is_loopback(address)))
        ]
        if not inside:
            return True
        if self.trusted is None or not all(map(is_home, inside)):
            return False
        own = self.parse(self.trusted)
        if port != own.port:
            return False
        if host.strip("[]") == own.host.strip("[]"):
            return True
        return host.endswith(f".{own.host}") and set(inside) <= set(lookup(own.host))
