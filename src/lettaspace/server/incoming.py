"""What comes in with a request: its query, its body, and the end of its client."""

from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from starlette.types import Receive

from lettaspace.errors import InvalidInput
from lettaspace.server.errors import XrpcError

CLOSE = [("connection", "close")]
"""For answers given before the body is read, so that nobody goes on to send it."""


class Gone(Exception):
    """Nobody waits for an answer any more."""


def read_query(query: bytes) -> list[tuple[str, str]]:
    """The names and values of a query string. Raises InvalidInput if they are not UTF-8."""
    if not query:
        return []
    try:
        return [
            (_text(name), _text(value))
            for name, _, value in (part.partition(b"=") for part in query.split(b"&"))
        ]
    except UnicodeDecodeError:
        raise InvalidInput("the query is not UTF-8") from None


def _text(part: bytes) -> str:
    if b"+" in part:
        part = part.replace(b"+", b" ")
    return (unquote_to_bytes(part) if b"%" in part else part).decode()


async def read_body(headers: Sequence[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """A request's body, of which not much more than `limit` bytes are ever taken in.

    Raises XrpcError for a larger or compressed one, Gone if the client went before its end.
    """
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > limit:
            raise _too_large(limit)
        if name == b"content-encoding" and value.lower() != b"identity":
            raise XrpcError("UnsupportedMediaType", "the body is compressed", headers=CLOSE)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> XrpcError:
    return XrpcError("PayloadTooLarge", f"the body has more than {limit} bytes", headers=CLOSE)


async def disconnected(receive: Receive) -> None:
    """Returns when the client is gone or has its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
