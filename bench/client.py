"""A client that costs little: requests made beforehand, on connections that stay open."""

import selectors
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_PIECE = 1 << 20


def encode(
    verb: str,
    target: str,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    host: str = "localhost",
) -> bytes:
    """A request as it is sent."""
    fields = [("Host", host), *headers]
    if verb == "POST":
        fields.append(("Content-Length", str(len(body))))
    head = [f"{verb} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(head).encode() + body


@dataclass(slots=True)
class Answer:
    status: int
    body: bytes


class Connection:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def close(self) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> Answer:
        """What is answered. Raises RuntimeError unless it is a success."""
        self.socket.sendall(request)
        while (answer := self.take()) is None:
            pass
        return answer

    def take(self) -> Answer | None:
        """Reads what is there, or waits for it; the answer, if that was the rest of it."""
        piece = self.socket.recv(_PIECE)
        if not piece:
            raise RuntimeError("the host closed the connection")
        received = self._received
        received += piece
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(received[:end]).lower()
        begin = end + 4
        at = head.find(b"content-length:")
        if at >= 0:
            size = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(received) - begin < size:
                return None
            body = bytes(received[begin : begin + size])
        elif not received.endswith(b"\r\n0\r\n\r\n"):
            return None
        else:
            body = bytes(received[begin:])  # in chunks; see `joined`
        received.clear()
        status = int(head[9:12])
        if status != 200:
            raise RuntimeError(f"answered with {status}: {body[:200]!r}")
        return Answer(status, body)


def joined(body: bytes) -> bytes:
    """The content of a body that came in chunks."""
    return b"".join(_chunks(body))


def _chunks(body: bytes) -> Iterator[bytes]:
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if not size:
            return
        yield body[end + 2 : end + 2 + size]
        at = end + 4 + size


class Crowd:
    """So many connections that ask at once, each going on when it has its answer."""

    def __init__(self, port: int, size: int) -> None:
        self._connections = [Connection(port) for _ in range(size)]
        self._selector = selectors.DefaultSelector()
        for one in self._connections:
            self._selector.register(one.socket, selectors.EVENT_READ, one)

    def close(self) -> None:
        self._selector.close()
        for one in self._connections:
            one.close()

    def ask(self, requests: Sequence[bytes]) -> None:
        """Asks all of it. Raises RuntimeError unless all are successes."""
        left = iter(requests)
        waiting = 0
        for one, request in zip(self._connections, left, strict=False):
            one.socket.sendall(request)
            waiting += 1
        while waiting:
            for key, _ in self._selector.select():
                one = key.data
                if one.take() is None:
                    continue
                request = next(left, None)
                if request is None:
                    waiting -= 1
                else:
                    one.socket.sendall(request)
