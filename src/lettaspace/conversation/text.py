"""The words in a message: what search looks through, and what a title or preview shows.

Works on the stored form of a payload, so that images and other binary leaves stay sealed.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.conversation import jsontext
from lettaspace.conversation.leaves import BLOB_BASE64, BLOB_JSON, BLOB_TEXT, open_leaf
from lettaspace.conversation.records import LOCAL_MESSAGE

OpenBlob = Callable[[CID], bytes]

Piece = tuple[str, str]
"""Where a text stands ("text", "thinking", "toolCall", "summary", ...), and the text."""


def pieces(message: Mapping[str, Any], open_blob: OpenBlob) -> Iterator[Piece]:
    """The texts of a `message` record's payload, in reading order.

    Of a format that is not known, every string. Raises Damaged when a leaf cannot be opened.
    """
    payload = message["message"]
    data = payload["data"]
    if payload["format"] != LOCAL_MESSAGE or "content" not in data:
        for text in strings(data, open_blob):
            yield "text", text
        return
    content = data["content"]
    if not isinstance(content, list):
        for text in strings(content, open_blob):
            yield "text", text
        content = []
    for part in content:
        yield from _part(part, open_blob)
    for key in ("toolName", "errorMessage"):
        if key in data:
            for text in strings(data[key], open_blob):
                yield key, text
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("compaction"), dict):
        for text in strings(metadata["compaction"].get("summary"), open_blob):
            yield "summary", text


def _part(part: Any, open_blob: OpenBlob) -> Iterator[Piece]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        found = strings(part.get("text"), open_blob)
    elif kind == "thinking":
        found = strings(part.get("thinking"), open_blob)
    elif kind == "toolCall":
        found = strings([part.get("name"), part.get("arguments")], open_blob)
    elif kind == "image":
        return
    else:
        kind, found = "text", strings(part, open_blob)
    for text in found:
        yield kind, text


def strings(value: Any, open_blob: OpenBlob) -> Iterator[str]:
    """Every string in a stored value, keys included, escapes and sealed text opened."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, open_blob)
    elif isinstance(value, dict):
        kind = value.get("$type")
        if kind == jsontext.JSON_ESCAPE and isinstance(value.get("json"), str):
            yield from _plain_strings(jsontext.loads(value["json"]))
        elif kind == BLOB_TEXT:
            yield open_leaf(value, open_blob).decode()
        elif kind == BLOB_JSON:
            yield from _plain_strings(jsontext.loads(open_leaf(value, open_blob)))
        elif kind == BLOB_BASE64:
            # Text may happen to be base64; only what says that it is an image is none.
            if not str(value.get("mimeType")).startswith("image/"):
                yield b64encode(open_leaf(value, open_blob)).decode()
        else:
            for key, item in value.items():
                yield key
                yield from strings(item, open_blob)


def _plain_strings(value: Any) -> Iterator[str]:
    """The same of JSON that was escaped: what looks like an escape in it is the user's own."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _plain_strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _plain_strings(item)
