"""What a host is told when it starts: where it is reached, where it keeps its state, its limits."""

import re
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from lettaspace.errors import InvalidInput
from lettaspace.server.rates import Rates

Level: TypeAlias = Literal["off", "error", "info"]

_HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    r"(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
).fullmatch

LOOPBACK_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Config:
    """A host's settings. They do not change while it runs. Raises InvalidInput.

    `origin` is how everybody reaches it: `https://` and a host name, and a port if it is not
    443. In `development` it may also be `http://localhost:PORT`, and the host then talks to
    others on this machine without encryption. Sizes are in bytes, lifetimes in seconds.
    """

    origin: str
    database: Path | str = field(repr=False)
    """A path, or a URL, which may hold a password."""
    development: bool = False
    blob_limit: int = 5 * 1024 * 1024
    """The largest blob that may be uploaded."""
    credential_lifetime: int = 600
    delegation_lifetime: int = 60
    plc_directory: str = "https://plc.directory"
    rates: Rates = field(default_factory=Rates)
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies in front. Of a request that comes from one of them, the
    client's address is the last in `X-Forwarded-For` that is not one of them."""
    metrics_ports: range = range(0)
    """Ports on loopback, one for each process, where metrics are served; none by default."""
    log: Level = "off"
    """Faults, also a line for each request, or nothing; see `logs`."""

    def __post_init__(self) -> None:
        scheme, netloc = _split(self.origin)
        name = netloc.partition(":")[0]
        if scheme == "https":
            if "." not in name and not self.development:
                raise InvalidInput("origin: the host needs a public name with a dot in it")
        elif not (
            scheme == "http"
            and self.development
            and (name in LOOPBACK_NAMES or name.endswith(".localhost"))
        ):
            raise InvalidInput(
                "origin: is not https://; in development it may be http://localhost:PORT"
            )
        for proxy in self.proxies:
            try:
                ip_network(proxy)
            except ValueError:
                raise InvalidInput("proxies: not an IP address or network") from None

    @property
    def netloc(self) -> str:
        """The host name, with `:PORT` where the origin has one."""
        return _split(self.origin)[1]

    @property
    def hostname(self) -> str:
        """The host name alone."""
        return self.netloc.partition(":")[0]

    @property
    def did(self) -> str:
        """The host's own DID."""
        return web_did(self.netloc)


def web_did(netloc: str) -> str:
    """The did:web of a host name or `host:port`."""
    return "did:web:" + netloc.replace(":", "%3A")


def _split(origin: str) -> tuple[str, str]:
    """Scheme and `host[:port]` of an origin in its normal form. Raises InvalidInput."""
    try:
        parts = urlsplit(origin)
        name, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput("origin: is not a URL") from None
    netloc = name if port is None else f"{name}:{port}"
    if origin != f"{parts.scheme}://{netloc}" or _HOSTNAME(name) is None:
        raise InvalidInput("origin: is not https:// and a host name in lower case, nothing else")
    if port == {"https": 443, "http": 80}.get(parts.scheme):
        raise InvalidInput("origin: names the port that needs no naming")
    return parts.scheme, netloc
