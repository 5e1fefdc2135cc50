"""What became of each request: to be counted and logged, without anything it held."""

import json
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lettaspace.atproto import methods
from lettaspace.server.calls import Call
from lettaspace.server.errors import GENERAL
from lettaspace.server.xrpc import CALL, HELD, PREFIX

OTHER = "other"
"""Stands for every path, and every name of an error, that the host does not know: what is
counted and logged are its own words, never a client's."""

_LONGEST_ERROR = 8192


class Exchange(NamedTuple):
    """A request and its answer."""

    method: str
    """An NSID, the path of a document, or `OTHER`."""
    status: int | None
    """None where no answer began, since the client was gone."""
    error: str | None
    seconds: float
    """Without those for which the answer was held on request."""
    received: int
    """Bytes of the body that were read."""
    sent: int
    """Bytes of the answer's body."""
    whole: bool
    """Whether the answer was given to its end."""
    call: Call | None
    """What the method was asked, if it came to that. Holds content and secrets."""


class Observer(Protocol):
    """Is told of requests. Both methods are called in the event loop and must not wait."""

    def began(self) -> None: ...

    def ended(self, exchange: Exchange) -> None: ...


class Traffic:
    """An ASGI application whose requests are observed. `paths` are those of its documents,
    `nsids` its methods, which may grow."""

    def __init__(
        self,
        app: ASGIApp,
        observers: Sequence[Observer],
        *,
        paths: Collection[str],
        nsids: Collection[str],
    ) -> None:
        self._app = app
        self._observers = observers
        self._paths = paths
        self._nsids = nsids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        watch = _Watch(receive, send)
        for observer in self._observers:
            observer.began()
        begin = time.perf_counter()
        try:
            await self._app(scope, watch.receive, watch.send)
        finally:
            seconds = time.perf_counter() - begin - scope.get(HELD, 0.0)
            exchange = watch.exchange(self._method(scope["path"]), seconds, scope.get(CALL))
            for observer in self._observers:
                observer.ended(exchange)

    def _method(self, path: str) -> str:
        if path in self._paths:
            return path
        nsid = path[len(PREFIX) :] if path.startswith(PREFIX) else ""
        return nsid if nsid in self._nsids else OTHER


class _Watch:
    """Sees what goes through two functions of ASGI."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._status: int | None = None
        self._received = self._sent = 0
        self._whole = False
        self._body = b""

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        else:
            body = message.get("body", b"")
            self._sent += len(body)
            self._whole = not message.get("more_body", False)
            if self._status is not None and self._status >= 400 and len(body) < _LONGEST_ERROR:
                self._body = body
        await self._send(message)

    def exchange(self, method: str, seconds: float, call: Call | None) -> Exchange:
        return Exchange(
            method, self._status, _error(method, self._body), seconds,
            self._received, self._sent, self._whole, call,
        )  # fmt: skip


def _error(method: str, body: bytes) -> str | None:
    """The name in the envelope of an error."""
    if not body:
        return None
    try:
        name = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return OTHER
    known = methods.shipped().get(method)
    declared = known is not None and name in known.errors
    return name if declared or name in GENERAL else OTHER
