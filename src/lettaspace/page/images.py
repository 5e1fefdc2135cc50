"""Pictures in messages: what they really are, whatever is said of them."""

import binascii
from collections.abc import Callable
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import from_json
from lettaspace.conversation.leaves import BLOB_BASE64, exact_base64, open_leaf
from lettaspace.errors import Damaged, InvalidInput, NotFound

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def sniffed(content: bytes) -> str | None:
    """The mime type of a picture that browsers only draw, by its first bytes; None for
    anything else. SVG is none: it is a document that may hold scripts."""
    for magic, kind in _MAGIC:
        if content.startswith(magic):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return None


def image_bytes(data: Any, open_blob: Callable[[CID], bytes]) -> bytes:
    """The bytes behind an image part's `data`, sealed or base64 text.

    `data` is as `codec.decode(..., images=False)` gives it. Raises NotFound or Damaged.
    """
    if isinstance(data, dict) and data.get("$type") == BLOB_BASE64:
        try:
            return open_leaf(from_json(data), open_blob)
        except InvalidInput as error:
            raise Damaged(f"an image's leaf is malformed: {error}") from error
    if isinstance(data, str):
        content = exact_base64(data)
        if content is not None:
            return content
        try:
            return binascii.a2b_base64(data)
        except (binascii.Error, ValueError):
            raise Damaged("an image's data is not base64") from None
    raise NotFound("an image has no data")


def may_be_drawn(data: Any) -> bool:
    """Whether browsers draw an image part's `data`, as far as can be told without its blob."""
    if not isinstance(data, str):
        return bool(data)
    try:
        return sniffed(binascii.a2b_base64(data)) is not None
    except (binascii.Error, ValueError):
        return False


def image_size(data: Any) -> int | None:
    """About how many bytes an image has, without opening it."""
    if isinstance(data, dict) and isinstance(data.get("size"), int):
        return int(data["size"])
    return len(data) * 3 // 4 if isinstance(data, str) else None
