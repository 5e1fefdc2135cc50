"""The proxy does to requests what it says, as a plain client and a plain host see it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.remote import faults
from tests.remote.faults import FAULTS, Fault, by_chance
from tests.remote.proxy import FaultProxy, Traffic

ANSWER = b"0123456789"


class Host(ThreadingHTTPServer):
    """Keeps the bodies it was given, in order."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.landed: list[str] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Host

    def do_POST(self) -> None:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["content-length"]))
        self.server.landed.append(body.decode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def do_GET(self) -> None:
        """In chunks, or to the end of the connection."""
        self.send_response(204 if self.path == "/nothing" else 200)
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for each in (ANSWER, ANSWER):
                self.wfile.write(b"a\r\n" + each + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/to-the-end":
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(ANSWER)
        else:
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Setup:
    def __init__(self, host: Host, proxy: FaultProxy, client: httpx.Client) -> None:
        self.host, self.proxy, self.client = host, proxy, client

    def post(self, body: str) -> httpx.Response:
        return self.client.post("/xrpc/test.add?a=b", content=body)

    @property
    def landed(self) -> str:
        return "".join(self.host.landed)


@pytest.fixture
def setup() -> Iterator[Setup]:
    with Host() as host:
        thread = threading.Thread(target=host.serve_forever, args=(0.01,))
        thread.start()
        try:
            with (
                FaultProxy(f"http://127.0.0.1:{host.server_address[1]}") as proxy,
                httpx.Client(base_url=proxy.origin, trust_env=False, timeout=60) as client,
            ):
                yield Setup(host, proxy, client)
        finally:
            host.shutdown()
            thread.join()


def test_what_passes_is_as_it_was(setup):
    for body in ("a", "b" * 200_000, ""):
        assert setup.post(body).content == ANSWER
    assert setup.host.landed == ["a", "b" * 200_000, ""]
    assert setup.client.get("/chunks").content == 2 * ANSWER
    assert setup.client.get("/to-the-end").content == ANSWER
    assert setup.client.get("/nothing").status_code == 204
    assert setup.client.post("/add", content=iter([b"in ", b"pieces"])).content == ANSWER
    assert setup.host.landed[-1] == "in pieces"


STATUS = {
    faults.TOO_MANY: (429, ""),
    faults.ERROR_BEFORE: (500, ""),
    faults.ERROR_AFTER: (500, "x"),
    faults.BAD_GATEWAY: (502, "x"),
    faults.UNAVAILABLE: (503, ""),
    faults.NO_ANSWER: (504, "x"),
}

NO_ANSWER = {
    faults.LOST_REQUEST: "",
    faults.LOST_ANSWER: "x",
    faults.LOST_LATE_TWICE: "x",
    faults.OVERTAKEN: "",
    faults.RESET: "x",
    faults.CUT: "x",
}

ANSWERED = {faults.TWICE: "xx", faults.LATE_TWICE: "x"}


def test_every_fault_is_tested():
    assert {*STATUS, *NO_ANSWER, *ANSWERED} == {*FAULTS}


@pytest.mark.parametrize("fault", STATUS, ids=repr)
def test_a_refusal(setup, fault: Fault):
    status, landed = STATUS[fault]
    setup.proxy.schedule([fault])
    answer = setup.post("x")
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == ("0" if status == 429 else None)
    assert setup.landed == landed
    assert setup.post("y").content == ANSWER
    assert setup.landed == landed + "y"


@pytest.mark.parametrize("fault", NO_ANSWER, ids=repr)
def test_no_usable_answer(setup, fault: Fault):
    setup.proxy.schedule([fault])
    with pytest.raises(httpx.TransportError):
        setup.post("x")
    assert setup.landed == NO_ANSWER[fault]
    assert setup.post("y").content == ANSWER
    assert setup.landed == NO_ANSWER[fault] + "y"


@pytest.mark.parametrize("fault", ANSWERED, ids=repr)
def test_once_more(setup, fault: Fault):
    setup.proxy.schedule([fault])
    assert setup.post("x").content == ANSWER
    assert setup.landed == ANSWERED[fault]


@pytest.mark.parametrize("path", ["/chunks", "/to-the-end", "/nothing"])
@pytest.mark.parametrize("fault", [faults.CUT, faults.RESET], ids=repr)
def test_an_answer_of_any_kind_is_cut_short(setup, path: str, fault: Fault):
    setup.proxy.schedule([fault])
    if path == "/to-the-end" and fault is faults.CUT:
        # Without a length nobody can tell.
        assert setup.client.get(path).content == ANSWER[: len(ANSWER) // 2]
    else:
        with pytest.raises(httpx.TransportError):
            setup.client.get(path)


def test_late_ones_come_after_others(setup):
    setup.proxy.schedule({0: faults.LATE_TWICE, 1: faults.OVERTAKEN})
    setup.post("a")
    with pytest.raises(httpx.TransportError):
        setup.post("b")
    for body in "cde":
        setup.post(body)
    assert setup.landed == "ac" + "ab" + "de"


def test_what_is_late_can_be_delivered_at_once_and_forgotten(setup):
    setup.proxy.schedule([faults.LATE_TWICE] * 2)
    setup.post("a")
    setup.post("b")
    assert setup.proxy.deliver() == 2
    assert setup.proxy.deliver() == 0
    assert setup.landed == "abab"
    setup.proxy.schedule([faults.LATE_TWICE])
    setup.post("c")
    setup.proxy.schedule([])
    setup.post("d")  # still to come: numbers begin anew, and what is late stays late
    setup.post("e")
    setup.post("f")
    assert setup.landed == "ababcdecf"
    setup.proxy.schedule([faults.LATE_TWICE])
    setup.post("g")
    setup.proxy.forget()
    assert setup.proxy.deliver() == 0


@pytest.mark.parametrize(
    ("fault", "landed"), [(faults.HELD_REQUEST, ""), (faults.HELD_ANSWER, "a")], ids=repr
)
@pytest.mark.parametrize("discard", [False, True])
def test_what_is_held_lets_others_pass(setup, fault, landed, discard):
    with ThreadPoolExecutor() as pool:
        setup.proxy.schedule([fault])
        first = pool.submit(setup.post, "a")
        assert setup.proxy.wait_held(first)
        assert setup.landed == landed
        setup.post("b")
        assert not first.done()
        setup.proxy.release(discard=discard)
        if discard:
            assert isinstance(first.exception(), httpx.TransportError)
            assert setup.landed == landed + "b"
        else:
            assert first.result().content == ANSWER
            assert setup.landed == (landed or "b") + ("b" if landed else "a")
        setup.proxy.schedule([])
        second = pool.submit(setup.post, "c")
        assert not setup.proxy.wait_held(second)


def test_chance_is_the_same_again(setup):
    def outcomes() -> list[str]:
        found = []
        setup.proxy.schedule(by_chance(3, 0.5))
        for _ in range(40):
            try:
                found.append(str(setup.post("a").status_code))
            except httpx.TransportError:
                found.append("none")
        setup.proxy.forget()
        return found

    first = outcomes()
    assert {"200", "none", "503"} <= {*first}
    assert outcomes() == first


def test_traffic_is_what_went_over_the_wire(setup):
    setup.post("a")
    setup.proxy.forget()
    answer = setup.post("xyz")
    request = answer.request
    line = f"{request.method} {request.url.raw_path.decode()} HTTP/1.1\r\n"
    sent = len(line) + sum(len(k) + len(v) + 4 for k, v in request.headers.raw) + 2 + 3
    head = sum(len(k) + len(v) + 4 for k, v in answer.headers.raw) + len("HTTP/1.1 200 OK\r\n") + 2
    assert setup.proxy.traffic() == {"test.add": Traffic(1, sent, head + len(ANSWER))}
    setup.proxy.schedule([faults.LOST_ANSWER])
    with pytest.raises(httpx.TransportError):
        setup.post("xyz")
    setup.client.get("/chunks")
    traffic = setup.proxy.traffic()
    assert traffic["test.add"] == Traffic(2, 2 * sent, head + len(ANSWER))
    assert traffic["/chunks"].requests == 1
    assert traffic["/chunks"].received > 2 * len(ANSWER)


def test_without_a_host_there_is_no_answer():
    with Host() as host:
        origin = f"http://127.0.0.1:{host.server_address[1]}"
    with FaultProxy(origin) as proxy, pytest.raises(httpx.TransportError):
        httpx.get(proxy.origin, trust_env=False, timeout=60)
