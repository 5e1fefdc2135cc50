"""A proxy in front of a host, which does to every request what a test says.

It listens on loopback, in threads of this process, and speaks HTTP/1.1 as far as hosts and
their clients do. A request is read whole; an answer is passed on as it comes, unless its fault
needs all of it first. What was asked and how many bytes it took is counted by method.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.remote.faults import PASS, Call, Fault, Schedule, by_number, calm

_READ = 1 << 16
TIMEOUT = 600
"""Seconds after which an answer that does not come is a failed test."""

_REASONS = {
    429: ("Too Many Requests", b'{"error":"RateLimitExceeded","message":"slowly"}'),
    500: ("Internal Server Error", b'{"error":"InternalServerError","message":"a fault"}'),
    502: ("Bad Gateway", b"<html>bad gateway</html>"),
    503: ("Service Unavailable", b"<html>not now</html>"),
    504: ("Gateway Timeout", b"<html>no answer</html>"),
}


class Traffic(NamedTuple):
    """Requests that clients made, and the bytes that went up and down, headers and all."""

    requests: int = 0
    sent: int = 0
    received: int = 0

    def __add__(self, other: tuple[int, ...]) -> Traffic:  # type: ignore[override]
        return Traffic(*(mine + more for mine, more in zip(self, other, strict=True)))


@dataclass(slots=True)
class _Hold:
    """Something that is kept back, and what became of it."""

    ends: bool = False
    delivers: bool = False


class FaultProxy:
    """A proxy on a port of its own for the host at `origin` (http://NAME:PORT)."""

    def __init__(self, origin: str) -> None:
        parts = urlsplit(origin)
        assert parts.hostname is not None
        self._target = parts.hostname, parts.port or 80
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://localhost:{self._listening.getsockname()[1]}"
        self.log: list[tuple[str, Fault]] = []
        """The method and the fault of each request since the schedule was set."""
        self._schedule: Schedule = calm
        self._traffic: defaultdict[str, Traffic] = defaultdict(Traffic)
        self._late: list[tuple[int, bytes]] = []
        self._holds: list[_Hold] = []
        self._changed = threading.Condition()
        self._clients: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._start(self._accept)

    def schedule(self, schedule: Schedule | Sequence[Fault] | Mapping[int, Fault]) -> None:
        """What becomes of the requests from now on, which are numbered anew."""
        with self._changed:
            # What was to come late does so that many requests from now.
            left = [(max(due - len(self.log), 0), raw) for due, raw in self._late]
            self._late = left
            self._schedule = schedule if callable(schedule) else by_number(schedule)
            self.log = []

    def deliver(self) -> int:
        """Gives the host all that was to come late; returns how much that was."""
        with self._changed:
            late, self._late = self._late, []
        for _, raw in late:
            self._whole(raw)
        return len(late)

    def forget(self) -> None:
        """Back to the beginning: everything passes, nothing comes late, nothing was counted."""
        with self._changed:
            self._late = []
            self._traffic.clear()
        self.schedule(calm)

    def traffic(self) -> dict[str, Traffic]:
        """By method what was asked through this proxy; other paths under their own names."""
        with self._changed:
            return dict(self._traffic)

    def wait_held(self, work: Future[Any] | None = None) -> bool:
        """Waits until something is held, or `work` is done; whether something is held."""
        if work is not None:
            work.add_done_callback(self._wake)
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._holds or (work is not None and work.done()), TIMEOUT
            )
            assert done, "nothing was held"
            return bool(self._holds)

    def release(self, *, discard: bool = False) -> None:
        """Lets go of what is held. With `discard` it goes nowhere, and its connection ends."""
        with self._changed:
            for each in self._holds:
                each.ends = True
                each.delivers = not discard
            self._holds = []
            self._changed.notify_all()

    def _wake(self, _work: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for each in self._clients:
                _shut(each)
        _shut(self._listening)
        for thread in self._threads:
            thread.join(TIMEOUT)
        self._listening.close()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with self._changed:
                self._clients.add(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """One connection of a client, to its end."""
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = _Reader(client)
            while not self._closed and (request := reader.request()):
                if not self._exchange(client, *request):
                    break
        except OSError:
            pass  # either side is gone
        finally:
            with self._changed:
                self._clients.discard(client)
            client.close()

    def _exchange(self, client: socket.socket, verb: str, path: str, raw: bytes) -> bool:
        """One request and what becomes of it; whether the connection goes on."""
        nsid = path.partition("?")[0].removeprefix("/xrpc/")
        with self._changed:
            number = len(self.log)
            fault = self._schedule(Call(number, verb, nsid, len(raw)))
            self.log.append((nsid, fault))
            due = [each for at, each in self._late if at <= number]
            self._late = [(at, each) for at, each in self._late if at > number]
            if fault.late is not None:
                self._late.append((number + 1 + fault.late, raw))
            self._traffic[nsid] += (1, len(raw), 0)
        for each in due:
            self._whole(each)

        def give(some: bytes) -> None:
            # Counted first: once the client has it, the numbers are asked for.
            with self._changed:
                self._traffic[nsid] += (0, 0, len(some))
            client.sendall(some)

        if fault.hold == "request" and not self._hold():
            return False
        if fault == PASS:
            goes_on = True
            for piece in self._ask(raw):
                goes_on = goes_on and not _is_last(piece)
                give(piece)
            return goes_on
        answer = b""
        for _ in range(fault.sends):
            answer = self._whole(raw)
        if fault.hold == "answer" and not self._hold():
            return False
        if fault.answer == "none":
            return False
        if fault.answer in ("cut", "reset"):
            give(_half(answer))
            if fault.answer == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if fault.answer == "status":
            answer = _refusal(fault.status)
        give(answer)
        return not _is_last(answer)

    def _hold(self) -> bool:
        """Waits for `release`; whether to go on."""
        hold = _Hold()
        with self._changed:
            self._holds.append(hold)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: hold.ends or self._closed, TIMEOUT)
        return hold.delivers

    def _whole(self, raw: bytes) -> bytes:
        return b"".join(self._ask(raw))

    def _ask(self, raw: bytes) -> Iterator[bytes]:
        """The host's answer, piece by piece. Each request has a connection of its own: one
        that the host has just ended would be a fault that nobody asked for."""
        with socket.create_connection(self._target, TIMEOUT) as host:
            host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host.sendall(raw)
            yield from _Reader(host).answer()


class _Reader:
    """Reads HTTP/1.1 messages from a socket."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    def request(self) -> tuple[str, str, bytes] | None:
        """Verb, path and all of the next request; None where there is none any more."""
        head = self._head()
        if not head:
            return None
        verb, path, _ = head.decode("latin-1").split(" ", 2)
        return verb, path, b"".join((head, *self._body(head, ends=False)))

    def answer(self) -> Iterator[bytes]:
        head = self._head()
        while head[9:10] == b"1":  # 100 Continue and the like
            yield head
            head = self._head()
        if not head:
            raise ConnectionError("the host gave no answer")
        yield head
        if head[9:12] not in (b"204", b"304"):
            yield from self._body(head, ends=True)

    def _head(self) -> bytes:
        return self._until(b"\r\n\r\n")

    def _body(self, head: bytes, *, ends: bool) -> Iterator[bytes]:
        """A message's body as it stands on the wire. `ends`: without a length it is all that
        comes."""
        lines = head.decode("latin-1").lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        if fields.get("transfer-encoding") == "chunked":
            while True:
                line = self._until(b"\r\n")
                size = int(line.split(b";")[0], 16)
                yield line
                yield from self._exactly(size + 2)
                if not size:
                    return
        elif "content-length" in fields:
            yield from self._exactly(int(fields["content-length"]))
        elif ends:
            while self._buffer or self._more():
                piece, self._buffer = self._buffer, b""
                yield piece

    def _until(self, mark: bytes) -> bytes:
        """All up to a mark and the mark; nothing if the connection ends before."""
        while mark not in self._buffer:
            if not self._more():
                return b""
        end = self._buffer.index(mark) + len(mark)
        piece, self._buffer = self._buffer[:end], self._buffer[end:]
        return piece

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._buffer and not self._more():
                raise ConnectionError("the message is not whole")
            piece, self._buffer = self._buffer[:size], self._buffer[size:]
            size -= len(piece)
            yield piece

    def _more(self) -> bool:
        got = self._source.recv(_READ)
        self._buffer += got
        return bool(got)


def _is_last(piece: bytes) -> bool:
    """Whether this is an answer, or the head of one, after which its connection ends."""
    head = piece.partition(b"\r\n\r\n")[0] if piece.startswith(b"HTTP/") else b""
    return b"\r\nconnection: close" in head.lower()


def _half(answer: bytes) -> bytes:
    """The head of an answer and half of its body; where that is empty, half of the head."""
    head, mark, body = answer.partition(b"\r\n\r\n")
    return head + mark + body[: len(body) // 2] if body else head[: len(head) // 2]


def _refusal(status: int) -> bytes:
    reason, body = _REASONS[status]
    kind = "application/json" if body.startswith(b"{") else "text/html"
    lines = [f"HTTP/1.1 {status} {reason}", f"content-type: {kind}", f"content-length: {len(body)}"]
    if status == 429:
        lines.append("retry-after: 0")
    return "\r\n".join((*lines, "", "")).encode() + body


def _shut(open_socket: socket.socket) -> None:
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
