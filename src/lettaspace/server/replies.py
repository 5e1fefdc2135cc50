"""What goes out: answers and errors as HTTP responses."""

import json
from typing import NamedTuple

from starlette.types import Scope, Send

from lettaspace.atproto import data
from lettaspace.atproto.methods import JSON
from lettaspace.server.calls import Answer
from lettaspace.server.errors import XrpcError
from lettaspace.server.streams import Source

Headers = list[tuple[bytes, bytes]]

# Any page may ask, as with every PDS: nothing here rests on cookies or on where one comes from.
_COMMON: Headers = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"*"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
_COMMON_NAMES = frozenset(name for name, _ in _COMMON)


class Reply(NamedTuple):
    """A response that has not begun."""

    status: int
    headers: Headers
    body: bytes | Source


def pack(answer: Answer) -> Reply:
    """A method's answer. Raises InvalidRecord if its value is not of the data model."""
    headers = [(name.lower().encode(), text.encode("latin-1")) for name, text in answer.headers]
    given = {name for name, _ in headers} & _COMMON_NAMES
    headers += [pair for pair in _COMMON if pair[0] not in given] if given else _COMMON
    body: bytes | Source
    size = answer.size
    if answer.value is not None:
        body = data.dumps(answer.value).encode()
        headers.append((b"content-type", JSON.encode()))
    else:
        body = answer.body if isinstance(answer.body, bytes) else Source(answer.body)
        if answer.media_type:
            headers.append((b"content-type", answer.media_type.encode("latin-1")))
    if isinstance(body, bytes):
        size = len(body)
    if size is not None:
        headers.append((b"content-length", b"%d" % size))
    return Reply(200, headers, body)


def refuse(error: XrpcError) -> Reply:
    """An error, in the envelope that all errors have."""
    body = json.dumps({"error": error.name, "message": error.message}).encode()
    headers = [(name.encode(), value.encode("latin-1")) for name, value in error.headers]
    headers += _COMMON
    headers += [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body))]
    return Reply(error.status, headers, body)


def preflight(scope: Scope) -> Reply:
    """Tells a browser that any page may ask anything here."""
    asked = [v for name, v in scope["headers"] if name == b"access-control-request-headers"]
    headers = [
        (b"access-control-allow-origin", b"*"),
        (b"access-control-allow-methods", b"GET, HEAD, POST"),
        (b"access-control-allow-headers", b", ".join(asked) or b"*"),
        (b"access-control-max-age", b"86400"),
    ]
    return Reply(204, headers, b"")


async def send_reply(reply: Reply, scope: Scope, send: Send) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    body = b"" if scope["method"] == "HEAD" else reply.body
    await send({"type": "http.response.body", "body": body, "more_body": False})
