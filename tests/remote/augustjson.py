"""JSON as the August host reads and writes it, with what it does to values on the way.

It is a JavaScript program: 1.0 is 1, half of a surrogate pair becomes U+FFFD, of two equal keys
the last counts. Reading its own records back, it loses a U+FEFF at the start of a text, so that
such a record is not that of its CID any more. Malformed links and bytes are maps like any other.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.errors import InvalidInput
from tests.remote.augustauth import Failure

MAX_INT = 2**53 - 1


def taken(body: bytes) -> Any:
    """The value of a request's body. Raises Failure."""
    try:
        found = json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        raise Failure(400, "InvalidRequest", "request body is not JSON") from None
    return _taken(found)


def _taken(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise Failure(400, "InvalidRequest", "numbers must be integers")
        value = int(value)
    if isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            raise Failure(500, "InternalServerError", "Internal Server Error")
        return value
    if isinstance(value, list):
        return [_taken(one) for one in value]
    if isinstance(value, dict):
        if "__proto__" in value:
            raise Failure(400, "InvalidRequest", "__proto__ is not allowed")
        special = _special(value)
        if special is None:
            return {_text(key): _taken(one) for key, one in value.items()}
        return special
    return value


def _text(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _special(fields: dict[str, Any]) -> CID | bytes | None:
    """What a link or bytes stand for; None for all other maps."""
    try:
        if fields.keys() == {"$link"}:
            return CID.parse(fields["$link"])
        if fields.keys() == {"$bytes"}:
            text = fields["$bytes"].rstrip("=")
            return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (InvalidInput, ValueError, AttributeError, TypeError):
        pass
    return None


def given(value: Any) -> Any:
    """The JSON of an answer's value."""
    if isinstance(value, CID):
        return {"$link": str(value)}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode().rstrip("=")}
    if isinstance(value, str):
        return value.removeprefix("\ufeff")
    if isinstance(value, list):
        return [given(one) for one in value]
    if isinstance(value, dict):
        return {given(key): given(one) for key, one in value.items()}
    return value
