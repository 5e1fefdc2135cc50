"""What a connection may send before an application hears of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import uvicorn

from lettaspace.server import connections
from lettaspace.server.calls import Answer
from lettaspace.server.connections import Connection
from lettaspace.server.xrpc import Xrpc
from tests.waiting import SECONDS

GET = b"GET /xrpc/com.atproto.server.getSession HTTP/1.1\r\nhost: x\r\n"
POST = b"POST /xrpc/com.atproto.server.createSession HTTP/1.1\r\nhost: x\r\n"
POST += b"content-type: application/json\r\n"


@pytest.fixture
def port() -> Iterator[int]:
    xrpc = Xrpc(threads=1)
    xrpc.add("com.atproto.server.getSession", lambda _: Answer({"ok": True}))
    xrpc.add("com.atproto.server.createSession", lambda call: Answer(call.input))
    listening = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(
        xrpc, http=Connection, ws="none", lifespan="off", log_config=None, log_level="critical"
    )
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()
    xrpc.close()


@pytest.fixture
def client(port) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        yield client


def answer(client: socket.socket) -> bytes:
    """Everything up to the end of one answer, or of the connection."""
    got = b""
    while b"\r\n\r\n" not in got or not got.endswith(b"}"):
        more = client.recv(65536)
        if not more:
            break
        got += more
    return got


def test_requests_one_after_another(client):
    for _ in range(3):
        client.sendall(GET + b"x-a: " + b"a" * 30_000 + b"\r\n\r\n")
        assert answer(client).startswith(b"HTTP/1.1 200")
    body = b'{"identifier":"a.example","password":"' + b"p" * 100_000 + b'"}'
    client.sendall(POST + b"content-length: %d\r\n\r\n" % len(body))
    for i in range(0, len(body), 1000):
        client.sendall(body[i : i + 1000])
    assert answer(client).endswith(b"p" * 1000 + b'"}')
    client.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
    for i in range(0, len(body), 5000):
        client.sendall(b"1388\r\n%s\r\n" % body[i : i + 5000].ljust(5000))
    client.sendall(b"0\r\n\r\n")
    assert answer(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "endless",
    [
        (GET + b"x-a: ", b"a"),
        (GET, b"a: b\r\n"),
        (b"GET /", b"a"),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
        (POST + b"transfer-encoding: chunked\r\n\r\n1;", b"a"),
    ],
    ids=["value", "headers", "path", "trailers", "chunk"],
)
def test_heads_have_an_end(client, endless):
    begin, part = endless
    sent = 0
    try:
        client.sendall(begin)
        while sent < 20_000_000:
            client.sendall(part * 8000)
            sent += len(part) * 8000
    except OSError:
        pass
    assert sent < 20_000_000


def test_a_head_that_takes_too_long(monkeypatch, port):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    for begin in (b"", b"G", GET):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
            client.sendall(begin)
            assert client.recv(1) == b""


def test_a_head_that_is_there_has_all_the_time(monkeypatch, port):
    def body_after(seconds: float) -> bytes:
        """What comes of a body that is sent when the time for heads is over."""
        monkeypatch.setattr(connections, "HEAD_SECONDS", seconds)
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
            client.sendall(POST + b"content-length: 41\r\n\r\n")
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as late:
                assert late.recv(1) == b""
            with suppress(OSError):
                client.sendall(b'{"identifier":"a.example","password":"b"}')
                return answer(client)
        return b""

    # Where this machine lets even the head wait for so long, it has more time.
    answers = (body_after(seconds) for seconds in (0.05, 1, 10))
    assert any(each.startswith(b"HTTP/1.1 200") for each in answers)
