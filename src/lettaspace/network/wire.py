"""A connection to addresses that were checked, with one deadline for all it does.

What `httpcore` is given instead of its own sockets. A name is not looked up a second time
here, so the address that was checked is the one that is connected to. TLS is for the name.
"""

import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Any

import httpcore

from lettaspace.network.addresses import Address

_PIECE = 64 * 1024


class TooMuch(Exception):
    """The other side sent more bytes than it may."""


class Wire(httpcore.NetworkBackend):
    """One connection, to the first of the addresses that takes it.

    `deadline` is a `time.monotonic()`; past it, everything raises TimeoutError. After `most`
    bytes received, of whatever kind, reading raises TooMuch. `sent` is whether anything of the
    request was written, which for TLS is after the handshake.
    """

    def __init__(self, addresses: Sequence[Address], deadline: float, most: int) -> None:
        self._addresses = addresses
        self._deadline = deadline
        self.left = most
        self.sent = False

    def remaining(self) -> float:
        """Seconds until the deadline, more than zero. Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - it was looked up already
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        for number, address in enumerate(self._addresses):
            # A silent address leaves time for those after it.
            patience = self.remaining() / (len(self._addresses) - number)
            with suppress(OSError):  # a timeout is one, and so is a family that is not to be had
                return _Stream(self, _connect(address, port, patience))
        self.remaining()
        raise httpcore.ConnectError("no address takes connections")


def _connect(address: Address, port: int, patience: float) -> socket.socket:
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(patience)
        sock.connect((str(address), port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


class _Stream(httpcore.NetworkStream):
    def __init__(self, wire: Wire, sock: socket.socket) -> None:
        self._wire = wire
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        if self._wire.left <= 0:
            raise TooMuch
        self._sock.settimeout(self._wire.remaining())
        try:
            data = self._sock.recv(min(max_bytes, self._wire.left))
        except TimeoutError:
            raise
        except OSError:
            raise httpcore.ReadError("connection broke") from None
        self._wire.left -= len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._wire.sent = True
        try:
            while buffer:
                self._sock.settimeout(self._wire.remaining())
                buffer = buffer[self._sock.send(buffer[:_PIECE]) :]
        except TimeoutError:
            raise
        except OSError:  # httpcore then looks whether there is an answer already
            raise httpcore.WriteError("connection broke") from None

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        try:
            self._sock.settimeout(self._wire.remaining())
            self._sock = ssl_context.wrap_socket(self._sock, server_hostname=server_hostname)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ARG002
        return None
