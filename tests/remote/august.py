"""A host as the alpha of August 2026 was seen to behave, on a port of this machine.

Records, log, commits and blobs are the real ones of `lettaspace.space`; only how they are asked
for is that host's: what it takes and refuses, in which words, and what it changes in a value. It
checks less than ours does, and has that host's faults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import Refused
from lettaspace.network.didweb import document
from tests.remote.augustauth import Account, Doors, Failure, Fields
from tests.remote.augustjson import given, taken
from tests.remote.augustrepos import Repos
from tests.server.hosts import PASSWORD, Clock

MAX_BODY = 1_000_000

_JSON = "application/json"


class August:
    """The host. `requests` are the methods that it was asked, in order, whatever came of it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.clock = clock
        self.requests: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.august = self
        self.port = self._server.server_port
        self.origin = f"http://localhost:{self.port}"
        self.doors = Doors(self.origin, clock)
        self.repos = Repos(path, self.doors)
        self.methods = self.repos.methods | self.doors.methods
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.repos.database.close()

    def add_account(self, name: str = "mira", password: str = PASSWORD) -> Account:
        """An account with the handle `name.localhost`."""
        did = f"did:web:{name}.localhost%3A{self.port}"
        return self.doors.add(Account(did, f"{name}.localhost", password, SigningKey.generate()))

    def document(self, name: str) -> Any:
        """The DID document of the account with this handle, or of the host itself."""
        for account in self.doors.accounts.values():
            if account.handle == name:
                key = account.key.verifying_key
                return document(account.did, self.origin, key, handle=account.handle)
        return document(self.doors.did, self.origin, self.doors.key.verifying_key)

    def answer(
        self, nsid: str, verb: str, params: dict[str, str], fields: Fields, body: bytes
    ) -> tuple[int, str, bytes, Fields]:
        """Status, media type, body and further fields of the answer to a request."""
        self.requests.append(nsid)
        more: Fields = []
        try:
            method = self.methods.get(nsid)
            if method is None:
                raise Failure(501, "MethodNotImplemented", "Method Not Implemented")
            caller = self.doors.admit(nsid, verb, fields)
            more = self.doors.more_fields(caller)
            if verb == "GET":
                value = method(caller, params)
            elif nsid == "com.atproto.repo.uploadBlob":
                value = method(caller, (_single(fields, "content-type"), body))
            elif len(body) > MAX_BODY:
                raise Failure(413, "PayloadTooLargeError", "request entity too large")
            else:
                value = method(caller, taken(body) if body else {})
        except Failure as failure:
            return (
                failure.status,
                _JSON,
                _error(failure.name, failure.message),
                [
                    *more,
                    *failure.fields,
                ],
            )
        except Refused as refused:
            status = 400 if refused.code in _BAD_REQUESTS else 401
            return status, _JSON, _error(refused.code, str(refused)), more
        if isinstance(value, tuple):
            return 200, value[0], value[1], more
        return 200, _JSON, json.dumps(given(value)).encode(), more


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    august: August


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # in one piece, or the body waits until the head is acknowledged
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        more: Fields
        if url.path == "/.well-known/did.json":
            name = (self.headers["host"] or "").partition(":")[0]
            content = json.dumps(self.server.august.document(name)).encode()
            status, media, more = 200, _JSON, []
        else:
            status, media, content, more = self.server.august.answer(
                url.path.removeprefix("/xrpc/"),
                self.command,
                dict(parse_qsl(url.query)),
                list(self.headers.items()),
                body,
            )
        self.send_response(status)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(content)))
        for name, value in more:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """What `Date` says: the time by this host's clock."""
        now = self.server.august.clock() if timestamp is None else timestamp
        return super().date_time_string(now)

    def log_message(self, *_: Any) -> None:
        pass


_BAD_REQUESTS = ("InvalidDelegationToken", "InvalidCredential")


def _error(name: str, message: str) -> bytes:
    return json.dumps({"error": name, "message": message}).encode()


def _single(fields: Fields, name: str) -> str:
    return next((value for each, value in fields if each.lower() == name), "")


@contextmanager
def august(path: Path, clock: Clock | None = None) -> Iterator[August]:
    """The host while the block runs, with its database at `path`."""
    host = August(path, clock or Clock())
    host.start()
    try:
        yield host
    finally:
        host.stop()
