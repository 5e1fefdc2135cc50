"""Connections to hosts that others name: only to public addresses, each checked as it is made.

The host of another member's repo is what that member's DID document says, so anybody chooses
it. What is looked up is checked and connected to without a second look-up, no proxy of the
environment is used, and a redirect leads nowhere since clients follow none. The rules are those
of `network`; here they hold for a client that keeps connections open.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from ssl import SSLContext
from typing import Any, cast

import httpcore
import httpx

from lettaspace.network.addresses import Address, Lookup, is_loopback, is_public, lookup
from lettaspace.network.targets import FetchError, loopback, parse

_IDLE = 4.0
_CONNECTIONS = 8
_MAX_ADDRESSES = 8


class Checked(httpx.BaseTransport):
    """For `Client`. `development` also allows http, and this machine. `trust` replaces the
    public certificate authorities.

    Raises httpx.UnsupportedProtocol, having sent nothing, for a host that is not to be asked.
    """

    def __init__(
        self,
        *,
        development: bool = False,
        trust: SSLContext | None = None,
        lookup: Lookup = lookup,
    ) -> None:
        self._development = development
        self._pool = httpcore.ConnectionPool(
            trust or _trusted(),
            max_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE,
            network_backend=_Backend(lookup, development=development),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            parse(str(request.url.copy_with(query=None)), development=self._development)
        except FetchError as error:
            raise httpx.UnsupportedProtocol(str(error)) from None
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx():
            got = self._pool.handle_request(sent)
        body = _Body(cast(Iterable[bytes], got.stream))
        return httpx.Response(
            got.status, headers=got.headers, stream=body, extensions=got.extensions
        )

    def close(self) -> None:
        self._pool.close()


class _Backend(httpcore.NetworkBackend):
    def __init__(self, lookup: Lookup, *, development: bool) -> None:
        self._lookup = lookup
        self._development = development
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        deadline = time.monotonic() + (10.0 if timeout is None else timeout)
        found = self._addresses(host, deadline)
        for number, address in enumerate(found):
            # A silent address leaves time for those after it.
            patience = max(0.01, deadline - time.monotonic()) / (len(found) - number)
            try:
                return self._sockets.connect_tcp(
                    str(address), port, patience, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        raise httpcore.ConnectError("no address takes connections")

    def _addresses(self, host: str, deadline: float) -> list[Address]:
        """Where to connect. Any address of a name that may not be asked spoils them all."""
        if self._development and (own := loopback(host)) is not None:
            return [own]
        try:
            found = self._lookup(host, max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise httpcore.ConnectTimeout("no address in time") from None
        if not found:
            raise httpcore.ConnectError("no address")
        for address in found:
            if not (is_public(address) or (self._development and is_loopback(address))):
                raise httpcore.UnsupportedProtocol("host has no public address")
        return found[:_MAX_ADDRESSES]


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._stream

    def close(self) -> None:
        if (close := getattr(self._stream, "close", None)) is not None:
            close()


@cache
def _trusted() -> SSLContext:
    """Whose certificates are taken; the environment has no say."""
    return httpx.create_ssl_context(trust_env=False)


@contextmanager
def _as_httpx() -> Iterator[None]:
    """What `httpcore` raises, as the error of the same name that clients of `httpx` expect."""
    try:
        yield
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
