"""Other hosts, as far as tests need them: sockets on this machine that answer as they are told."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

TLS = b"\x16\x03"

Answer = Callable[[socket.socket, bytes], None]


class Peer:
    """Accepts connections, reads each request, and lets `answer` send what it wants."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._tls = tls
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in [self._listener, *self._open]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # Whoever is tested hangs up whenever it likes.
        with suppress(OSError), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                request = _read(connection)
                self.requests.append(request)
                self._answer(connection, request)


@contextmanager
def peer(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """A peer while the block runs."""
    peer = Peer(answer, tls)
    try:
        yield peer
    finally:
        peer.close()


def reply(
    body: bytes = b"", status: str = "200 OK", headers: str = "", media_type: str = "text/plain"
) -> Answer:
    """The same answer to everything. `headers` are lines, each with its line end."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\n{headers}"
    data = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    return lambda connection, _: connection.sendall(data)


def _read(connection: socket.socket) -> bytes:
    """One request, by its content-length; or the start of a handshake that is not expected."""
    data = b""
    while b"\r\n\r\n" not in data and not data.startswith(TLS):
        if not (piece := connection.recv(65536)):
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            size = int(line.partition(b":")[2])
    while len(body) < size and (piece := connection.recv(65536)):
        body += piece
        data += piece
    return data
