"""Requests to an ASGI application without a server between: every byte and event as one says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

JSON = [("content-type", "application/json")]


class Response:
    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages
        self.started = bool(messages)
        self.status: int = messages[0]["status"] if messages else 0
        self.headers = [
            (k.decode(), v.decode()) for k, v in (messages or [{"headers": []}])[0]["headers"]
        ]
        self.body = b"".join(message.get("body", b"") for message in messages[1:])
        self.ended = self.started and not messages[-1].get("more_body", False) and len(messages) > 1

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) < 2, f"{name} is there {len(found)} times"
        return found[0] if found else None

    def json(self) -> Any:
        assert self.header("content-type") == "application/json"
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The error's name, if this is an error in the envelope that all have."""
        assert self.status >= 400
        envelope = self.json()
        assert envelope.keys() == {"error", "message"}
        assert all(type(text) is str for text in envelope.values())
        assert self.header("access-control-allow-origin") == "*"
        return envelope["error"]


class Request:
    """One exchange. `chunks` are the pieces of the body; after them `end` says what comes: the
    end of the request ("complete"), nothing ("silence"), or the end of the client ("gone")."""

    def __init__(
        self,
        verb: str,
        path: str,
        query: bytes | Sequence[tuple[str, str]] | dict[str, Any] = b"",
        headers: Sequence[tuple[str, str]] = (),
        chunks: Sequence[bytes] = (b"",),
        end: str = "complete",
    ) -> None:
        self.scope = {
            "type": "http",
            "method": verb,
            "path": path,
            "query_string": query if isinstance(query, bytes) else urlencode(query).encode(),
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers],
            "client": ("192.0.2.7", 50000),
        }
        self.chunks = list(chunks)
        self.end = end
        self.taken = 0
        """Bytes of the body that the application has asked for."""
        self.sent: list[dict[str, Any]] = []

    async def run(self, app: Any) -> Response:
        self.over = asyncio.Event()
        await app(self.scope, self.receive, self.send)
        return Response(self.sent)

    async def receive(self) -> dict[str, Any]:
        if self.chunks:
            chunk = self.chunks.pop(0)
            self.taken += len(chunk)
            more = bool(self.chunks) or self.end != "complete"
            return {"type": "http.request", "body": chunk, "more_body": more}
        if self.end != "gone":
            await self.over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.over.set()


def ask(app: Any, verb: str, path: str, *args: Any, **more: Any) -> Response:
    return asyncio.run(Request(verb, path, *args, **more).run(app))


def get(app: Any, nsid: str, query: Any = b"", headers: Sequence[tuple[str, str]] = ()) -> Response:
    return ask(app, "GET", f"/xrpc/{nsid}", query, headers)


def post(app: Any, nsid: str, body: Any, headers: Sequence[tuple[str, str]] = JSON) -> Response:
    """Posts bytes as they are, anything else as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(app, "POST", f"/xrpc/{nsid}", headers=headers, chunks=[raw])
