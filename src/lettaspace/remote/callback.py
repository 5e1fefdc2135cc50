"""Where a browser comes back to after its user has agreed: an address on this machine, once.

A server on 127.0.0.1, on a port that was free, that takes one answer for one request: the one
with the `state` of that request. Everything else is refused and changes nothing, so that no
other page that the browser has open can end or take over a sign-in. Source: RFC 8252, 7.3.
"""

import hmac
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

PATH: Final = "/callback"

_LONGEST = 8192
_SILENCE = 10.0
"""Seconds that a connection may say nothing."""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>lettaspace</title>
<p>Back to the terminal: lettaspace goes on there. This page can be closed.</p>
</html>
"""


class Callback:
    """A server that is listening. `uri` is what the host is told to redirect to."""

    def __init__(self, state: str) -> None:
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._server = _Server(state, self._answers)
        self.uri = f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def wait(self, seconds: float) -> str | None:
        """The address that the browser came back to, with all parameters; None if it does not
        within so many seconds."""
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None


@contextmanager
def listening(state: str) -> Iterator[Callback]:
    """A server while the block runs, for the answer with this state. Raises OSError."""
    callback = Callback(state)
    server = callback._server
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield callback
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # browsers keep connections open in advance

    def __init__(self, state: str, answers: "queue.SimpleQueue[str]") -> None:
        self.state = state
        self.answers = answers
        self.taken = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up is not worth a word; the query must not be printed."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SILENCE
    server_version = "lettaspace"
    sys_version = ""

    def do_GET(self) -> None:
        server = self.server
        own = f"127.0.0.1:{server.server_port}"
        parts = urlsplit(self.path)
        if self.headers.get("host") != own or parts.path != PATH or len(self.path) > _LONGEST:
            self._answer(404, "There is nothing here.")
            return
        given = parse_qs(parts.query, keep_blank_values=True)
        state = given.get("state", [""])[0]
        known = hmac.compare_digest(state.encode(), server.state.encode())
        known = known and all(len(values) == 1 for values in given.values())
        if not known or not server.taken.acquire(blocking=False):
            self._answer(400, "This is not the answer to a sign-in that is under way.")
            return
        self._answer(200, _PAGE, "text/html")
        server.answers.put(f"http://{own}{self.path}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The query holds a code, which no log may have."""

    def _answer(self, status: int, text: str, media_type: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", f"{media_type}; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.send_header("content-security-policy", "default-src 'none'; frame-ancestors 'none'")
        self.send_header("referrer-policy", "no-referrer")
        self.send_header("x-content-type-options", "nosniff")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True
