"""Addresses that others name, taken apart, and refused by their form alone."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address

from lettaspace.atproto.syntax import is_handle
from lettaspace.network.addresses import Address, is_loopback

MAX_URL = 2048

# Nothing that two parsers could read in two ways: no user, no backslash, no escape in the host.
_url = re.compile(
    r"(https?)://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
    r"((?:[/?][!-\"$-\[\]-~]*)?)"
).fullmatch


class FetchError(Exception):
    """Nothing was got. The text says why in a few words, and nothing of this host's network.

    `transient` tells whether it may be different later, `status` is that of an answer that was
    no use, `sent` whether the request may have got there. Not one of `lettaspace.errors`: a
    handler says what it means for its own answer.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool = False,
        status: int | None = None,
        sent: bool = False,
    ) -> None:
        super().__init__(reason)
        self.transient = transient
        self.status = status
        self.sent = sent or status is not None


@dataclass(frozen=True, slots=True)
class Target:
    """An address, in parts: scheme, host in lower case, port, and path with query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """Scheme, host, and the port where it is not the scheme's own."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        usual = self.port == (443 if self.scheme == "https" else 80)
        return self.host if usual else f"{self.host}:{self.port}"


def parse(url: str, *, development: bool = False, trusted: str | None = None) -> Target:
    """What an address says. Raises FetchError for one that is not fetched, wherever it leads.

    Good are https, a domain name of two labels or more, and port 443 or one above 1023; in
    development also http or https to `localhost`, `*.localhost`, and loopback addresses. Of the
    https origin `trusted` all are good.
    """
    match = _url(url) if len(url) <= MAX_URL else None
    if match is None:
        raise FetchError("not an address to fetch from")
    scheme, host, port, path = match.groups()
    host = host.lower()
    number = int(port or (443 if scheme == "https" else 80))
    target = Target(scheme, host, number, path if path.startswith("/") else f"/{path}")
    if scheme == "https" and target.origin == trusted:
        return target
    if not (development and loopback(host)):
        if scheme != "https":
            raise FetchError("not https")
        if not is_handle(host):
            raise FetchError("host is not a domain name")
        if number != 443 and not 1024 <= number <= 65535:
            raise FetchError("not a port to ask")
    elif not 1 <= number <= 65535:
        raise FetchError("not a port to ask")
    return target


def loopback(host: str) -> Address | None:
    """The address of a host that is this machine by its name alone, without a look-up."""
    if host == "localhost" or (host.endswith(".localhost") and is_handle(host)):
        return IPv4Address("127.0.0.1")
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return None
    return address if is_loopback(address) else None
