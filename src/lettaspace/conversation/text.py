"""The words in a message: what search looks through, and what a title or preview shows.

Works on the stored form of a payload, so that images and other binary leaves stay sealed.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from lettaspace.conversation import formats, jsontext
from lettaspace.conversation.formats import OpenBlob, Piece
from lettaspace.conversation.leaves import BLOB_BASE64, BLOB_JSON, BLOB_TEXT, open_leaf


def pieces(message: Mapping[str, Any], open_blob: OpenBlob) -> Iterator[Piece]:
    """The texts of a `message` record's payload, in reading order.

    Of a format that nobody registered, every string. Raises Damaged when a leaf cannot be
    opened.
    """
    data = message["message"]["data"]
    known = formats.of(message)
    if known is None:
        for text in strings(data, open_blob):
            yield "text", text
    else:
        yield from known.texts(data, open_blob)


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
            yield from plain_strings(jsontext.loads(value["json"]))
        elif kind == BLOB_TEXT:
            yield open_leaf(value, open_blob).decode()
        elif kind == BLOB_JSON:
            yield from plain_strings(jsontext.loads(open_leaf(value, open_blob)))
        elif kind == BLOB_BASE64:
            # Text may happen to be base64; only what says that it is an image is none.
            if not str(value.get("mimeType")).startswith("image/"):
                yield b64encode(open_leaf(value, open_blob)).decode()
        else:
            for key, item in value.items():
                yield key
                yield from strings(item, open_blob)


def plain_strings(value: Any) -> Iterator[str]:
    """The same of JSON that was escaped: what looks like an escape in it is the user's own."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from plain_strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from plain_strings(item)
