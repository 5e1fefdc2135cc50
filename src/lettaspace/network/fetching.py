"""Getting what others name: DID documents, client metadata, keys, the hosts of others.

Whoever sends a token or a registration chooses an address that this host then asks. It must
not lead anywhere that the sender could not reach alone, nor hold the host up. So: HTTPS, public
addresses only, redirects checked one by one, no cookies, no proxy, and a limit to everything.

    fetcher = Fetcher()
    metadata = fetcher.get_json("https://app.example/client-metadata.json")

Everything here blocks, for at most the time it is given. Source: docs/host.md says the rules.
"""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from ssl import SSLCertVerificationError, SSLContext
from typing import Any
from urllib.parse import urljoin

import httpcore

from lettaspace import __version__
from lettaspace.network.addresses import Address, Lookup, lookup
from lettaspace.network.reach import Reach
from lettaspace.network.targets import FetchError, Target, loopback
from lettaspace.network.wire import TooMuch, Wire

AGENT = f"lettaspace/{__version__}"

MAX_BODY = 64 * 1024
_MAX_HEAD = 64 * 1024
"""Bytes on the wire beside the body: headers, chunk sizes, TLS is not counted."""
_MAX_ADDRESSES = 8

TRANSIENT = frozenset((408, 425, 429, 500, 502, 503, 504, 522, 524))
"""Statuses after which asking again may help (protocol, section 8)."""

_REDIRECTS = (301, 302, 303, 307, 308)

_json_type = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json").fullmatch


class Busy(FetchError):
    """This host fetches so much already that it did not even try."""

    def __init__(self) -> None:
        super().__init__("too much to fetch at once", transient=True)


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer, whatever its status. Header names are in lower case, repeated ones joined."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """The type without parameters, in lower case; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Fetcher:
    """Fetches, from several threads at once.

    `patience` is the time in seconds for one fetch with its redirects, from the look-up of the
    name to the last byte. `at_once` are the connections to one host; more wait for their turn.
    `total` are all fetches under way, waiting ones included; one more raises Busy at once. With
    fewer than there are threads to call from, slow hosts cannot take them all. `trust` replaces
    the public certificate authorities. `development` and `trusted` are those of `Reach`; where a
    redirect leads nothing is trusted.
    """

    def __init__(
        self,
        *,
        development: bool = False,
        trusted: str | None = None,
        patience: float = 8.0,
        at_once: int = 4,
        total: int = 6,
        trust: SSLContext | None = None,
        lookup: Lookup = lookup,
    ) -> None:
        self.development = development
        self.trusted = trusted
        self.reach = Reach(development, trusted)
        self._patience = patience
        self._free = threading.BoundedSemaphore(total)
        self._turns = _Turns(at_once)
        self._trust = trust
        self._lookup = lookup

    def get(
        self,
        url: str,
        *,
        accept: str = "*/*",
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_BODY,
        redirects: int = 0,
        patience: float | None = None,
    ) -> Fetched:
        """The answer to a GET, with at most `limit` bytes. Raises FetchError.

        Follows so many redirects, each checked like the first address; `headers` are not sent
        on. With none to follow, a redirect is an answer like any other.
        """
        deadline = self._deadline(patience)
        extra = dict(headers or {})
        with self.place():
            reach = self.reach
            for _ in range(redirects + 1):
                target = reach.parse(url)
                fetched = self._exchange(
                    "GET", target, {"accept": accept} | extra, limit, deadline, reach
                )
                location = fetched.headers.get("location")
                if not redirects or location is None or fetched.status not in _REDIRECTS:
                    return fetched
                url, extra = _join(fetched.url, location), {}
                reach = Reach(self.development)
        raise FetchError("redirected too often")

    def post(
        self,
        url: str,
        body: bytes,
        media_type: str = "application/json",
        *,
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_BODY,
        patience: float | None = None,
    ) -> Fetched:
        """The answer to a POST; redirects are not followed. Raises FetchError."""
        deadline = self._deadline(patience)
        target = self.reach.parse(url)
        sent = {"accept": "*/*", "content-type": media_type} | dict(headers or {})
        with self.place():
            return self._exchange("POST", target, sent, limit, deadline, self.reach, body)

    def get_json(
        self,
        url: str,
        *,
        limit: int = MAX_BODY,
        redirects: int = 0,
        patience: float | None = None,
    ) -> Any:
        """The JSON that a GET gives with status 200 and a type for JSON. Raises FetchError."""
        fetched = self.get(
            url, accept="application/json", limit=limit, redirects=redirects, patience=patience
        )
        if (status := fetched.status) != 200:
            raise FetchError(
                f"answered with status {status}", transient=status in TRANSIENT, status=status
            )
        if _json_type(fetched.media_type) is None:
            raise FetchError("answer does not claim to be JSON")
        try:
            return json.loads(fetched.body.decode())
        except (ValueError, RecursionError):
            raise FetchError("answer is not JSON") from None

    @contextmanager
    def place(self) -> Iterator[None]:
        """Counts the block as a fetch under way, when it waits for another's. Raises Busy."""
        if not self._free.acquire(blocking=False):
            raise Busy
        try:
            yield
        finally:
            self._free.release()

    def _deadline(self, patience: float | None) -> float:
        return time.monotonic() + (self._patience if patience is None else patience)

    def _exchange(
        self,
        method: str,
        target: Target,
        headers: dict[str, str],
        limit: int,
        deadline: float,
        reach: Reach,
        body: bytes | None = None,
    ) -> Fetched:
        """One request to one host and its answer."""
        headers = {"host": target.authority, "user-agent": AGENT} | headers
        headers |= {"accept-encoding": "identity", "connection": "close"}
        wire: Wire | None = None
        try:
            with self._turns.at(target.host, deadline):
                wire = Wire(self._addresses(target, deadline, reach), deadline, limit + _MAX_HEAD)
                return self._ask(wire, method, target, headers, limit, body)
        except (TimeoutError, httpcore.TimeoutException):
            raise FetchError("took too long", transient=True, sent=_sent(wire)) from None
        except TooMuch:
            raise FetchError("answer is too large", sent=True) from None
        except SSLCertVerificationError:
            raise FetchError("certificate is not valid", transient=True) from None
        except (OSError, httpcore.NetworkError):
            raise FetchError("connection failed", transient=True, sent=_sent(wire)) from None
        except httpcore.ProtocolError:
            raise FetchError("answer is not HTTP", transient=True, sent=True) from None

    def _ask(
        self,
        wire: Wire,
        method: str,
        target: Target,
        headers: dict[str, str],
        limit: int,
        body: bytes | None,
    ) -> Fetched:
        url = httpcore.URL(
            scheme=target.scheme,
            host=target.host.strip("[]"),
            port=target.port,
            target=target.path,
        )
        connection = httpcore.HTTPConnection(
            url.origin, self._trust or _public_authorities(), network_backend=wire
        )
        with (
            closing(connection),
            connection.stream(method, url, headers=list(headers.items()), content=body) as response,
        ):
            received = _headers(response.headers)
            if received.get("content-encoding", "identity").lower() != "identity":
                raise FetchError("answer is compressed, which was not asked for", sent=True)
            content = bytearray()
            for piece in response.iter_stream():
                content += piece
                if len(content) > limit:
                    raise TooMuch
        return Fetched(target.origin + target.path, response.status, received, bytes(content))

    def _addresses(
        self, target: Target, deadline: float, reach: Reach | None = None
    ) -> list[Address]:
        """Where to connect. Any address of a name that may not be asked spoils them all."""
        if self.development and (own := loopback(target.host)) is not None:
            return [own]

        def lookup(name: str) -> list[Address]:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            return self._lookup(name.strip("[]"), left)

        found = lookup(target.host)
        reach = reach or self.reach
        if not found or not reach.allows(target.host, target.port, found, lookup):
            # One reason for both: which names exist inside is not for outsiders.
            raise FetchError("host has no public address", transient=not found)
        return found[:_MAX_ADDRESSES]


class _Turns:
    """Keeps count of the connections to each host."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._hosts: dict[str, int] = {}
        self._changed = threading.Condition()

    @contextmanager
    def at(self, host: str, deadline: float) -> Iterator[None]:
        with self._changed:
            while self._hosts.get(host, 0) >= self._each:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
            self._hosts[host] = self._hosts.get(host, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._hosts[host] -= 1
                if not self._hosts[host]:
                    del self._hosts[host]
                self._changed.notify_all()


@cache
def _public_authorities() -> SSLContext:
    """Those of the system, and those that browsers trust."""
    return httpcore.default_ssl_context()


def _sent(wire: Wire | None) -> bool:
    return wire is not None and wire.sent


def _headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _join(base: str, location: str) -> str:
    try:
        return urljoin(base, location.partition("#")[0])
    except ValueError:
        raise FetchError("redirected to no address") from None
